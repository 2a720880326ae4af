"""Turns of threads and processes, by a real coordinator."""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_SECONDS, PROGRAMS, Coordinator, Rival, eventually, started

import iogate


def test_a_block_is_a_turn(coordinator: Coordinator, place: str) -> None:
    turn = iogate.turn(place, bytes=2**30, weight=2)
    assert (turn.token, turn.waited, turn.is_valid) == (0, 0.0, False)
    with turn as entered:
        assert entered is turn
        assert turn.is_valid
        assert coordinator.holding(place) == 1
        assert (turn.token > 0, turn.share, turn.waited > 0) == (True, 1.0, True)
        assert repr(turn) == f"<iogate.turn {place!r}, held, token {turn.token}>"
    first = turn.token
    assert not turn.is_valid
    assert coordinator.holding(place) == 0
    with turn:
        assert turn.token > first


def test_a_block_that_raises_ends_its_turn(coordinator: Coordinator, place: str) -> None:
    with pytest.raises(KeyError), iogate.turn(place):
        raise KeyError
    assert coordinator.holding(place) == 0


def test_paths_of_one_file_system_are_one_place(coordinator: Coordinator, tmp_path: Path) -> None:
    with iogate.turn(tmp_path / "run1" / "model.pt"):
        (holder,) = (one for one in coordinator.status()["holders"] if "test_" not in one["place"])
        with pytest.raises(iogate.AlreadyClaimed, match=r"claimed .* already"), iogate.turn(str(tmp_path)):
            pass
    assert holder["place"].split(":")[1].startswith("/")


@pytest.mark.usefixtures("rival")
def test_who_does_not_want_to_wait_for_ever(coordinator: Coordinator, place: str) -> None:
    with pytest.raises(iogate.TurnTimeout) as raised, iogate.turn(place, timeout=0.1):
        pass
    assert isinstance(raised.value, TimeoutError)
    assert raised.value.errno == errno.ETIMEDOUT
    assert coordinator.waiting(place) == 0


def test_a_thread_waits_while_others_run(coordinator: Coordinator, place: str, rival: Rival) -> None:
    tokens: list[int] = []

    def wait() -> None:
        with iogate.turn(place) as turn:
            tokens.append(turn.token)

    thread = threading.Thread(target=wait)
    thread.start()
    # This thread could not see this if the other one kept the interpreter to itself.
    eventually(lambda: coordinator.waiting(place) == 1)
    assert tokens == []
    rival.release()
    thread.join(PATIENCE_SECONDS)
    assert tokens[0] > rival.token


@pytest.mark.usefixtures("coordinator")
def test_each_thread_has_its_own_turn(place: str) -> None:
    inside: list[int] = []
    tokens: list[int] = []
    shared = iogate.turn(place)

    # A decorated function has a turn of its own for each call.
    @shared
    def write(number: int) -> None:
        inside.append(number)
        assert inside == [number]
        threading.Event().wait(0.001)
        inside.remove(number)

    def work(number: int) -> None:
        for _ in range(5):
            write(number)
            with iogate.turn(place) as turn:
                assert inside == []
                tokens.append(turn.token)

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert len(tokens) == 20
    assert tokens == sorted(set(tokens))


@pytest.mark.usefixtures("coordinator")
def test_threads_have_their_turns_in_order(place: str) -> None:
    order: list[int] = []

    def work(number: int) -> None:
        with iogate.turn(place):
            order.append(number)

    threads = [threading.Thread(target=work, args=[number]) for number in range(5)]
    with iogate.turn(place):
        for count, thread in enumerate(threads, start=2):
            thread.start()
            eventually(lambda count=count: len(iogate._line._entries) == count)  # type: ignore[misc]
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert order == [0, 1, 2, 3, 4]


@pytest.mark.usefixtures("coordinator")
def test_who_would_wait_for_itself_is_told(place: str) -> None:
    with iogate.turn(place):
        with pytest.raises(iogate.AlreadyClaimed, match="this thread has claimed") as raised:
            iogate.acquire(place)
        assert raised.value.errno == errno.EDEADLK
        with iogate.turn(place + " of others"):
            pass
    with iogate.turn(place):
        pass


@pytest.mark.usefixtures("coordinator")
def test_an_object_is_one_turn_at_a_time(place: str) -> None:
    with iogate.turn(place) as turn, pytest.raises(RuntimeError, match="is in use"):
        turn.acquire()
    with turn:
        pass


