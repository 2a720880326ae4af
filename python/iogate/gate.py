"""A gate, driven by hand: what comes in is handed out in the order that a scheduler decides.

gate = iogate.Gate("to-agg", depth=2)
gate.submit(1, "read", 4096, 4096)
gate.submit(1, "read", 0, 4096)
dispatch = gate.next()
...  # carry out dispatch.parts
gate.complete(dispatch)
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Callable, Literal, Union, cast

from iogate._extension import extension
from iogate._numbers import U32_MAX, U64_MAX, within
from iogate.simulation import Scheduler

if TYPE_CHECKING:
    from iogate._native import Dispatch

Op = Literal["read", "write"]
"""What a request does to its bytes."""

Param = Union[str, int, float, bool]
"""The value of a scheduler's parameter, as in `quantum_base="64KiB"`."""


class Gate:
    """A gate with nothing in it.

    After anything that changes it (`submit`, `complete`, `switch`, `drain`), call `next` until it returns no
    dispatch. Each dispatch is to be carried out, in any order or at the same time, and then to be completed.
    The same calls at the same times give the same dispatches. Threads may share it.

    Args:
        scheduler: The name of a scheduler (`iogate schedulers` lists them), or an object that schedules.
        depth: Most dispatches that are not complete at once; a scheduler may want fewer.
        queue: Most requests in it at once.
        stripe: Bytes of a file on one target before the next one's.
        targets: How many targets files are striped over.
        clock: Says what time it is, in seconds that do not decrease, where a call has no `now`.
        params: The scheduler's parameters, as in `age_max="1s"`.

    Raises:
        ValueError: There is no such scheduler or parameter, or a value is out of range.
        TypeError: The object that is to schedule has no `insert` or `pick`.
    """

    def __init__(  # noqa: PLR0913
        self,
        scheduler: str | Scheduler = "fifo",
        *,
        depth: int = 1,
        queue: int = 65536,
        stripe: int = 65536,
        targets: int = 1,
        clock: Callable[[], float] = time.monotonic,
        **params: Param,
    ) -> None:
        """Makes it; nothing runs in the background."""
        sizes = {"depth": depth, "queue": queue, "targets": targets}
        for name, value in sizes.items():
            within(name, value, 0, U32_MAX)
        within("stripe", stripe, 0, U64_MAX)
        self._clock = clock
        self._gate = extension().Gate(
            scheduler, _texts(params), depth=depth, queue=queue, stripe=stripe, targets=targets
        )

    def submit(  # noqa: PLR0913
        self,
        file: int,
        op: Op,
        offset: int,
        bytes: int,
        *,
        app: int = 0,
        target: int | None = None,
        issued: float | None = None,
        tag: Any = None,
        now: float | None = None,
    ) -> int:
        """Takes a request for some bytes of a file.

        Args:
            file: Which file: any number below 2^64.
            op: "read" or "write".
            offset: The first byte.
            bytes: How many, at least one.
            app: The application that it belongs to; 0 is unknown.
            target: The target that has it, if not the one that the stripes say.
            issued: When it was issued, by the clock of who did, for schedulers that go by that.
            tag: Comes back in `Part.tag`.
            now: The time in seconds; `None` asks the clock. It is the latest so far if it is before that.

        Returns:
            Its number, which is never used again.

        Raises:
            BlockingIOError: The gate is full; there is room once something is complete.
            OverflowError: A number is larger than there can be, or negative.
            ValueError: There is no such request.
            RuntimeError: The gate is draining, or its scheduler does what it must not.
        """
        within("file", file, 0, U64_MAX)
        within("offset", offset, 0, U64_MAX)
        within("bytes", bytes, 0, U32_MAX)
        within("app", app, 0, U32_MAX)
        within("target", target, 0, U32_MAX)
        number = self._gate.submit(self._now(now), file, op, offset, bytes, app, target, issued, tag)
        return cast("int", number)

    def next(self, now: float | None = None) -> Dispatch | float | None:
        """What to do now.

        Returns:
            A dispatch: carry it out. A time in seconds: ask again then, or after the next change. `None`: ask
            again after the next change.

        Raises:
            RuntimeError: The scheduler, which is written in Python, does what it must not.
            Exception: Whatever it raises.
        """
        return cast("Dispatch | float | None", self._gate.next(self._now(now)))

    def complete(
        self,
        dispatch: Dispatch,
        *,
        bytes: int | None = None,
        failed: bool = False,
        now: float | None = None,
    ) -> None:
        """Tells that a dispatch has been carried out, all of it or so many bytes, or has failed.

        Raises:
            ValueError: It is complete already, or another gate's.
        """
        self._gate.complete(self._now(now), dispatch, bytes, failed)

    def cancel(self, request: int) -> bool:
        """Takes a request back that waits: it is in no dispatch's `parts` then, and in no order of others.

        Until its turn comes it keeps its place, and what conflicts with it waits for it.

        Returns:
            Whether any of it still waited. What is dispatched already is to be carried out, and completed.
        """
        return cast("bool", self._gate.cancel(request))

    def switch(self, scheduler: str | Scheduler, *, now: float | None = None, **params: Param) -> None:
        """Changes the scheduler; nothing is lost, and what is dispatched stays so.

        Raises:
            ValueError: As when the gate was made; then nothing has changed.
        """
        self._gate.switch(self._now(now), scheduler, _texts(params))

    def drain(self, now: float | None = None) -> None:
        """Takes no more requests, and does not wait for what might come."""
        self._gate.drain(self._now(now))

    def stats(self) -> dict[str, Any]:
        """What it has counted so far, as `iogate status --json` has it of a mount."""
        return cast("dict[str, Any]", json.loads(self._gate.stats()))

    @property
    def scheduler(self) -> str:
        """The scheduler, with the parameters that differ from their defaults; `own` if it is an object."""
        return cast("str", self._gate.scheduler())

    @property
    def queued(self) -> int:
        """Requests that wait for the scheduler; those that wait for an earlier one do not count."""
        return cast("int", self._gate.counts()[1])

    @property
    def in_service(self) -> int:
        """Dispatches that are not complete."""
        return cast("int", self._gate.counts()[2])

    def __len__(self) -> int:
        """Requests in the gate, waiting or dispatched."""
        return cast("int", self._gate.counts()[0])

    def __bool__(self) -> bool:
        """An empty gate is a gate."""
        return True

    def __repr__(self) -> str:
        """The scheduler, and how full the gate is."""
        return f"<iogate.Gate {self.scheduler}, {len(self)} requests, {self.in_service} dispatches>"

    def _now(self, now: float | None) -> float:
        return self._clock() if now is None else now


def _texts(params: dict[str, Param]) -> list[tuple[str, str]]:
    """Parameters as a command line would have them."""
    return [
        (name, str(value).lower() if isinstance(value, bool) else str(value))
        for name, value in params.items()
    ]
