"""What is installed: the wheel, what works without the extension, and the types."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from conftest import PATIENCE_SECONDS, PROGRAMS, ROOT, Coordinator
from test_docs import programs

MATURIN = Path(sys.executable).parent / "maturin"


def told(*command: str | Path, cwd: Path, environment: dict[str, str] | None = None) -> str:
    """What a command that succeeds says."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


CARGO = """#!/bin/sh
# maturin has cargo compile the package alone, whose dependencies then have fewer features than in the
# workspace, and are compiled once more. What is in the wheel is what python/build has built.
[ "$1" = rustc ] || exec cargo "$@"
shift
exec env -u PYO3_CONFIG_FILE -u PYO3_PYTHON -u PYO3_ENVIRONMENT_SIGNATURE cargo build --workspace "$@"
"""


@pytest.mark.skipif(not MATURIN.is_file(), reason="maturin is not installed beside this Python")
def test_the_wheel_takes_turns(coordinator: Coordinator, place: str, tmp_path: Path) -> None:
    cargo = tmp_path / "cargo"
    cargo.write_text(CARGO, encoding="utf-8")
    cargo.chmod(0o755)
    build = [str(MATURIN), "build", "--locked", "--profile", "dev", "--out", str(tmp_path)]
    told(*build, cwd=ROOT / "python", environment={**os.environ, "CARGO": str(cargo)})
    (wheel,) = tmp_path.glob("*.whl")
    assert "-cp39-abi3-" in wheel.name
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    told(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", wheel, cwd=tmp_path)

    environment = {name: value for name, value in coordinator.environment.items() if name != "PYTHONPATH"}
    assert told(python, PROGRAMS / "alone.py", place, "strict", cwd=tmp_path, environment=environment) != ""
    shown = told(python, "-c", "import iogate; print(iogate.__file__)", cwd=tmp_path, environment=environment)
    assert shown.startswith(str(tmp_path))
    assert (tmp_path / "venv").joinpath("lib").glob("*/site-packages/iogate/py.typed")
    (entries,) = (tmp_path / "venv").glob("lib/*/site-packages/iogate-*.dist-info/entry_points.txt")
    assert "[fsspec.specs]\niogate=iogate.filesystem.IogateFileSystem" in entries.read_text()
    simulated = "import iogate; print(iogate.simulate('two-readers', quick=True))"
    assert "points" in told(python, "-c", simulated, cwd=tmp_path, environment=environment)
    # Of the documentation, what takes no other package: a turn around a pickle, and a simulation.
    pickled = programs()[1].replace("/scratch", str(tmp_path))
    assert "began after" in told(python, "-I", "-c", pickled, cwd=tmp_path, environment=environment)
    assert (tmp_path / "state.pickle").is_file()
    simulated = programs("docs/python-gate.md")[0]
    assert "aioli 128KiB" in told(python, "-I", "-c", simulated, cwd=tmp_path, environment=environment)


def test_without_the_extension_the_rest_works(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "python/iogate", tmp_path / "iogate", ignore=ignored)
    assert "--json-names" in told(sys.executable, "-m", "iogate.darshan", "--help", cwd=tmp_path)
    command = (
        "import iogate\ntry:\n    iogate.acquire('scratch')\nexcept ImportError as error:\n    print(error)"
    )
    assert "is not built: install the package" in told(sys.executable, "-c", command, cwd=tmp_path)


SAMPLE = """
import asyncio
from pathlib import Path

import iogate

with iogate.turn("/scratch", timeout=60, targets=[1, 2], policy="lock+backoff") as turn:
    reveal_type(turn)
    reveal_type(turn.token)

@iogate.turn(Path("/scratch"))
def save(state: dict[str, bytes], step: int) -> int:
    return step

@iogate.turn("/scratch")
async def save_soon(step: int) -> int:
    return step

reveal_type(save({}, 1))
reveal_type(asyncio.run(save_soon(1)))
reveal_type(iogate.probe("/scratch"))

async def wait() -> None:
    async with iogate.turn("/scratch") as turn:
        reveal_type(turn.waited)

save("state", 1)
iogate.turn("/scratch", policy="locks")
iogate.turn("/scratch", 2**30)
iogate.turn(7)
"""

EXPECTED = """
7 "iogate.turns.Turn"
8 "int"
18 "int"
19 "int"
20 "int"
24 "float"
26 [arg-type]
27 [arg-type]
28 [call-arg]
29 [arg-type]
"""


def test_types_are_those_that_users_see(tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(SAMPLE.lstrip("\n"), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty"]
    command += ["--cache-dir", str(ROOT / "target/mypy-sample"), "sample.py"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "python"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    found = re.findall(
        r"^sample.py:(\d+): (?:note: Revealed|error:) .* (\S+)$", done.stdout, flags=re.MULTILINE
    )
    assert [" ".join(line) for line in found] == EXPECTED.strip().splitlines(), done.stdout + done.stderr
