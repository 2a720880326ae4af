"""The example of docs/traces.md does what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import ROOT


def test_the_example_of_the_documentation(log: Path, program: Path, tmp_path: Path) -> None:
    text = (ROOT / "docs/traces.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    lines = "".join(blocks).splitlines()
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
        timeout=60,
    )
    assert commands
    assert done.stdout.splitlines() == shown
