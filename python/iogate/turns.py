"""Turns: `with iogate.turn("/scratch"): ...`, the same for `asyncio`, and as a decorator.

Settings come from the environment, as `iogate run` sets them: `IOGATE_COORD` and its sisters, which are in
docs/turns.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import inspect
import os
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, TypeVar, cast

from iogate import _line
from iogate._wish import LossPolicy, Place, Policy, Wish, naming, text_of
from iogate.errors import AlreadyClaimed, TurnError, TurnLost, TurnTimeout

if TYPE_CHECKING:
    from iogate import _native

F = TypeVar("F", bound=Callable[..., Any])


class Turn:
    """A turn on a file system: for `with` and `async with`, one after the other, and as a decorator.

    Of one process, too, one thread or task at a time has the turn; those of one job (`IOGATE_JOB`, or what
    the batch system says) have it together. A child of `fork` has none of its parent's turns.

    Args:
        place_or_path: A path in the file system, which need not exist yet; or the name of a place.
        bytes: Bytes that will be written; 0 is unknown.
        weight: The share, where the coordinator goes by weights; `None` is as `IOGATE_WEIGHT` says.
        timeout: Seconds to wait for the turn at most; `None` is as long as it takes.
        targets: Targets (data servers) of the file system; `None` is all of them.
        policy: How to wait; `None` is as `IOGATE_POLICY` says.
        strict: Whether there is no turn without a coordinator, or the turn then begins without one; `None` is
            as `IOGATE_STRICT` says.
        lost: What to do at the end if the turn was lost meanwhile: raise `TurnLost`, warn, or nothing. What
            a block itself has raised is not overruled: then there is a warning.

    Raises:
        ValueError: An argument is none that a turn can have. Taking the turn raises what is wrong besides.
    """

    def __init__(  # noqa: PLR0913
        self,
        place_or_path: Place,
        *,
        bytes: int = 0,
        weight: int | None = None,
        timeout: float | None = None,
        targets: Iterable[int] | None = None,
        policy: Policy | None = None,
        strict: bool | None = None,
        lost: LossPolicy = "raise",
    ) -> None:
        """Takes no turn yet; see the class."""
        chosen = None if targets is None else tuple(sorted(set(targets)))
        self._wish = Wish(text_of(place_or_path), bytes, weight, timeout, chosen, policy, strict, lost)
        self._in_use = threading.Lock()
        self._pid = os.getpid()
        self._entry: _line.Entry | None = None
        self._held: _native.Turn | None = None
        self._token = 0
        self._waited = 0.0
        self._share = 1.0

    @property
    def token(self) -> int:
        """The fencing token of the last turn: larger than all before it; 0 if no coordinator gave it."""
        return self._token

    @property
    def is_valid(self) -> bool:
        """Whether this is a turn just now: it has begun, has not ended, and is not lost."""
        return self._held is not None and self._pid == os.getpid() and self._held.is_valid()

    @property
    def waited(self) -> float:
        """Seconds from asking for the turn, or the last one, to its beginning."""
        return self._waited

    @property
    def share(self) -> float:
        """The part of the throughput that it may use, at most 1, where the coordinator lets several in."""
        return self._share

    def acquire(self) -> Turn:
        """Waits for the turn in this thread. Prefer `with`, which cannot forget to end it.

        Raises:
            TurnError: There is no turn, and why.
            RuntimeError: This object has one already.
        """
        since = time.monotonic()
        ready = threading.Event()
        with self._beginning():
            wish = self._wish.found()
            self._stand_in_line(wish, ready.set, blocks=True)
            if not ready.wait(self._left(since)):
                raise self._late()
            with naming():
                self._begin(wish.take(self._left(since)), since)
        return self

    def release(self) -> None:
        """Ends the turn; without one it does nothing.

        Raises:
            TurnLost: It was lost meanwhile.
        """
        try:
            self._release()
        except TurnLost as lost:
            self._report(lost)

    def __enter__(self) -> Turn:
        """Waits for the turn, and gives itself."""
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the turn."""
        try:
            self._release()
        except TurnLost as lost:
            self._report(lost, error)

    async def __aenter__(self) -> Turn:
        """Waits for the turn, and lets other tasks run meanwhile. Who is cancelled gives up the claim."""
        since = time.monotonic()
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        with self._beginning():
            # A file system may take its time to say which one it is.
            wish = await asyncio.to_thread(self._wish.found)
            self._stand_in_line(wish, functools.partial(_resolve_from_anywhere, ready), blocks=False)
            try:
                await asyncio.wait_for(ready, self._left(since))
            except asyncio.TimeoutError:
                raise self._late() from None
            with naming():
                work = wish.begin(self._left(since))
                try:
                    await _done(work)
                except BaseException:
                    work.cancel()
                    self._end_after(work)
                    raise
                self._begin(work.result(), since)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the turn, even if whoever waits for that is cancelled."""
        if (held := self._take()) is None:
            return
        try:
            with naming():
                work = held.begin_release()
                try:
                    await _done(work)
                except BaseException:
                    self._end_after(work)
                    raise
                work.result()
        except TurnLost as lost:
            self._report(lost, error)
        finally:
            self._end()

    def __call__(self, function: F) -> F:
        """A function, or a coroutine function, that takes such a turn whenever it is called.

        Raises:
            TypeError: A generator: its body would run after the turn.
        """
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function!r} is a generator: put `with iogate.turn(...)` into its body")

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def coroutine_in_turn(*args: Any, **kwargs: Any) -> Any:
                async with self._another():
                    return await function(*args, **kwargs)

            return cast("F", coroutine_in_turn)

        @functools.wraps(function)
        def in_turn(*args: Any, **kwargs: Any) -> Any:
            with self._another():
                return function(*args, **kwargs)

        return cast("F", in_turn)

    def __repr__(self) -> str:
        """What it is for, and how it stands."""
        state = "held" if self.is_valid else "not held"
        return f"<iogate.turn {self._wish.place!r}, {state}, token {self._token}>"

    def __del__(self) -> None:
        """Ends a turn that was forgotten."""
        # An instance whose arguments were wrong has nothing.
        if getattr(self, "_held", None) is not None and self._pid == os.getpid():
            warnings.warn(f"{self!r} was not released", ResourceWarning, source=self, stacklevel=2)
            with contextlib.suppress(TurnError):
                self._release()

    def _another(self) -> Turn:
        """One for the same, for a call of its own."""
        another = Turn(self._wish.place)
        another._wish = self._wish
        return another

    @contextlib.contextmanager
    def _beginning(self) -> Iterator[None]:
        """Nobody else uses this object until the turn ends, or there is none."""
        if self._pid != os.getpid():
            # What the parent has of it stays the parent's.
            self._in_use, self._entry, self._held, self._pid = threading.Lock(), None, None, os.getpid()
        if not self._in_use.acquire(blocking=False):
            raise RuntimeError(
                f"{self!r} is in use: give each thread, task and block its own iogate.turn(...)"
            )
        try:
            yield
        except BaseException:
            self._end()
            raise

    def _stand_in_line(self, wish: _native.Wish, ready: Callable[[], None], *, blocks: bool) -> None:
        if not wish.locks:
            ready()
            return
        self._entry = _line.Entry(wish.place, self._wish.targets or (), wish.has_party, blocks, ready)
        if not _line.enter(self._entry):
            self._entry = None
            who = "thread" if blocks else "task"
            text = (
                f"this {who} has claimed {wish.place} already, and would wait for itself: end that turn first"
            )
            raise AlreadyClaimed(errno.EDEADLK, text)

    def _left(self, since: float) -> float | None:
        """What is left of the timeout, in seconds."""
        timeout = self._wish.timeout
        return None if timeout is None else max(timeout - (time.monotonic() - since), 0.0)

    def _late(self) -> TurnTimeout:
        return TurnTimeout(
            errno.ETIMEDOUT,
            f"no turn within {self._wish.timeout} s: others of this process are before this one",
        )

    def _begin(self, held: _native.Turn | None, since: float) -> None:
        assert held is not None, "work that takes a turn has one"
        self._held, self._token, self._share = held, held.token, held.share / 1000
        self._waited = time.monotonic() - since

    def _take(self) -> _native.Turn | None:
        """What this process has to end."""
        held, self._held = self._held, None
        return held if self._pid == os.getpid() else None

    def _end(self) -> None:
        """Makes room for others."""
        entry, self._entry = self._entry, None
        if entry is not None:
            _line.leave(entry)
        self._in_use.release()

    def _end_after(self, work: _native.Work) -> None:
        """Makes room for others once this work is over; only the interpreter's end waits for that."""
        entry, self._entry = self._entry, None

        def leave() -> None:
            work.wait()
            if entry is not None:
                _line.leave(entry)

        threading.Thread(target=leave, name="iogate-turn").start()

    def _release(self) -> None:
        if (held := self._take()) is None:
            return
        try:
            with naming():
                held.release()
        finally:
            self._end()

    def _report(self, lost: TurnLost, raised: BaseException | None = None) -> None:
        """Says that the turn was lost; what the block itself has raised is not overruled."""
        if self._wish.lost == "raise" and raised is None:
            raise lost
        if self._wish.lost != "ignore":
            # At the line whose block ends.
            warnings.warn(str(lost), RuntimeWarning, stacklevel=3)


