"""The logs that the darshan package brings along, the program, and a coordinator."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import pytest

ROOT = Path(__file__).parents[2]
"""The repository."""

PROGRAMS = Path(__file__).parent / "programs"
"""What tests run in processes of their own."""

# What was calibrated on this machine is not the tests' business.
os.environ["IOGATE_CALIBRATION"] = str(ROOT / "target" / "nothing-calibrated")

PATIENCE_SECONDS = 300
"""Much longer than anything that is waited for takes, on a machine that does other things as well."""


def python(*args: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs Python with the package of this checkout."""
    return subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def printed(*args: str | Path, cwd: Path | None = None) -> str:
    """What Python prints so. It ends well, and complains of nothing."""
    done = python(*args, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def run(*args: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs the converter."""
    return python("-m", "iogate.darshan", *args, cwd=cwd)


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


def built(path: str, how: str) -> Path:
    """What cargo has built, or no test."""
    found = ROOT / path
    if not found.is_file():
        pytest.skip(f"there is no {path}; build it with: {how}")
    return found.resolve()


@pytest.fixture(scope="session")
def program() -> Path:
    """The iogate program: `IOGATE`, or what was built last."""
    return built(os.environ.get("IOGATE", "target/debug/iogate"), "cargo build --package iogate")


@dataclass(frozen=True)
class Coordinator:
    """A coordinator that listens at a socket, and the environment of its clients."""

    program: Path
    address: str
    environment: dict[str, str]

    def status(self) -> dict[str, Any]:
        """Who holds turns and who waits."""
        command = [str(self.program), "coord", "status", "--json", self.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
        status: dict[str, Any] = json.loads(done.stdout)
        return status

    def waiting(self, place: str) -> int:
        """How many claims wait for a place."""
        return sum(waiter["place"] == place for waiter in self.status()["waiters"])

    def holding(self, place: str) -> int:
        """How many turns there are at a place."""
        return sum(holder["place"] == place for holder in self.status()["holders"])

    def evict(self, token: int) -> None:
        """Takes a turn away."""
        command = [str(self.program), "coord", "release", str(token), "--coord", self.address]
        subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS, check=True)


def eventually(condition: Callable[[], bool]) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def coordinator(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Coordinator]:
    """One for all tests, each of which has a place of its own. This process is its client, and of no job."""
    built("python/iogate/_native.abi3.so", "python/build")
    directory = tmp_path_factory.mktemp("coord")
    address = f"unix:{directory}/socket"
    command = [str(program), "coord", "serve", "--listen", address, "--state", str(directory / "state")]
    # A lease whose end tests can wait for.
    command += ["--set", "lease=3s", "--with-parent"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert any(line.strip() == "ready" for line in process.stdout), (
        "the coordinator ended before it was ready"
    )
    jobs = ("IOGATE_", "SLURM_", "PMI", "OMPI_", "PBS_", "LSB_", "FLUX_", "JOB_ID", "COBALT_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(jobs)}
    environment |= {"IOGATE_COORD": address, "PYTHONPATH": str(ROOT / "python")}
    os.environ.clear()
    os.environ.update(environment)
    yield Coordinator(program, address, environment)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=PATIENCE_SECONDS) == 0


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    """A place that no other test uses."""
    return str(request.node.name)


@dataclass(frozen=True)
class Rival:
    """Another process that has a turn."""

    process: subprocess.Popen[str]
    token: int

    def release(self) -> None:
        """Ends the turn, and the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=PATIENCE_SECONDS) == 0


@pytest.fixture
def rival(coordinator: Coordinator, place: str) -> Iterator[Rival]:
    """One that holds the place of the test."""
    with started("rival.py", place, environment=coordinator.environment) as process:
        assert process.stdout is not None
        yield Rival(process, int(process.stdout.readline()))


@contextmanager
def started(program: str, *args: str | Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A program of the tests in a process of its own, which does not outlive the block."""
    command = [sys.executable, str(PROGRAMS / program), *map(str, args)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    with process:
        yield process
        process.kill()
