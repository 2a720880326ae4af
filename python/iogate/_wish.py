"""What a turn is for: the arguments, and how they come to the extension module."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Union, cast

from iogate._extension import extension
from iogate.errors import TurnError, named

if TYPE_CHECKING:
    from iogate import _native

TARGETS_MAX = 2**20
"""Most targets of a file system."""

Policy = Literal["lock", "backoff", "lock+backoff", "none"]
"""How to wait: by a coordinator, by probing the file system, both, or not at all."""

LossPolicy = Literal["raise", "warn", "ignore"]
"""What to do at the end of a turn that was lost meanwhile."""

Place = Union[str, bytes, "os.PathLike[str]"]
"""A path in the file system (bytes are always one); or the name of a place: a string without a slash, or
`nfs:server:/scratch`."""


@dataclass(frozen=True)
class Wish:
    """The arguments of a turn."""

    place: str
    bytes: int = 0
    weight: int | None = None
    timeout: float | None = None
    targets: tuple[int, ...] | None = None
    policy: Policy | None = None
    strict: bool | None = None
    lost: LossPolicy = "raise"

    def __post_init__(self) -> None:
        """Refuses what no turn can have."""
        weight, timeout, targets = self.weight, self.timeout, self.targets
        rules: tuple[tuple[str, Callable[[], bool], str], ...] = (
            (
                "place_or_path",
                lambda: self.place != "" and "\0" not in self.place,
                "a path, or the name of a place",
            ),
            ("bytes", lambda: 0 <= self.bytes < 2**64, "a number from 0 on, below 2**64"),
            (
                "weight",
                lambda: weight is None or 1 <= weight < 2**32,
                "a number from 1 on, below 2**32, or None",
            ),
            (
                "timeout",
                lambda: timeout is None or 0 < timeout <= threading.TIMEOUT_MAX,
                "seconds, more than 0, or None",
            ),
            (
                "targets",
                lambda: targets is None or (targets != () and targets[0] >= 0 and targets[-1] < TARGETS_MAX),
                f"at least one number from 0 to {TARGETS_MAX - 1}, or None for all",
            ),
            (
                "policy",
                lambda: self.policy in (None, "lock", "backoff", "lock+backoff", "none"),
                "'lock', 'backoff', 'lock+backoff', 'none' or None",
            ),
            ("lost", lambda: self.lost in ("raise", "warn", "ignore"), "'raise', 'warn' or 'ignore'"),
        )
        for name, is_right, expected in rules:
            found = getattr(self, "place" if name == "place_or_path" else name)
            refusal = f"{name}: expected {expected}, found {found!r}"
            try:
                right = is_right()
            except TypeError:
                raise TypeError(refusal) from None
            if not right:
                raise ValueError(refusal)

    def found(self) -> _native.Wish:
        """The same for the extension, with the place's name."""
        with naming():
            wish = extension().Wish(
                self.place,
                bytes=self.bytes,
                weight=self.weight or 0,
                targets=list(self.targets or ()),
                policy=self.policy,
                strict=self.strict,
            )
        return cast("_native.Wish", wish)


def text_of(place_or_path: Place) -> str:
    """The place's name or path; the extension tells them apart as the C functions do."""
    if isinstance(place_or_path, str):
        return place_or_path
    path = os.fsdecode(place_or_path)
    # A path object is never a name.
    return path if os.path.isabs(path) else os.path.join(".", path)


@contextlib.contextmanager
def naming() -> Iterator[None]:
    """Makes of the extension's errors those of this package."""
    try:
        yield
    except TurnError:
        raise
    except OSError as error:
        raise named(error) from None