turn = Turn


def acquire(  # noqa: PLR0913
    place_or_path: Place,
    *,
    bytes: int = 0,
    weight: int | None = None,
    timeout: float | None = None,
    targets: Iterable[int] | None = None,
    policy: Policy | None = None,
    strict: bool | None = None,
    lost: LossPolicy = "raise",
) -> Turn:
    """Waits for a turn, which `release` ends; the arguments and errors are those of `Turn`."""
    wanted = Turn(
        place_or_path,
        bytes=bytes,
        weight=weight,
        timeout=timeout,
        targets=targets,
        policy=policy,
        strict=strict,
        lost=lost,
    )
    return wanted.acquire()


def release(held: Turn) -> None:
    """Ends a turn.

    Raises:
        TurnLost: It was lost meanwhile.
        TypeError: That is no turn.
    """
    if not isinstance(held, Turn):
        raise TypeError(f"release: expected a turn, as iogate.acquire gives one, found {held!r}")
    held.release()


def probe(path: str | os.PathLike[str]) -> int:
    """Probes the file system of a path, and backs off until it is quiet or has been probed often enough.

    Returns:
        How often it was looked whether it is quiet; 0 if it is not calibrated, so that nothing can be told.

    Raises:
        TurnError: The directory cannot be written to; if strict, also: the file system is not calibrated.
    """
    wish = Wish(os.path.join(".", os.fspath(path))).found()
    with naming():
        return wish.probe()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _resolve_from_anywhere(future: asyncio.Future[None]) -> None:
    # Once its loop has been closed, nobody waits for it any more.
    with contextlib.suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(_resolve, future)


def _done(work: _native.Work) -> asyncio.Future[None]:
    """Resolved when the work is done."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    loop.add_reader(work.fileno(), _resolve, done)
    done.add_done_callback(lambda _: loop.remove_reader(work.fileno()))
    return done
