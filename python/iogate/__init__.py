"""Turns on shared storage for Python programs, and what prepares input for iogate.

    import iogate

    with iogate.turn("/scratch"):
        torch.save(model.state_dict(), "/scratch/run7/model.pt")

Of all programs that ask for a turn on a file system, one at a time (or as many as its coordinator lets in) is
between these two lines. `iogate.darshan` converts logs of Darshan.
"""

from iogate._wish import LossPolicy, Policy
from iogate.errors import (
    AlreadyClaimed,
    CoordinatorUnreachable,
    TurnError,
    TurnLost,
    TurnTimeout,
    UnknownPlace,
)
from iogate.turns import Turn, acquire, probe, release, turn

__all__ = [
    "AlreadyClaimed",
    "CoordinatorUnreachable",
    "LossPolicy",
    "Policy",
    "Turn",
    "TurnError",
    "TurnLost",
    "TurnTimeout",
    "UnknownPlace",
    "acquire",
    "probe",
    "release",
    "turn",
]
