"""Converts the DXT records of a Darshan log to a trace for `iogate replay`.

    python -m iogate.darshan LOG.darshan -o trace.csv

The log is read through the `darshan` package, that is, by Darshan's C library. On a damaged log the library
may crash, or print an error and return what it has as if it were all. So it runs in a child process, and
what it prints as an error fails the conversion.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import heapq
import json
import multiprocessing
import os
import resource
import signal
import stat
import sys
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, BinaryIO

from iogate._whole import whole
from iogate.traces import COLUMNS, micros

MODULES = ("DXT_POSIX", "DXT_MPIIO")
"""Darshan's modules that trace, the preferred one first: POSIX is what reaches the storage."""

BYTES_MAX = 2**32 - 1
"""The longest request that a trace can hold, in bytes."""

PIECE_BYTES = 2**31
"""What a longer segment is split into, in bytes: a multiple of any block or stripe size."""

SEGMENT_BYTES_MAX = 2**42
"""The longest segment that is believed, in bytes: one from a damaged log could become 2^32 rows."""

IDS = 2**32
"""Applications and clients are numbers below this one."""

STDOUT, STDERR = 1, 2
"""The descriptors that the C library and this process share."""

Row = tuple[str, int, int, str, str, int, int]
"""One request of the trace, in the order of `COLUMNS`."""


class ConversionError(Exception):
    """Why there is no trace: one line that names the file, what is wrong with it and what to do."""


@dataclass(frozen=True)
class Record:
    """What one process did with one file, in order of time; the arrays have one element a segment.

    A log can have tens of millions of segments, hence arrays: 25 bytes a segment.
    """

    file: str
    client: int
    starts_ns: array[int]
    offsets: array[int]
    lengths: array[int]
    ops: str

    def __len__(self) -> int:
        """The number of segments."""
        return len(self.starts_ns)


@dataclass
class Log:
    """The DXT records of one module of a log.

    `empty` counts the segments of zero length, which are not in the records; `early` those that start before
    the job, which are in them at time 0. `partial` says that Darshan ran out of memory and recorded no more.
    """

    job: int
    module: str
    records: list[Record]
    partial: bool = False
    empty: int = 0
    early: int = 0

    def add(self, file: str, rank: int, reads: Sequence[Any], writes: Sequence[Any]) -> None:
        """Adds a record of segments as the darshan package has them: in bytes and seconds.

        Raises `ConversionError` if a segment has no place in its file.
        """
        segments = []
        for op, raw in (("r", reads), ("w", writes)):
            for segment in raw:
                start_ns = round(segment["start_time"] * 1e9)
                offset, length = segment["offset"], segment["length"]
                if length == 0:
                    self.empty += 1
                    continue
                if offset < 0 or not 0 < length <= SEGMENT_BYTES_MAX:
                    raise ConversionError(
                        f"expected an offset from 0 and a length up to 4 TiB in {self.module}, "
                        f"found offset {offset}, length {length} in a segment of {file!r}"
                    )
                if start_ns < 0:
                    self.early += 1
                segments.append((max(start_ns, 0), offset, length, op))
        # Reads and writes are separate in the log, and threads record their segments as they end.
        segments.sort(key=lambda segment: segment[0])
        self.records.append(
            Record(
                file,
                rank + 1,
                array("q", [segment[0] for segment in segments]),
                array("q", [segment[1] for segment in segments]),
                array("q", [segment[2] for segment in segments]),
                "".join(segment[3] for segment in segments),
            )
        )

    def rows(self, app: int | None = None) -> Iterator[Row]:
        """All requests in order of time; those of one time in the order of the log's records.

        The application is `app`, or else the job's number modulo 2^32.
        """
        app = self.job % IDS if app is None else app
        ordered = heapq.merge(*(_numbered(number, record) for number, record in enumerate(self.records)))
        for start_ns, number, offset, length, op in ordered:
            record = self.records[number]
            time_us = micros(start_ns)
            for piece, bytes_ in _pieces(offset, length):
                yield time_us, app, record.client, record.file, op, piece, bytes_

    def summary(self, rows: int) -> str:
        """One line on what became a trace of so many rows, and what did not."""
        parts = [f"{rows} rows from {len(self.records)} records of {self.module}"]
        if self.empty:
            parts.append(f"{self.empty} segments of zero length left out")
        if self.early:
            parts.append(f"{self.early} segments from before the job's start put at time 0")
        if self.partial:
            parts.append("Darshan ran out of memory and left some out (DARSHAN_MODMEM gives it more)")
        return "; ".join(parts)


