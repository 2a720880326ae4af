"""Schedulers that are written in Python, in simulated gates and in those driven by hand."""

from __future__ import annotations

import runpy
import traceback
from pathlib import Path
from typing import Any, Callable

import pytest
from conftest import ROOT, built, printed
from test_simulation import TEXT

import iogate

EXAMPLE = ROOT / "python/examples/figure5.py"


@pytest.fixture(autouse=True)
def extension() -> None:
    built("python/iogate/_native.abi3.so", "python/build")


class Fifo:
    """By arrival; has what it was told."""

    def __init__(self) -> None:
        self.waiting: list[iogate.Request] = []

    def insert(self, request: iogate.Request) -> None:
        self.waiting.append(request)

    def pick(self, now: float) -> Any:
        return self.waiting.pop(0)


def simulated(scheduler: Callable[[], Any], **settings: Any) -> iogate.Results:
    """One in front of the servers."""
    return iogate.simulate(
        TEXT,
        set={"servers.gate.scheduler": "own:mine", **settings},
        schedulers={"mine": scheduler},
        seeds=1,
    )


def test_figure_5_of_aioli() -> None:
    figure5 = runpy.run_path(str(EXAMPLE))["figure5"]
    rows = figure5(quick=True).rows()
    scheduler, request, op = "servers.gate.scheduler", "app.ior.request", "app.ior.op"
    bandwidth: dict[tuple[str, str, str], float] = {}
    for row in rows:
        at = (row[op], row[request], row[scheduler])
        bandwidth[at] = bandwidth.get(at, 0.0) + row["bandwidth"]
    cells = {(op, request) for op, request, _ in bandwidth}
    assert len(cells) == 12
    for cell in cells:
        fifo, aioli, sweep = (bandwidth[(*cell, name)] for name in ("fifo", "aioli", "own:sweep"))
        # What the paper says of aIOLi: the disk's own speed, whatever the granularity.
        assert sweep > fifo
        assert sweep > 0.8 * aioli
    small = ("read", "8KiB")
    assert bandwidth[(*small, "own:sweep")] > 4 * bandwidth[(*small, "fifo")]
    layers = figure5(quick=True).to_dict()["points"][2]["layers"]
    assert [layer["scheduler"] for layer in layers] == ["own:sweep"]


def test_the_example_runs_as_a_program() -> None:
    said = printed(EXAMPLE, "--quick")
    assert "own:sweep" in said


