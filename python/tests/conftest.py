"""The logs that the darshan package brings along, and the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
"""The repository."""


def run(*args: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the converter. A minute is much more than it needs."""
    command = [sys.executable, "-m", "iogate.darshan", *map(str, args)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def example(name: str) -> Path:
    """A real log from the darshan package."""
    package = pytest.importorskip("darshan", reason="the Python package darshan is not installed")
    return Path(package.__file__).parent / "examples" / "example_logs" / name


@pytest.fixture
def log() -> Path:
    """IOR with HDF5 on 4 ranks and one shared file, traced in both modules; 4 kB."""
    return example("ior_hdf5_example.darshan")


@pytest.fixture
def large_log() -> Path:
    """A Java program without MPI: 169 files, some names with a percent sign; 99 kB."""
    return example("dxt.darshan")


@pytest.fixture
def program() -> Path:
    """The iogate program: `IOGATE`, or what was built last."""
    path = Path(os.environ.get("IOGATE", ROOT / "target/debug/iogate"))
    if not path.is_file():
        pytest.skip(f"there is no {path}; build it with: cargo build --package iogate")
    return path.resolve()