def _numbered(number: int, record: Record) -> Iterator[tuple[int, int, int, int, str]]:
    for start_ns, offset, length, op in zip(record.starts_ns, record.offsets, record.lengths, record.ops):
        yield start_ns, number, offset, length, op


def _pieces(offset: int, length: int) -> Iterable[tuple[int, int]]:
    if length <= BYTES_MAX:
        return ((offset, length),)
    end = offset + length
    return ((start, min(PIECE_BYTES, end - start)) for start in range(offset, end, PIECE_BYTES))


def read_log(path: str, module: str | None, json_names: bool, complaints: BinaryIO) -> Log:
    """Reads the records of `module`, or of the first of `MODULES` that the log has.

    `complaints` is the file to which this process's standard error goes. With `json_names` the names of files
    are JSON strings. Raises `ConversionError`. On a damaged log it may also raise whatever the package comes
    upon, or end the process.
    """
    try:
        import darshan.backend.cffi_backend as backend  # noqa: PLC0415 (it takes half a second, and may be missing)
    except ModuleNotFoundError as error:
        if error.name != "darshan":
            raise
        raise ConversionError(
            "the Python package darshan is missing; install it with: pip install darshan"
        ) from error

    def check() -> None:
        if complaint := _first_complaint(complaints):
            raise ConversionError(f"the log is truncated or damaged: {complaint}")

    log = backend.log_open(path)
    if not log["handle"]:
        raise ConversionError(f"not a Darshan log, or a truncated one: {_first_complaint(complaints)}")
    # The package drops the library's error codes: what the library prints is all there is to tell.
    check()
    job = backend.log_get_job(log)["jobid"]
    modules = backend.log_get_modules(log)
    check()
    found = [name for name in MODULES if name in modules]
    if not found:
        raise ConversionError("the log has no DXT records; run the job with DXT_ENABLE_IO_TRACE=1")
    if module and module not in found:
        raise ConversionError(f"the log has no {module} records, only {found[0]}")
    module = module or found[0]
    names = backend.log_get_name_records(log)
    check()

    converted = Log(job, module, [], partial=modules[module]["partial_flag"])
    # One at a time, not by DarshanReport: that keeps all as dictionaries, and drops records without a name.
    while (record := backend.log_get_dxt_record(log, module)) is not None:
        name = names.get(record["id"]) or str(record["id"])
        if json_names:
            name = json.dumps(name)
        elif "\n" in name or "\r" in name:
            raise ConversionError(
                f"the file name {name!r} has a line break, which a trace cannot hold; use --json-names"
            )
        converted.add(name, record["rank"], record["read_segments"], record["write_segments"])
    check()
    backend.log_close(log)
    return converted


def _first_complaint(complaints: BinaryIO) -> str:
    """What the library said first: the cause, while the lines after it are what follows from it."""
    complaints.seek(0)
    for line in complaints:
        text = line.decode(errors="replace").strip()
        if text.startswith("Error"):
            return text.partition(":")[2].strip().rstrip(".") or text
    return ""


def _write(log: Log, app: int | None, output: str | int) -> int:
    """Writes the trace, and returns its number of rows."""
    count = 0
    with open(output, "w", encoding="utf-8", newline="", closefd=isinstance(output, str)) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in log.rows(app):
            writer.writerow(row)
            count += 1
    return count


@dataclass(frozen=True)
class Settings:
    """What to convert: the fields are as the flags of `arguments`."""

    log: str
    output: str = "-"
    app: int | None = None
    module: str | None = None
    json_names: bool = False


