"""Turns on shared storage, gates and simulations for Python programs, and what prepares input for iogate.

    import iogate

    with iogate.turn("/scratch"):
        torch.save(model.state_dict(), "/scratch/run7/model.pt")

Of all programs that ask for a turn on a file system, one at a time (or as many as its coordinator lets in) is
between these two lines. `iogate.simulate` runs simulated clusters, also with schedulers that are written in
Python, and `iogate.Gate` is a gate to be driven by hand. `iogate.darshan` converts logs of Darshan,
`iogate.traces` reads and writes traces, and `iogate.filesystem` has files of servers for fsspec, by
`iogate://HOST:PORT/path`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iogate._wish import LossPolicy, Policy
from iogate.errors import (
    AlreadyClaimed,
    CoordinatorUnreachable,
    TurnError,
    TurnLost,
    TurnTimeout,
    UnknownPlace,
)
from iogate.gate import Gate
from iogate.simulation import Results, Scheduler, simulate
from iogate.turns import Turn, acquire, probe, release, turn

if TYPE_CHECKING:
    from iogate._native import Dispatch, Part, Request

__all__ = [
    "AlreadyClaimed",
    "CoordinatorUnreachable",
    "Dispatch",
    "Gate",
    "LossPolicy",
    "Part",
    "Policy",
    "Request",
    "Results",
    "Scheduler",
    "Turn",
    "TurnError",
    "TurnLost",
    "TurnTimeout",
    "UnknownPlace",
    "acquire",
    "probe",
    "release",
    "simulate",
    "turn",
]


def __getattr__(name: str) -> Any:
    """The classes of the extension, which is loaded when it is needed."""
    if name in ("Dispatch", "Part", "Request"):
        from iogate._extension import extension  # noqa: PLC0415

        return getattr(extension(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
