"""The trace of a simulated run is what viewers of Chrome trace events, such as Perfetto, take.

The rules are those of the "Trace Event Format", and what Perfetto makes of it: slices of a thread that
overlap without one lying in the other are taken apart there, so there must be none.
"""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

SCENARIO = """
title = "two applications"
clients.nodes = 4
servers = { nodes = 3, device = "DEVICE", gate = { scheduler = "fifo", depth = 4 } }
network = { latency = "50us", jitter = "100us" }
app = [
    { name = "reader", processes = 3, pattern = "strided", op = "read", bytes = "1MiB",
      request = "64KiB" },
    { name = "writer", processes = 2, pattern = "contiguous", op = "write", bytes = "1MiB",
      request = "256KiB", iterations = 2, compute = "5ms" },
]
"""

Event = dict[str, Any]
Place = tuple[int, int]


def simulated(program: Path, tmp_path: Path, device: str) -> tuple[list[Event], dict[str, Any]]:
    """The events of a run, and its report."""
    (tmp_path / "s.toml").write_text(SCENARIO.replace("DEVICE", device), encoding="utf-8")
    command = [str(program), "sim", "s.toml", "--trace", "run.json", "--json", "report.json"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    trace = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert trace["displayTimeUnit"] in {"ms", "ns"}
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    return trace["traceEvents"], report


def is_event(event: Event) -> bool:
    """Whether an event has the fields of its kind, and no others."""
    common = isinstance(event["name"], str) and all(isinstance(event[key], int) for key in ("pid", "tid"))
    if event["ph"] == "M":
        known = event["name"] in {"process_name", "thread_name"}
        return common and known and set(event["args"]) == {"name"} and isinstance(event["args"]["name"], str)
    fields = {"name", "ph", "pid", "tid", "ts", "dur"}
    times = all(isinstance(event[key], (int, float)) and event[key] >= 0 for key in ("ts", "dur"))
    return common and event["ph"] == "X" and set(event) - {"args"} == fields and times


def overlaps(slices: list[Event]) -> list[tuple[Event, Event]]:
    """Slices of one thread that overlap, but do not lie in each other."""
    found = []
    open_until: list[tuple[int, Event]] = []
    for event in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
        # Times are whole nanoseconds, written as microseconds.
        start = round(event["ts"] * 1000)
        end = start + round(event["dur"] * 1000)
        while open_until and open_until[-1][0] <= start:
            open_until.pop()
        if open_until and open_until[-1][0] < end:
            found.append((open_until[-1][1], event))
        open_until.append((end, event))
    return found


@pytest.mark.parametrize("device", ["hdd", "edel:slots=4"])
def test_a_viewer_can_take_it(program: Path, tmp_path: Path, device: str) -> None:
    events, report = simulated(program, tmp_path, device)
    assert [event for event in events if not is_event(event)] == []
    names: dict[tuple[str, Place], str] = {}
    slices: dict[Place, list[Event]] = defaultdict(list)
    for event in events:
        place = (event["pid"], event["tid"])
        if event["ph"] == "M":
            place = (event["pid"], 0 if event["name"] == "process_name" else event["tid"])
            assert (event["name"], place) not in names, "named twice"
            names[event["name"], place] = event["args"]["name"]
        else:
            slices[place].append(event)
    for place, of_place in slices.items():
        assert ("thread_name", place) in names
        assert ("process_name", (place[0], 0)) in names
        assert overlaps(of_place) == []
    processes = {name for (kind, _), name in names.items() if kind == "process_name"}
    assert processes == {"server 0", "server 1", "server 2", "reader", "writer"}
    # What the trace says of the run is what the report says.
    served = [event for of_place in slices.values() for event in of_place if "args" in event]
    moved = {"read": 0, "write": 0}
    for event in served:
        moved[event["args"]["op"]] += event["args"]["bytes"]
    assert moved == {"read": 3 << 20, "write": 4 << 20}
    [point] = report["points"]
    makespan = next(metric for metric in point["metrics"] if metric["name"] == "makespan")["values"][0]
    last = max(event["ts"] + event["dur"] for of_place in slices.values() for event in of_place)
    assert last == pytest.approx(makespan * 1e6)


def test_overlaps_are_found() -> None:
    def at(start: float, dur: float) -> Event:
        return {"ts": start, "dur": dur}

    assert overlaps([at(0, 10), at(2, 3), at(5, 5), at(10, 1)]) == []
    assert overlaps([at(0, 10), at(9.999, 1)]) == [(at(0, 10), at(9.999, 1))]