def _in_child(settings: Settings, output: str | int, complaints: BinaryIO, answer: Connection) -> None:
    """Converts, and answers with the summary or a `ConversionError`."""
    os.dup2(complaints.fileno(), STDERR)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        log = read_log(settings.log, settings.module, settings.json_names, complaints)
    except ConversionError as error:
        answer.send(ConversionError(f"{settings.log}: {error}"))
        return
    except Exception as error:  # whatever the package comes upon in a damaged log
        what = " ".join(str(error).split()) or repr(error)
        answer.send(ConversionError(f"{settings.log}: cannot be read: {what}"))
        return
    try:
        answer.send(log.summary(_write(log, settings.app, output)))
    except OSError as error:
        answer.send(_cannot_be_written(settings.output, error))


def _cannot_be_written(output: str, error: OSError) -> ConversionError:
    name = "standard output" if output == "-" else output
    return ConversionError(f"{name}: cannot be written: {error.strerror or error}")


@contextlib.contextmanager
def _named(output: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _cannot_be_written(output, error) from error


@contextlib.contextmanager
def _opened(output: str) -> Iterator[str | int]:
    """Gives what to write to, which appears under its name in the end."""
    if output == "-":
        yield STDOUT
        return
    with contextlib.ExitStack() as stack:
        with _named(output):
            place = stack.enter_context(whole(output))
        yield place
        # Here, so that the errors of whoever writes are not taken for those of the name.
        with _named(output):
            stack.close()


def _check_input(log: str, output: str) -> None:
    try:
        with open(log, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConversionError(f"{log}: expected a regular file")
    except OSError as error:
        raise ConversionError(f"{log}: cannot be read: {error.strerror or error}") from error
    if output != "-" and os.path.exists(output) and os.path.samefile(log, output):
        raise ConversionError(f"{output}: the trace would replace the log")


def convert(settings: Settings) -> str:
    """Converts a log, and returns a summary of one line.

    Raises `ConversionError`, and leaves no output behind then.
    """
    _check_input(settings.log, settings.output)
    context = multiprocessing.get_context("fork")
    with _opened(settings.output) as output, tempfile.TemporaryFile() as complaints:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_in_child, args=(settings, output, complaints, theirs), daemon=True)
        child.start()
        theirs.close()
        try:
            answer = ours.recv()
        except EOFError:
            child.join()
            raise ConversionError(f"{settings.log}: {_death(child.exitcode or 0, complaints)}") from None
        finally:
            child.kill()
            child.join()
        if isinstance(answer, ConversionError):
            raise answer
        return str(answer)


def _death(status: int, complaints: BinaryIO) -> str:
    how = signal.Signals(-status).name if status < 0 else f"status {status}"
    message = f"the Darshan library ended with {how}; the log is probably truncated or damaged"
    complaint = _first_complaint(complaints)
    return f"{message}: {complaint}" if complaint else message


def _app(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < IDS):
        raise argparse.ArgumentTypeError(f"expected a number from 0 to {IDS - 1}, found {text!r}")
    return int(text)


def arguments() -> argparse.ArgumentParser:
    """The flags of `python -m iogate.darshan`."""
    parser = argparse.ArgumentParser(
        prog="python -m iogate.darshan",
        description="Convert the DXT records of a Darshan log to a trace for iogate replay.",
    )
    parser.add_argument("log", metavar="LOG", help="Darshan log of a job that ran with DXT_ENABLE_IO_TRACE=1")
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="-", help="where the trace goes [default: standard output]"
    )
    parser.add_argument(
        "--app",
        metavar="N",
        type=_app,
        help="the application's number [default: that of the job, modulo 2^32]",
    )
    parser.add_argument(
        "--module",
        choices=MODULES,
        help="which records to convert [default: the first of these that the log has]",
    )
    parser.add_argument(
        "--json-names",
        action="store_true",
        help="write file names as JSON strings, for names with line breaks",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the converter and returns its exit status: 1 if there is no trace, 2 for wrong flags."""
    args = arguments().parse_args(argv)
    # By default a process that is told to end would leave its unfinished output behind.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        print(f"iogate.darshan: {convert(Settings(**vars(args)))}", file=sys.stderr)
    except ConversionError as error:
        print(f"iogate.darshan: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
