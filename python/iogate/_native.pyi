"""The extension module; python/src/lib.rs. Errors of turns are OSError with an errno."""

from typing import Any, Literal

class Wish:
    """What a turn is for: its place is found, and the settings are right."""

    def __new__(
        cls,
        place: str,
        *,
        bytes: int,
        weight: int,
        targets: list[int],
        policy: str | None,
        strict: bool | None,
    ) -> Wish: ...
    @property
    def place(self) -> str:
        """The place's name."""
    @property
    def locks(self) -> bool:
        """Whether a coordinator is asked."""
    @property
    def has_party(self) -> bool:
        """Whether this process belongs to a job, whose claims may hold together."""
    def take(self, timeout: float | None) -> Turn:
        """Waits for the turn in this thread, at most so many seconds; an exception of a signal ends that."""
    def probe(self) -> int:
        """Probes the place until it is quiet; how often, and 0 if nothing can be probed."""
    def begin(self, timeout: float | None) -> Work:
        """Waits for the turn in a thread of its own."""

class Turn:
    """A turn, until it is released. One that nobody has any more ends too."""

    @property
    def token(self) -> int:
        """The fencing token; 0 if no coordinator gave it."""
    @property
    def share(self) -> int:
        """Thousandths of the throughput that it may use."""
    def is_valid(self) -> bool:
        """Whether the turn counts."""
    def release(self) -> None:
        """Ends the turn; a second time it does nothing."""
    def begin_release(self) -> Work:
        """The same in a thread of its own."""

class Work:
    """Something underway in a thread of its own."""

    def fileno(self) -> int:
        """A descriptor that becomes readable when it is done."""
    def wait(self) -> None:
        """Waits until it is done."""
    def result(self) -> Turn | None:
        """What has come of it."""
    def cancel(self) -> None:
        """Nobody wants what comes of it."""

class Request:
    """A request that waits at a gate, as a scheduler sees it."""

    @property
    def id(self) -> int:
        """Its number: of a `Gate`, what `submit` has returned; of a simulated one, any."""
    @property
    def file(self) -> int:
        """Which file."""
    @property
    def op(self) -> Literal["read", "write"]:
        """What it does to its bytes."""
    @property
    def offset(self) -> int:
        """The first byte."""
    @property
    def bytes(self) -> int:
        """How many, at least one."""
    @property
    def end(self) -> int:
        """One past the last byte."""
    @property
    def app(self) -> int:
        """The application that it belongs to; 0 is unknown."""
    @property
    def target(self) -> int:
        """The target that has its first byte."""
    @property
    def arrival(self) -> float:
        """When it came in, in seconds."""
    @property
    def issued(self) -> float | None:
        """When it was issued, by the clock of who did, in seconds."""

class Part:
    """A request's share of a dispatch: all of it, or a stripe."""

    @property
    def request(self) -> int:
        """The request's number."""
    @property
    def tag(self) -> Any:
        """What it was submitted with."""
    @property
    def offset(self) -> int:
        """The first byte of the share."""
    @property
    def bytes(self) -> int:
        """How many."""
    @property
    def arrival(self) -> float:
        """When the request came in, in seconds."""

class Dispatch:
    """What is to be carried out at once: contiguous requests of one file and operation."""

    @property
    def file(self) -> int:
        """Which file."""
    @property
    def op(self) -> Literal["read", "write"]:
        """What to do."""
    @property
    def offset(self) -> int:
        """The first byte."""
    @property
    def bytes(self) -> int:
        """How many, those of requests that were cancelled among them."""
    @property
    def app(self) -> int:
        """The application of the first request."""
    @property
    def target(self) -> int:
        """The target that has the first byte."""
    @property
    def parts(self) -> list[Part]:
        """The requests in it that were not cancelled, in the order of their offsets."""