def test_it_decides_as_the_same_one_of_iogate_does() -> None:
    results = iogate.simulate(
        TEXT, set={"servers.gate.scheduler": ["fifo", "own:mine"]}, schedulers={"mine": Fifo}
    )
    for of in ("run", "app"):
        rows = [{**row, "servers.gate.scheduler": ""} for row in results.rows(of)]
        assert rows[: len(rows) // 2] == rows[len(rows) // 2 :]


def test_each_gate_of_each_run_has_one_of_its_own() -> None:
    made: list[Fifo] = []

    def make() -> Fifo:
        made.append(Fifo())
        return made[-1]

    iogate.simulate(TEXT, set={"servers.gate.scheduler": "own:mine"}, schedulers={"mine": make}, seeds=2)
    # Two servers; with both applications, and with each of them alone.
    assert len(made) == 2 * 2 * 3


def test_it_sees_requests() -> None:
    seen: list[iogate.Request] = []

    class Sees(Fifo):
        def insert(self, request: iogate.Request) -> None:
            super().insert(request)
            seen.append(request)

        def pick(self, now: float) -> Any:
            assert now >= self.waiting[0].arrival
            return super().pick(now)

    simulated(Sees)
    assert {request.op for request in seen} == {"read", "write"}
    assert {request.app for request in seen} == {1, 2}
    assert all(request.end == request.offset + request.bytes for request in seen)
    assert "bytes at" in repr(seen[0])


class FailsInInsert(Fifo):
    """Raises something of its own."""

    def insert(self, request: iogate.Request) -> None:
        raise LookupError("no place")


class FailsInPick(Fifo):
    """The same later."""

    def pick(self, now: float) -> Any:
        if len(self.waiting) > 1:
            self.helper()
        return super().pick(now)

    def helper(self) -> None:
        raise LookupError("no place")


class FailsInCompleted(Fifo):
    """The same at the end."""

    def completed(self, now: float, file: int, op: str, end: int) -> None:
        raise LookupError("no place")


@pytest.mark.parametrize(
    ("scheduler", "place"),
    [(FailsInInsert, "insert"), (FailsInPick, "helper"), (FailsInCompleted, "completed")],
)
def test_an_exception_ends_the_run_with_its_traceback(scheduler: type[Fifo], place: str) -> None:
    with pytest.raises(LookupError, match="no place") as raised:
        simulated(scheduler)
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    assert names[-1] == place
    assert "simulate" in names


def test_so_does_one_of_making_it() -> None:
    def broken() -> Fifo:
        raise LookupError("no place")

    with pytest.raises(LookupError, match="no place"):
        simulated(broken)


class Interrupted(Fifo):
    """What a handler of a signal raises."""

    def pick(self, now: float) -> Any:
        raise KeyboardInterrupt


def test_what_is_no_error_ends_it_too() -> None:
    with pytest.raises(KeyboardInterrupt):
        simulated(Interrupted)


def picks(pick: Callable[[Fifo, float], Any], **more: Any) -> type[Fifo]:
    """A scheduler that picks so."""
    return type("Picks", (Fifo,), {"pick": pick, **more})


FOREIGN: list[iogate.Request] = []


def keep(self: Fifo, now: float) -> Any:
    """One of another gate, once there is one."""
    FOREIGN.append(self.waiting[0])
    return FOREIGN[0]


@pytest.mark.parametrize(
    ("scheduler", "error", "said"),
    [
        (picks(lambda self, now: [self.waiting[0]] * 2), RuntimeError, "and each once"),
        (picks(lambda self, now: self.waiting[0]), RuntimeError, "which does not wait here"),
        (picks(lambda self, now: self.waiting), RuntimeError, "expected the same file and operation"),
        (picks(lambda self, now: []), RuntimeError, "it picked no requests"),
        (picks(lambda self, now: now), RuntimeError, "expected a time after now"),
        (picks(lambda self, now: 0), RuntimeError, "expected a time after now"),
        (picks(lambda self, now: -1.0), ValueError, "not negative"),
        (picks(lambda self, now: float("nan")), ValueError, "expected seconds"),
        (picks(lambda self, now: "first"), TypeError, "or None, found str"),
        (picks(lambda self, now: [self.waiting[0], 7]), TypeError, "or None, found int"),
        (picks(lambda self, now: object()), TypeError, "or None, found object"),
        (picks(lambda self, now: None), RuntimeError, "nothing can happen any more"),
        (picks(keep), ValueError, "waits at another gate"),
        (picks(Fifo.pick, depth=0), ValueError, "expected a number from 1 on"),
        (picks(Fifo.pick, insert=None), TypeError, "without insert"),
        (object, TypeError, "insert(request) and pick(now)"),
    ],
)
def test_what_it_must_not_do(scheduler: Callable[[], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error) as raised:
        simulated(scheduler)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_it_runs_in_one_thread() -> None:
    with pytest.raises(ValueError, match="runs in the thread that calls"):
        iogate.simulate(
            TEXT, set={"servers.gate.scheduler": "own:mine"}, schedulers={"mine": Fifo}, threads=2
        )
    with pytest.raises(ValueError, match="did you mean 'mine'"):
        iogate.simulate(TEXT, set={"servers.gate.scheduler": "own:mime"}, schedulers={"mine": Fifo})


def test_it_schedules_a_gate_by_hand() -> None:
    class Backwards(Fifo):
        def pick(self, now: float) -> Any:
            return self.waiting.pop() if now >= 2.0 else 2.0

    gate = iogate.Gate(Backwards(), clock=lambda: 1.0)
    numbers = [gate.submit(5, "read", offset, 10, tag=str(offset)) for offset in (0, 100, 200)]
    assert gate.next() == 2.0
    served = []
    while (dispatch := gate.next(now=2.0)) is not None:
        assert isinstance(dispatch, iogate.Dispatch)
        served += [(part.request, part.tag) for part in dispatch.parts]
        gate.complete(dispatch, now=2.0)
    assert served == [(number, str(100 * number)) for number in reversed(numbers)]
    assert (gate.scheduler, gate.stats()["scheduler"]) == ("own", "own")


def test_a_gate_by_hand_goes_on_without_it() -> None:
    gate = iogate.Gate(FailsInPick(), depth=4)
    gate.submit(1, "read", 0, 10)
    gate.submit(1, "read", 50, 10)
    with pytest.raises(LookupError, match="no place") as raised:
        gate.next()
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "helper"
    with pytest.raises(RuntimeError, match="LookupError: no place"):
        gate.next()
    gate.switch("fifo")
    assert [
        dispatch.offset for dispatch in iter(gate.next, None) if isinstance(dispatch, iogate.Dispatch)
    ] == [
        0,
        50,
    ]


def test_it_cannot_use_the_gate_that_asks_it() -> None:
    class Calls(Fifo):
        gate: iogate.Gate

        def pick(self, now: float) -> Any:
            self.gate.submit(1, "read", 0, 1)

    scheduler = Calls()
    scheduler.gate = iogate.Gate(scheduler)
    scheduler.gate.submit(1, "read", 0, 1)
    with pytest.raises(RuntimeError, match="cannot use it meanwhile"):
        scheduler.gate.next()


def test_the_documentation_has_the_example() -> None:
    text = (ROOT / "docs/python-gate.md").read_text(encoding="utf-8")
    assert Path(EXAMPLE).read_text(encoding="utf-8").split('"""\n\n', 1)[1] in text
