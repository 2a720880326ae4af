"""A scheduler in Python, and figure 5 of the paper on aIOLi with it: 32 processes, one server.

python python/examples/figure5.py --quick
"""

from __future__ import annotations

import sys
from bisect import bisect_left, insort

import iogate

PATIENCE = 0.004
"""How long to wait for what may follow, in seconds: less than a seek and half a revolution cost."""

RUN_MAX = 128
"""Most requests at once."""


class Sweep:
    """From low offsets to high ones, contiguous requests together; waits a moment before a seek."""

    depth = 1

    def __init__(self) -> None:
        """Nothing waits yet."""
        self.waiting: list[tuple[int, str, int, int, iogate.Request]] = []
        self.place = (0, "", 0)
        self.patient_until = 0.0

    def insert(self, request: iogate.Request) -> None:
        """Keeps requests in the order of files and offsets."""
        insort(self.waiting, (request.file, request.op, request.offset, request.id, request))

    def pick(self, now: float) -> list[iogate.Request] | float:
        """The run at the place where the last one ended, or else the next one."""
        first = bisect_left(self.waiting, self.place) % len(self.waiting)
        run: list[iogate.Request] = []
        begin = end = self.waiting[first][:3]
        for *at, _, request in self.waiting[first : first + RUN_MAX]:
            if tuple(at) != end:
                break
            run.append(request)
            end = (request.file, request.op, request.end)
        # To go elsewhere costs a seek: what follows may still come, and the run there may still grow.
        patient_until = max(self.patient_until, run[-1].arrival + PATIENCE)
        if begin != self.place and len(run) < RUN_MAX and now < patient_until:
            return patient_until
        self.place = end
        del self.waiting[first : first + len(run)]
        return run

    def completed(self, now: float, file: int, op: str, end: int) -> None:
        """Who has an answer may ask for what follows."""
        self.patient_until = now + PATIENCE


def figure5(*, quick: bool) -> iogate.Results:
    """All granularities, reads and writes, with two schedulers of iogate and this one."""
    return iogate.simulate(
        "aioli-one-ior",
        set={"servers.gate.scheduler": ["fifo", "aioli", "own:sweep"]},
        schedulers={"sweep": Sweep},
        quick=quick,
    )


if __name__ == "__main__":
    print(figure5(quick="--quick" in sys.argv[1:]))
