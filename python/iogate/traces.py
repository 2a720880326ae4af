"""Traces of requests, as `iogate replay` and `iogate record` have them, read and written row by row.

from iogate import traces

reads = (row for row in traces.read("trace.csv") if row.op == "read")
traces.write("reads.csv", reads)
"""

from __future__ import annotations

import contextlib
import csv
import io
import operator
import os
from collections.abc import Iterable, Iterator
from typing import IO, Any, Literal, NamedTuple, Protocol, Union

from iogate._extension import extension
from iogate._whole import whole

ROWS = 1024
"""How many rows are read at once."""

LINE_BYTES_MAX = 64 * 1024
"""The longest line that is read."""

COLUMNS = ("time_us", "app", "client", "file", "op", "offset", "bytes")
"""The columns that each trace has."""

WHOLE = ("app", "client", "offset", "bytes", "target", "lost")
"""What is a whole number, but for a target that a row does not have."""

Also = Literal["target", "issued", "done", "lost"]
"""Further columns, which a trace may have."""

ALSO: dict[Also, str] = {"target": "target", "issued": "issued_us", "done": "done_us", "lost": "lost"}
"""What they are called in a trace."""

Path = Union[str, "os.PathLike[str]"]


class Readable(Protocol):
    """A file that is open for bytes."""

    def read(self, size: int = ..., /) -> bytes:
        """At most so many bytes; none at the end."""


class Row(NamedTuple):
    """One request. Times are in seconds, to the nanosecond."""

    time: float
    """When it arrives."""
    app: int
    """The application; 0 is unknown."""
    client: int
    """The client; 0 is unknown."""
    file: str
    """The file's name or number."""
    op: Literal["read", "write"]
    """What it does."""
    offset: int
    """The first byte."""
    bytes: int
    """How many, from 1 to 4294967295."""
    target: int | None = None
    """The target that has it, if the trace says."""
    issued: float | None = None
    """When the client issued it, if the trace says."""
    done: float | None = None
    """When it was over, if the trace says."""
    lost: int = 0
    """Requests behind it that are missing."""


def read(source: Path | Readable) -> Iterator[Row]:
    """Reads a trace as it goes, in bounded memory: a file's path, or a file that is open for bytes.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no trace, or its rows are not in order of time; with the line and the column.
    """
    with contextlib.ExitStack() as stack:
        file: Any = source
        if isinstance(source, (str, os.PathLike)):
            file = stack.enter_context(open(source, "rb"))
        trace = extension().Trace(file)
        while rows := trace.rows(ROWS):
            yield from map(Row._make, rows)


def write(target: Path | IO[str], rows: Iterable[Row], *, also: Iterable[Also] = ()) -> int:
    """Writes a trace: to a file of this path, which appears whole, or to one that is open for text.

    What has the path is replaced, behind a link, too; pipes and devices get the rows as they come.

    Args:
        target: Where to.
        rows: The requests, in order of time.
        also: Which further columns it has.

    Returns:
        How many rows it has.

    Raises:
        OSError: The file cannot be written.
        ValueError: A row is none that a trace can have, or has something that `also` does not name.
    """
    names = list(also)
    if unknown := [name for name in names if name not in ALSO]:
        raise ValueError(f"also: expected some of {', '.join(ALSO)}, found {unknown[0]!r}")
    if not isinstance(target, (str, os.PathLike)):
        return _write(target, rows, names)
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(whole(os.fspath(target)))
        is_path = isinstance(place, str)
        file = stack.enter_context(open(place, "w", encoding="utf-8", newline="", closefd=is_path))
        return _write(file, rows, names)


def _write(file: IO[str], rows: Iterable[Row], also: list[Also]) -> int:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*COLUMNS, *(ALSO[name] for name in also)])
    before, count = 0, 0
    absent = [(name, Row._field_defaults[name]) for name in ALSO if name not in also]
    for count, given in enumerate(rows, start=1):
        time = _nanoseconds(given.time, count, "time")
        row = _in_whole_numbers(given, count)
        _check(row, count)
        if time < before:
            raise ValueError(f"row {count}: expected a time not before {before / 1e9}, found {row.time}")
        for name, default in absent:
            if getattr(row, name) != default:
                raise ValueError(f"row {count}: it has {name}; expected also=[{name!r}, ...], or none")
        before = time
        further = [_text(row, name, count) for name in also]
        fields = [micros(time), row.app, row.client, row.file, row.op[0], row.offset, row.bytes, *further]
        # Only a name makes a line long.
        if len(row.file) > LINE_BYTES_MAX // 8 and _line_bytes(fields) > LINE_BYTES_MAX:
            raise ValueError(f"row {count}: file: expected a name with which a line has at most 64 KiB")
        writer.writerow(fields)
    return count


def _in_whole_numbers(row: Row, number: int) -> Row:
    """The row with numbers of Python's for numpy's, say; 2.0 could be written, and would not be read."""
    found: dict[str, Any] = {name: getattr(row, name) for name in WHOLE}
    for name, value in found.items():
        try:
            found[name] = None if name == "target" and value is None else operator.index(value)
        except TypeError:
            error = f"row {number}: {name}: expected a whole number, found {value!r}"
            raise ValueError(error) from None
    return row._replace(**found)


def _line_bytes(fields: list[object]) -> int:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(fields)
    return len(line.getvalue().encode())


def _check(row: Row, number: int) -> None:
    """Refuses what would be refused when it is read."""
    for name, is_right, expected in (
        ("app", 0 <= row.app < 2**32, "a number below 2^32"),
        ("client", 0 <= row.client < 2**32, "a number below 2^32"),
        ("file", _is_name(row.file), "a name in one line"),
        ("op", row.op in ("read", "write"), "'read' or 'write'"),
        ("offset", 0 <= row.offset < 2**64 - row.bytes, "a byte below 2^64"),
        ("bytes", 0 < row.bytes < 2**32, "a number from 1 to 4294967295"),
        ("done", row.done is None or row.done >= row.time, "a time not before the arrival"),
        ("target", row.target is None or 0 <= row.target < 4096, "a number below 4096"),  # noqa: PLR2004
        ("lost", 0 <= row.lost < 2**64, "a number below 2^64"),
    ):
        if not is_right:
            raise ValueError(f"row {number}: {name}: expected {expected}, found {getattr(row, name)!r}")


def _is_name(file: object) -> bool:
    return isinstance(file, str) and file != "" and not set(file) & set("\r\n")


def _nanoseconds(seconds: float, number: int, name: str) -> int:
    try:
        is_right = 0 <= seconds < 9.2e9  # noqa: PLR2004
    except TypeError:
        is_right = False
    if not is_right:
        raise ValueError(f"row {number}: {name}: expected seconds, from 0 to 9.2e9, found {seconds!r}")
    return round(seconds * 1e9)


def micros(nanoseconds: int) -> str:
    """A time in microseconds, as traces have it: whole if it is, else with up to three decimals."""
    whole, rest = divmod(nanoseconds, 1000)
    return f"{whole}.{rest:03}".rstrip("0") if rest else str(whole)


def _text(row: Row, name: Also, number: int) -> str:
    value = getattr(row, name)
    if value is None or (name == "lost" and value == 0):
        return ""
    return micros(_nanoseconds(value, number, name)) if name in ("issued", "done") else str(value)
