"""The examples of docs/traces.md, docs/python.md and docs/python-gate.md (and a how-to) do what they show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE_SECONDS, ROOT, Coordinator, built, printed


def test_the_example_of_the_documentation(log: Path, program: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs/traces.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console[^\n]*\n(.*?)```", text, flags=re.DOTALL)
    lines = blocks[0].splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    shown = [line for line in lines if not line.startswith("$ ")]
    path = f"{Path(sys.executable).parent}:{program.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        ["bash", "-c", "exec 2>&1\n" + "\n".join(commands)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert commands
    assert done.stdout.splitlines() == shown


def programs(page: str = "docs/python.md") -> list[str]:
    """The Python programs of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


@pytest.mark.parametrize("index", range(len(programs())))
def test_the_programs_of_the_documentation_take_turns(
    coordinator: Coordinator, index: int, tmp_path: Path
) -> None:
    program = programs()[index].replace("/scratch", str(tmp_path))
    standins = Path(__file__).parent / "standins"
    path = f"{coordinator.environment['PYTHONPATH']}:{standins}"
    before = coordinator.status()["counters"]
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", program],
        env={**coordinator.environment, "PYTHONPATH": path, "IOGATE_STRICT": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert (done.returncode, done.stderr) == (0, "")
    after = coordinator.status()["counters"]
    assert after["granted"] > before["granted"]
    assert after["released"] - before["released"] == after["granted"] - before["granted"]
    assert list(tmp_path.iterdir())


@pytest.mark.parametrize("program", programs("docs/python-gate.md") + programs("docs/how-to/embedding.md"))
def test_the_programs_of_the_other_page_run(program: str) -> None:
    built("python/iogate/_native.abi3.so", "python/build")
    said = printed("-W", "default", "-c", program, "--quick")
    assert said
