"""Stands in for Hugging Face Accelerate."""

from pathlib import Path


class Accelerator:
    """A process of a distributed training."""

    def save_state(self, directory: str) -> None:
        """Writes what the training goes on from."""
        Path(directory).mkdir(parents=True)
        Path(directory, "model.safetensors").write_bytes(bytes(1000))