class Gate:
    """A gate; `iogate.Gate` has what it does. Times are in seconds."""

    def __new__(
        cls,
        scheduler: object,
        params: list[tuple[str, str]],
        *,
        depth: int,
        queue: int,
        stripe: int,
        targets: int,
    ) -> Gate: ...
    def submit(
        self,
        now: float,
        file: int,
        op: str,
        offset: int,
        bytes: int,
        app: int,
        target: int | None,
        issued: float | None,
        tag: object,
    ) -> int:
        """Takes a request."""
    def next(self, now: float) -> Dispatch | float | None:
        """What to do now."""
    def complete(self, now: float, dispatch: Dispatch, bytes: int | None, failed: bool) -> None:
        """Tells that a dispatch has been carried out."""
    def cancel(self, request: int) -> bool:
        """Takes a request back that waits."""
    def switch(self, now: float, scheduler: object, params: list[tuple[str, str]]) -> None:
        """Changes the scheduler."""
    def drain(self, now: float) -> None:
        """Takes no more."""
    def stats(self) -> str:
        """The statistics, as JSON."""
    def scheduler(self) -> str:
        """The scheduler with its parameters; `own` is one in Python."""
    def counts(self) -> tuple[int, int, int]:
        """Requests in the gate, those that wait for the scheduler, and dispatches that are not complete."""

class Report:
    """What all runs of a scenario gave."""

    def json(self) -> str:
        """What `iogate sim --json` writes."""
    def csv(self) -> str:
        """What `iogate sim --csv` writes."""
    def html(self) -> str:
        """What `iogate sim --html` writes."""
    def text(self) -> str:
        """What `iogate sim` prints."""

def simulate(
    scenario: str,
    *,
    is_text: bool,
    settings: list[str],
    quick: bool,
    threads: int | None,
    schedulers: dict[str, object],
) -> Report:
    """Runs a scenario; it is a file, the name of one that is built in, or the text of one."""

Attributes = tuple[int, int, int, int, int, int, float, float, float]
"""Type and permissions, size, owner, group, links, number; times of the last access, change of the data and
change of anything, in seconds."""

class Connection:
    """A session with servers of the same files. Paths begin at the root of the export, without a slash."""

    def __new__(
        cls,
        servers: list[str],
        *,
        export: str,
        auth: str | None,
        tls: tuple[str, str, str, str | None] | None,
        retry_for: float,
        app: int | None,
    ) -> Connection: ...
    def attr(self, path: str, follow: bool) -> Attributes:
        """What is at a path."""
    def list(self, path: str) -> list[tuple[str, Attributes]]:
        """What is in a directory; links are not followed."""
    def mkdir(self, path: str, mode: int) -> None:
        """Makes a directory."""
    def remove(self, path: str, directory: bool) -> None:
        """Removes an empty directory, or a name."""
    def rename(self, path: str, to: str) -> None:
        """Gives something another name; what had that is replaced."""
    def rename_new(self, path: str, to: str) -> None:
        """Gives a file another name, which nothing may have."""
    def set_times(self, path: str, atime: float, mtime: float) -> None:
        """Sets the times of the last access and change."""
    def open(self, path: str, how: str, mode: int) -> File:
        """Opens a file: r, r+, w, x or a; `mode` are the permissions of a new one."""

class File:
    """An open file."""

    def read(self, offset: int, count: int) -> bytes:
        """Reads so many bytes, fewer only at the end."""
    def write(self, offset: int, data: bytes) -> None:
        """Writes all of these bytes."""
    def append(self, data: bytes) -> int:
        """Writes at the end, wherever that is then; says how many of the bytes."""
    def attr(self) -> Attributes:
        """Its attributes."""
    def sync(self) -> None:
        """Makes durable what was written."""
    def truncate(self, size: int) -> None:
        """Sets the size."""
    def close(self) -> None:
        """Closes it; fails if something that was written is known to be lost."""

class Trace:
    """Reads a trace from a file that is open for bytes."""

    def __new__(cls, file: object) -> Trace: ...
    def rows(self, count: int) -> list[tuple[Any, ...]]:
        """At most so many of the next rows, with the fields of `iogate.traces.Row`; none at the end."""
