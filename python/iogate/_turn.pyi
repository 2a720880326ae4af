"""The extension module; python/src/lib.rs. Its errors are OSError with an errno."""

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
