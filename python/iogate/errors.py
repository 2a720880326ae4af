"""Why there is no turn, or what went wrong with one."""

from __future__ import annotations

import errno


class TurnError(OSError):
    """There is no turn, or something went wrong with it. `errno` is that of the C function in `iogate.h`."""


class TurnTimeout(TurnError, TimeoutError):
    """It was not this program's turn in time (`ETIMEDOUT`)."""


class AlreadyClaimed(TurnError):
    """Whoever asks has this turn already, and would wait for itself (`EDEADLK`)."""


class CoordinatorUnreachable(TurnError, ConnectionError):
    """No coordinator can be reached, and without one this program does not want to go on (`EHOSTUNREACH`)."""


class UnknownPlace(TurnError):
    """The path leads nowhere, or the coordinator knows no such place or target (`ENOENT`)."""


class TurnLost(TurnError):
    """The turn was lost before its end: others may have written at the same time (`ESTALE`)."""


BY_ERRNO: dict[int, type[TurnError]] = {
    errno.EDEADLK: AlreadyClaimed,
    errno.EHOSTUNREACH: CoordinatorUnreachable,
    errno.ENOENT: UnknownPlace,
    errno.ESTALE: TurnLost,
    errno.ETIMEDOUT: TurnTimeout,
}
"""The exceptions that have a name of their own."""


def named(error: OSError) -> TurnError:
    """The exception for an errno of the extension module."""
    number = error.errno or errno.EIO
    return BY_ERRNO.get(number, TurnError)(number, error.strerror or str(error))
