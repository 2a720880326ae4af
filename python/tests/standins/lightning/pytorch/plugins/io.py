"""Stands in for the plugins of PyTorch Lightning that write checkpoints."""

from __future__ import annotations

import torch


class TorchCheckpointIO:
    """Writes them by `torch.save`."""

    def save_checkpoint(self, checkpoint: dict[str, object], path: str, storage_options: None = None) -> None:
        """Writes a checkpoint."""
        assert storage_options is None
        torch.save(checkpoint, path)
