"""Turns of tasks, by a real coordinator."""

from __future__ import annotations

import asyncio

import pytest
from conftest import PATIENCE_SECONDS, Coordinator, Rival, eventually

import iogate


async def eventually_waiting(coordinator: Coordinator, place: str, count: int) -> None:
    """Waits until so many claims wait; other tasks run."""
    await asyncio.to_thread(eventually, lambda: coordinator.waiting(place) == count)


@pytest.mark.usefixtures("coordinator")
def test_tasks_take_turns(place: str) -> None:
    inside: list[int] = []
    tokens: list[int] = []

    async def write(number: int) -> None:
        async with iogate.turn(place) as turn:
            inside.append(number)
            # More tasks than the default executor has threads: those that wait leave them to those that work.
            await asyncio.to_thread(lambda: None)
            assert inside == [number]
            inside.remove(number)
            tokens.append(turn.token)
        assert not turn.is_valid

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(*map(write, range(40))), PATIENCE_SECONDS)

    asyncio.run(main())
    assert len(tokens) == 40
    assert tokens == sorted(set(tokens))


def test_others_run_while_a_task_waits(coordinator: Coordinator, place: str, rival: Rival) -> None:
    async def write() -> int:
        async with iogate.turn(place) as turn:
            return turn.token

    async def main() -> None:
        task = asyncio.create_task(write())
        await eventually_waiting(coordinator, place, 1)
        assert not task.done()
        await asyncio.to_thread(rival.release)
        assert await task > rival.token

    asyncio.run(main())


def test_who_is_cancelled_gives_up_its_claim(coordinator: Coordinator, place: str, rival: Rival) -> None:
    async def write() -> None:
        async with iogate.turn(place):
            raise AssertionError

    async def main() -> None:
        first, second = asyncio.create_task(write()), asyncio.create_task(write())
        await eventually_waiting(coordinator, place, 1)
        for task in (second, first):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await eventually_waiting(coordinator, place, 0)
        # One who comes while the claim is being given up waits for that, as for any turn of the process.
        third = asyncio.create_task(write())
        await eventually_waiting(coordinator, place, 1)
        third.cancel()
        again = iogate.turn(place, timeout=PATIENCE_SECONDS)
        await asyncio.to_thread(rival.release)
        async with again:
            assert again.is_valid

    asyncio.run(main())


@pytest.mark.usefixtures("coordinator")
def test_who_is_cancelled_in_its_turn_ends_it(coordinator: Coordinator, place: str) -> None:
    async def write(begun: asyncio.Event) -> None:
        async with iogate.turn(place):
            begun.set()
            await asyncio.sleep(PATIENCE_SECONDS)

    async def main() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(write(begun))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert coordinator.holding(place) == 0

    asyncio.run(main())
    # Another event loop, and none.
    asyncio.run(asyncio.wait_for(iogate.turn(place)(_nothing)(), PATIENCE_SECONDS))
    with iogate.turn(place, timeout=PATIENCE_SECONDS):
        pass


async def _nothing() -> None:
    pass


@pytest.mark.usefixtures("rival")
def test_a_task_that_does_not_want_to_wait_for_ever(coordinator: Coordinator, place: str) -> None:
    async def main() -> None:
        with pytest.raises(iogate.TurnTimeout, match="no turn within"):
            async with iogate.turn(place, timeout=0.1):
                pass

        async def late() -> None:
            async with iogate.turn(place, timeout=0.1):
                pass

        # The second one has not even come to the coordinator.
        patient = asyncio.create_task(_wait(place))
        await eventually_waiting(coordinator, place, 1)
        with pytest.raises(iogate.TurnTimeout, match="others of this process"):
            await late()
        patient.cancel()

    asyncio.run(main())


async def _wait(place: str) -> None:
    async with iogate.turn(place):
        pass


@pytest.mark.usefixtures("coordinator")
def test_a_task_that_would_wait_for_itself_is_told(place: str) -> None:
    async def main() -> None:
        async with iogate.turn(place):
            with pytest.raises(iogate.AlreadyClaimed, match="this task has claimed"):
                async with iogate.turn(place):
                    pass
            # This would block the event loop, and with it the end of the task's turn.
            with pytest.raises(iogate.AlreadyClaimed, match="this thread has claimed"):
                iogate.acquire(place)

    asyncio.run(main())


def test_a_task_whose_turn_was_lost(coordinator: Coordinator, place: str) -> None:
    async def main() -> None:
        with pytest.raises(iogate.TurnLost):
            async with iogate.turn(place) as turn:
                await asyncio.to_thread(coordinator.evict, turn.token)
        with pytest.warns(RuntimeWarning, match="others may have written") as warned:
            async with iogate.turn(place, lost="warn") as turn:
                await asyncio.to_thread(coordinator.evict, turn.token)
        assert warned[0].filename == __file__
        with pytest.warns(RuntimeWarning), pytest.raises(KeyError):
            async with iogate.turn(place) as turn:
                await asyncio.to_thread(coordinator.evict, turn.token)
                raise KeyError

    asyncio.run(main())


@pytest.mark.usefixtures("coordinator")
def test_a_coroutine_function_has_a_turn_for_each_call(place: str) -> None:
    inside: list[int] = []

    @iogate.turn(place)
    async def save(number: int) -> int:
        inside.append(number)
        await asyncio.sleep(0)
        assert inside == [number]
        inside.remove(number)
        return number

    async def main() -> list[int]:
        return await asyncio.gather(*map(save, range(5)))

    assert asyncio.iscoroutinefunction(save)
    assert asyncio.run(main()) == [0, 1, 2, 3, 4]