def test_targets_apart_are_no_hindrance(coordinator: Coordinator, place: str) -> None:
    with iogate.turn(place, targets=[1, 0]):
        with iogate.turn(place, targets=range(2, 4)):
            assert coordinator.holding(place) == 2
        with pytest.raises(iogate.AlreadyClaimed), iogate.turn(place, targets={1, 2}):
            pass


def test_without_a_block(coordinator: Coordinator, place: str) -> None:
    held = iogate.acquire(place, timeout=PATIENCE_SECONDS)
    assert held.is_valid
    iogate.release(held)
    iogate.release(held)
    assert coordinator.holding(place) == 0


def test_what_is_no_turn_is_not_released() -> None:
    with pytest.raises(TypeError, match="release: expected a turn, as"):
        iogate.release(None)  # type: ignore[arg-type]


def test_a_turn_that_is_forgotten_ends(coordinator: Coordinator, place: str) -> None:
    with pytest.warns(ResourceWarning, match="was not released"):
        iogate.acquire(place)
        gc.collect()
    assert coordinator.holding(place) == 0
    with iogate.turn(place, timeout=PATIENCE_SECONDS):
        pass


def test_a_turn_that_was_lost_is_an_error(coordinator: Coordinator, place: str) -> None:
    with pytest.raises(iogate.TurnLost, match="others may have written") as raised:  # noqa: SIM117
        with iogate.turn(place) as turn:
            coordinator.evict(turn.token)
            # The next time that it is renewed.
            eventually(lambda: not turn.is_valid)
    assert raised.value.errno == errno.ESTALE
    with iogate.turn(place):
        pass


def test_a_turn_that_was_lost_may_be_none(coordinator: Coordinator, place: str) -> None:
    with pytest.warns(RuntimeWarning, match="others may have written") as warned:  # noqa: SIM117
        with iogate.turn(place, lost="warn") as turn:
            coordinator.evict(turn.token)
    assert warned[0].filename == __file__
    with iogate.turn(place, lost="ignore") as turn:
        coordinator.evict(turn.token)


def test_what_a_block_raises_is_what_is_seen(coordinator: Coordinator, place: str) -> None:
    with pytest.warns(RuntimeWarning, match="others may have written"):  # noqa: SIM117
        with pytest.raises(KeyError):
            with iogate.turn(place) as turn:
                coordinator.evict(turn.token)
                raise KeyError


@pytest.mark.usefixtures("coordinator")
def test_a_function_keeps_its_name_and_value(place: str) -> None:
    @iogate.turn(place)
    def save(state: str, *, step: int) -> str:
        """Saves."""
        with pytest.raises(iogate.AlreadyClaimed):
            iogate.acquire(place)
        return f"{state} {step}"

    assert (save.__name__, save.__doc__) == ("save", "Saves.")
    assert save("a", step=1) == "a 1"
    assert save("b", step=2) == "b 2"


def test_a_generator_is_refused() -> None:
    def pieces() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="is a generator"):
        iogate.turn("scratch")(pieces)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"bytes": -1}, "bytes: expected a number from 0 on, below 2**64, found -1"),
        ({"weight": 0}, "weight: expected a number from 1 on, below 2**32, or None, found 0"),
        ({"timeout": 0}, "timeout: expected seconds, more than 0, or None, found 0"),
        ({"timeout": float("nan")}, "timeout: expected seconds, more than 0, or None, found nan"),
        (
            {"targets": []},
            "targets: expected at least one number from 0 to 1048575, or None for all, found ()",
        ),
        (
            {"targets": [-1]},
            "targets: expected at least one number from 0 to 1048575, or None for all, found (-1,)",
        ),
        (
            {"targets": [0, 2**20]},
            "targets: expected at least one number from 0 to 1048575, or None for all, found (0, 1048576)",
        ),
        (
            {"policy": "locks"},
            "policy: expected 'lock', 'backoff', 'lock+backoff', 'none' or None, found 'locks'",
        ),
        ({"lost": "never"}, "lost: expected 'raise', 'warn' or 'ignore', found 'never'"),
        ({"place_or_path": ""}, "place_or_path: expected a path, or the name of a place, found ''"),
        (
            {"place_or_path": "a\0b"},
            r"place_or_path: expected a path, or the name of a place, found 'a\x00b'",
        ),
    ],
)
def test_arguments_that_no_turn_can_have(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as raised:
        iogate.turn(**{"place_or_path": "scratch", **arguments})
    assert str(raised.value) == told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"bytes": "1"}, "bytes: expected a number from 0 on, below 2**64, found '1'"),
        ({"weight": "1"}, "weight: expected a number from 1 on, below 2**32, or None, found '1'"),
        ({"timeout": "10"}, "timeout: expected seconds, more than 0, or None, found '10'"),
    ],
)
def test_arguments_of_a_wrong_type(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError) as raised:
        iogate.turn("scratch", **arguments)
    assert str(raised.value) == told


