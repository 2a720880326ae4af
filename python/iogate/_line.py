"""Who in this process is next.

A process has one claim at a time: a second one is refused, for it may come from whoever has the first, and
would wait for itself. Here it is known who has it. So the threads and tasks of a process stand in line here,
first come, first served, and the first of them goes on to the coordinator.
"""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass, field
from typing import Callable


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None


@dataclass(eq=False)
class Entry:
    """A claim of this process, waiting or held."""

    place: str
    targets: tuple[int, ...]
    """None: all of the place."""
    has_party: bool
    """Of a job, whose claims may hold together: it waits for nobody here."""
    blocks: bool
    """Whoever waits blocks its thread, and with it an event loop that runs there."""
    ready: Callable[[], None]
    """Called from any thread once nobody is before it."""
    is_ready: bool = False
    thread: int = field(default_factory=threading.get_ident)
    task: asyncio.Task[object] | None = field(default_factory=_current_task)

    def overlaps(self, other: Entry) -> bool:
        """Whether two claims are about a common target."""
        if self.place != other.place:
            return False
        return not self.targets or not other.targets or not set(self.targets).isdisjoint(other.targets)

    def would_wait_for_itself(self, other: Entry) -> bool:
        """Whether the other claim cannot end before this one does."""
        if not self.overlaps(other):
            return False
        if not self.blocks:
            return other.task is self.task
        # A thread of a job that has the turn already joins it.
        return other.thread == self.thread and not (self.has_party and other.blocks)

    def waits_for(self, other: Entry) -> bool:
        """Whether it is the other claim's turn first."""
        return not self.has_party and self.overlaps(other)


_lock = threading.RLock()
_entries: list[Entry] = []


def enter(entry: Entry) -> bool:
    """Stands in line, unless whoever asks would wait for itself."""
    global _entries  # noqa: PLW0603
    with _lock:
        if any(entry.would_wait_for_itself(other) for other in _entries):
            return False
        _entries = [*_entries, entry]
        _call()
        return True


def leave(entry: Entry) -> None:
    """Makes room for the next; a second time it does nothing."""
    global _entries  # noqa: PLW0603
    with _lock:
        _entries = [other for other in _entries if other is not entry]
        _call()


def _call() -> None:
    """Tells those who have nobody before them any more."""
    for index, entry in enumerate(_entries):
        if not entry.is_ready and not any(map(entry.waits_for, _entries[:index])):
            entry.is_ready = True
            entry.ready()


def _forget() -> None:
    """A child of `fork` has none of its parent's claims."""
    global _lock, _entries  # noqa: PLW0603
    _lock = threading.RLock()
    _entries = []


os.register_at_fork(after_in_child=_forget)
