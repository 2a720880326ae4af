"""A gate, driven by hand."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from conftest import built

import iogate


@pytest.fixture(autouse=True)
def extension() -> None:
    built("python/iogate/_native.abi3.so", "python/build")


def dispatched(gate: iogate.Gate, now: float | None = None) -> iogate.Dispatch:
    """What it dispatches, which it does."""
    dispatch = gate.next(now)
    assert isinstance(dispatch, iogate.Dispatch)
    return dispatch


def test_contiguous_requests_leave_together() -> None:
    gate = iogate.Gate("to-agg", depth=2)
    assert [gate.submit(1, "read", 4096, 4096, tag="b"), gate.submit(1, "read", 0, 4096, tag="a")] == [0, 1]
    gate.submit(1, "write", 8192, 10, app=3)
    assert (len(gate), gate.queued, gate.in_service) == (3, 3, 0)
    dispatch = dispatched(gate)
    assert (dispatch.file, dispatch.op, dispatch.offset, dispatch.bytes) == (1, "read", 0, 8192)
    assert [(part.request, part.tag, part.offset, part.bytes) for part in dispatch.parts] == [
        (1, "a", 0, 4096),
        (0, "b", 4096, 4096),
    ]
    write = dispatched(gate)
    assert (write.op, write.app) == ("write", 3)
    gate.complete(dispatch)
    gate.complete(write, failed=True)
    assert gate.next() is None
    assert (len(gate), bool(gate)) == (0, True)
    stats = gate.stats()
    assert (stats["read"]["requests"], stats["read"]["dispatches"], stats["write"]["failed"]) == (2, 1, 1)
    assert repr(gate) == "<iogate.Gate to-agg, 0 requests, 0 dispatches>"


def test_time_is_what_the_caller_says() -> None:
    gate = iogate.Gate("aioli", contiguous_wait="10ms", quantum_base="64KiB")
    gate.submit(1, "read", 0, 65536, now=1.0)
    gate.submit(1, "read", 65536, 65536, now=1.0)
    gate.submit(2, "read", 0, 65536, now=1.0)
    times: list[float] = []
    served: list[tuple[int, int]] = []
    now = 1.0
    while len(gate) > 0:
        decision = gate.next(now)
        if isinstance(decision, float):
            assert decision > now
            times.append(decision)
            now = decision
            continue
        assert isinstance(decision, iogate.Dispatch)
        served.append((decision.file, decision.offset))
        now += 0.001
        gate.complete(decision, now=now)
    assert {file for file, _ in served} == {1, 2}
    assert gate.scheduler == "aioli(quantum_base=64KiB,contiguous_wait=10ms)"
    assert times == sorted(times)


def test_conflicts_go_in_order() -> None:
    gate = iogate.Gate("sjf", depth=8)
    gate.submit(1, "write", 0, 100)
    gate.submit(1, "read", 50, 10)
    write = dispatched(gate)
    assert (write.op, gate.next()) == ("write", None)
    gate.complete(write, bytes=100)
    assert dispatched(gate).op == "read"


def test_what_is_cancelled_is_not_handed_out() -> None:
    gate = iogate.Gate("to-agg", depth=4)
    numbers = [gate.submit(1, "read", 10 * index, 10) for index in range(3)]
    alone = gate.submit(2, "read", 0, 10)
    assert (gate.cancel(numbers[1]), gate.cancel(alone)) == (True, True)
    assert (gate.cancel(numbers[1]), gate.cancel(alone)) == (False, False)
    dispatch = dispatched(gate)
    assert [part.request for part in dispatch.parts] == [numbers[0], numbers[2]]
    assert gate.cancel(numbers[0]) is False
    assert (gate.next(), len(gate)) == (None, 3)
    gate.complete(dispatch)
    assert len(gate) == 0
    with pytest.raises(ValueError, match="expected one that was submitted"):
        gate.cancel(99)


def test_parts_of_a_split_request() -> None:
    gate = iogate.Gate("twins", depth=4, stripe=4096, targets=2, split=True, idle="skip", align="start")
    gate.submit(1, "read", 0, 8192, now=0.0)
    parts = []
    now = 0.0
    while len(gate) > 0:
        decision = gate.next(now)
        if isinstance(decision, iogate.Dispatch):
            parts += [(decision.target, part.offset, part.bytes) for part in decision.parts]
            gate.complete(decision, now=now)
        else:
            now = decision if decision is not None else now
    assert parts == [(0, 0, 4096), (1, 4096, 4096)]


def test_a_switch_keeps_what_waits() -> None:
    gate = iogate.Gate("fifo", depth=8)
    for offset in (8192, 0, 4096):
        gate.submit(1, "read", offset, 4096)
    gate.switch("sjf", age_max="1s")
    assert gate.scheduler == "sjf(age_max=1s)"
    assert dispatched(gate).bytes == 3 * 4096
    with pytest.raises(ValueError, match="did you mean 'sjf'"):
        gate.switch("sjff")
    assert gate.scheduler == "sjf(age_max=1s)"


def test_a_full_gate_and_a_closed_one() -> None:
    gate = iogate.Gate(queue=1)
    gate.submit(1, "read", 0, 1)
    with pytest.raises(BlockingIOError, match="retry when one completes"):
        gate.submit(1, "read", 1, 1)
    gate.complete(dispatched(gate))
    gate.submit(1, "read", 1, 1)
    gate.drain()
    with pytest.raises(RuntimeError, match="closed"):
        gate.submit(1, "read", 1, 1)


def test_mistakes_are_said() -> None:
    gate, other = iogate.Gate(), iogate.Gate()
    gate.submit(1, "read", 0, 10)
    dispatch = dispatched(gate)
    with pytest.raises(ValueError, match="expected one of this gate"):
        other.complete(dispatch)
    with pytest.raises(ValueError, match="at most 10"):
        gate.complete(dispatch, bytes=11)
    gate.complete(dispatch)
    with pytest.raises(ValueError, match="not complete yet"):
        gate.complete(dispatch)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"bytes": 0}, "at least one byte"),
        ({"offset": 2**64 - 1}, "2\\^64"),
        ({"op": "append"}, "expected 'read' or 'write', found 'append'"),
        ({"target": 2**20}, "target 1048576"),
        ({"now": -1.0}, "now: expected seconds, not negative"),
        ({"issued": float("inf")}, "issued: expected seconds"),
    ],
)
def test_requests_that_there_cannot_be(arguments: dict[str, Any], said: str) -> None:
    gate = iogate.Gate()
    with pytest.raises(ValueError, match=said):
        gate.submit(**{"file": 1, "op": "read", "offset": 0, "bytes": 10, **arguments})
    assert len(gate) == 0


@pytest.mark.parametrize(("name", "value"), [("file", -1), ("offset", 2**64), ("bytes", 2**40), ("app", -1)])
def test_a_number_that_is_out_of_range_has_its_name(name: str, value: int) -> None:
    gate = iogate.Gate()
    with pytest.raises(OverflowError, match=f"^{name} = {value} is out of range: expected 0 to "):
        request: dict[str, Any] = {"file": 1, "op": "read", "offset": 0, "bytes": 10, name: value}
        gate.submit(**request)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"scheduler": "ailoi"}, ValueError, "did you mean 'aioli'"),
        ({"scheduler": "fifo", "quantum": 3}, ValueError, "no parameter 'quantum'"),
        ({"scheduler": "hbrr", "quantum": 0}, ValueError, "out of range"),
        ({"depth": 0}, ValueError, "depth"),
        ({"targets": 0}, ValueError, "targets"),
        ({"queue": -1}, OverflowError, "^queue = -1 is out of range: expected 0 to 4294967295$"),
        ({"scheduler": "auto"}, ValueError, "^scheduler 'auto' needs an engine"),
        ({"scheduler": 3}, TypeError, "insert\\(request\\) and pick\\(now\\)"),
        ({"scheduler": None, "quantum": 3}, TypeError, "quantum"),
    ],
)
def test_gates_that_there_cannot_be(arguments: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        iogate.Gate(**arguments)


def test_threads_share_it() -> None:
    gate = iogate.Gate("sjf", depth=64)
    served: list[int] = []
    count, threads = 500, 4

    def work(file: int) -> None:
        for index in range(count):
            gate.submit(file, "read", 7 * index, 5)
            while isinstance(dispatch := gate.next(), iogate.Dispatch):
                served.extend(part.request for part in dispatch.parts)
                gate.complete(dispatch)

    workers = [threading.Thread(target=work, args=(file,)) for file in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(served) == list(range(threads * count))
    assert len(gate) == 0