def test_a_path_of_bytes_is_a_path() -> None:
    with iogate.turn(b"/tmp", policy="none") as turn:
        assert turn.is_valid


def test_what_the_coordinator_refuses(coordinator: Coordinator, place: str) -> None:
    with pytest.raises(iogate.TurnError) as raised, iogate.turn("x" * 70_000):
        pass
    assert raised.value.errno == errno.EINVAL
    assert coordinator.waiting(place) == 0


@pytest.mark.usefixtures("coordinator")
def test_a_policy_of_ones_own(coordinator: Coordinator, place: str) -> None:
    with iogate.turn(place, policy="none") as turn:
        assert turn.token == 0
        assert coordinator.holding(place) == 0
    with iogate.turn(place, policy="lock", strict=True) as turn:
        assert turn.token > 0


def test_ctrl_c_ends_a_wait(coordinator: Coordinator, place: str, rival: Rival) -> None:
    with started("patient.py", place, environment=coordinator.environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        eventually(lambda: coordinator.waiting(place) == 1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)
    assert coordinator.waiting(place) == 0
    rival.release()


@pytest.mark.parametrize(
    ("strict", "variable", "told"),
    [
        ("default", "0", "token 0 valid True\n"),
        ("default", "1", f"unreachable {errno.EHOSTUNREACH} True\n"),
        ("strict", "0", f"unreachable {errno.EHOSTUNREACH} True\n"),
    ],
)
def test_without_a_coordinator(
    coordinator: Coordinator, place: str, strict: str, variable: str, told: str
) -> None:
    environment = {**coordinator.environment, "IOGATE_COORD": "unix:/nonexistent/coord"}
    environment |= {"IOGATE_PATIENCE": "100ms", "IOGATE_STRICT": variable}
    with started("alone.py", place, strict, environment=environment) as process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert out == told
    assert ("going on without taking turns" in err) == out.startswith("token")


def test_children_have_turns_of_their_own(coordinator: Coordinator, place: str) -> None:
    with started("children.py", place, environment=coordinator.environment) as process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert err == ""
    assert out.splitlines() == [
        "fork ['late', 'late']",
        "valid False; alone late",
        "spawn ['late', 'late']",
        "valid True",
        "tokens rise True",
    ]


def test_a_subinterpreter_is_refused(coordinator: Coordinator, place: str) -> None:
    program = PROGRAMS / "subinterpreter.py"
    command = [sys.executable, str(program), place]
    done = subprocess.run(
        command,
        env=coordinator.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.stdout.splitlines() == ["refused", "refused"], done.stderr


@pytest.mark.usefixtures("coordinator")
def test_probing_takes_a_directory(tmp_path: Path) -> None:
    # Nothing is calibrated here, so there is nothing that it could be compared with.
    assert iogate.probe(tmp_path) == 0


def test_a_program_writes_although_the_coordinator_can_keep_no_claims(program: Path, tmp_path: Path) -> None:
    def without_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    address = f"unix:{tmp_path}/socket"
    command = [str(program), "coord", "serve", "--listen", address, "--state", str(tmp_path / "state")]
    with subprocess.Popen(
        [*command, "--with-parent"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=without_room,  # noqa: PLW1509
    ) as process:
        assert process.stdout is not None
        assert any(line.strip() == "ready" for line in process.stdout)
        environment = {**os.environ, "IOGATE_COORD": address}
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / "many.py"), "scratch"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        process.kill()
    assert done.returncode == 0, done.stderr
    assert "can keep no claims" in done.stderr
    assert "going on without" in done.stderr
