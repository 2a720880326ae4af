"""Stands in for PyTorch Lightning: a trainer that has nothing to train."""

from __future__ import annotations

from lightning.pytorch.plugins.io import TorchCheckpointIO


class Trainer:
    """Lets its plugin write checkpoints."""

    def __init__(self, *, plugins: list[TorchCheckpointIO], max_epochs: int) -> None:
        """Takes one plugin."""
        (self.checkpoint_io,) = plugins
        self.max_epochs = max_epochs

    def save_checkpoint(self, path: str) -> None:
        """Writes a checkpoint."""
        self.checkpoint_io.save_checkpoint({"epoch": self.max_epochs}, path)
