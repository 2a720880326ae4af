"""The example that trains, in several processes with one coordinator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from conftest import PATIENCE_SECONDS, ROOT, Coordinator

EXAMPLE = ROOT / "python/examples/training.py"


def test_checkpoints_of_jobs_do_not_overlap(coordinator: Coordinator, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [
        sys.executable,
        str(EXAMPLE),
        str(tmp_path),
        "--steps",
        "12",
        "--every",
        "3",
        "--log",
        str(log),
    ]
    jobs = [
        subprocess.Popen(command, env={**coordinator.environment, "IOGATE_JOB": f"job{number}"})
        for number in range(2)
    ]
    assert [job.wait(timeout=PATIENCE_SECONDS) for job in jobs] == [0, 0]

    checkpoints = sorted(map(json.loads, log.read_text("utf-8").splitlines()), key=lambda line: line["began"])
    assert len(checkpoints) == 8
    for one, following in zip(checkpoints, checkpoints[1:]):
        assert one["ended"] <= following["began"]
        assert one["token"] < following["token"]
    assert {checkpoint["bytes"] > 2**23 for checkpoint in checkpoints} == {True}
    assert len(list(tmp_path.glob("model-*.pickle"))) == 2


def test_training_goes_on_without_a_coordinator(coordinator: Coordinator, tmp_path: Path) -> None:
    environment = {name: value for name, value in coordinator.environment.items() if name != "IOGATE_COORD"}
    command = [sys.executable, str(EXAMPLE), str(tmp_path), "--steps", "2", "--every", "1", "--layers", "1"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2
