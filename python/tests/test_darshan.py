"""The converter on real logs, whole and damaged, and what `iogate replay` makes of its traces."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PATIENCE_SECONDS, ROOT, example, run

from iogate.darshan import MODULES, ConversionError, Settings, convert
from iogate.traces import COLUMNS


def rows_of(trace: Path) -> list[list[str]]:
    with trace.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == list(COLUMNS)
    return rows


def expected(log: Path, module: str) -> list[list[str]]:
    """The rows, sorted, as one gets them from the interface that the darshan package documents."""
    import darshan  # noqa: PLC0415 (it may be missing; then the fixtures have skipped)

    report = darshan.DarshanReport(str(log), read_all=False, dtype="dict")
    report.mod_read_all_dxt_records(module)
    job = report.metadata["job"]["jobid"]
    return sorted(
        [
            f"{segment['start_time'] * 1e6:.3f}".rstrip("0").rstrip("."),
            str(job),
            str(record["rank"] + 1),
            report.name_records[record["id"]],
            op,
            str(segment["offset"]),
            str(segment["length"]),
        ]
        for record in report.records[module].to_dict()
        for op, segments in (("r", record["read_segments"]), ("w", record["write_segments"]))
        for segment in segments
        if segment["length"]
    )


@pytest.mark.parametrize(
    ("name", "module"),
    [("ior_hdf5_example", "DXT_POSIX"), ("ior_hdf5_example", "DXT_MPIIO"), ("dxt", "DXT_POSIX")],
)
def test_a_trace_has_all_segments_of_the_log_in_order_of_time(name: str, module: str, tmp_path: Path) -> None:
    log, trace = example(f"{name}.darshan"), tmp_path / "trace.csv"
    convert(Settings(str(log), str(trace), module=module))
    rows = rows_of(trace)
    assert sorted(rows) == expected(log, module)
    times = [float(row[0]) for row in rows]
    assert times == sorted(times)


def test_posix_is_preferred_and_the_summary_says_what_was_left_out(large_log: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    done = run(large_log, "-o", trace)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "iogate.darshan: 7613 rows from 169 records of DXT_POSIX; 10 segments of zero length left out\n"
    )
    assert len(rows_of(trace)) == 7613


def test_the_flags(log: Path, tmp_path: Path) -> None:
    done = run(log, "--app", "7", "--module", "DXT_MPIIO", "--json-names")
    assert done.returncode == 0
    assert done.stderr == "iogate.darshan: 59 rows from 4 records of DXT_MPIIO\n"
    rows = list(csv.reader(done.stdout.splitlines()))[1:]
    assert {row[1] for row in rows} == {"7"}
    assert {row[2] for row in rows} == {"1", "2", "3", "4"}
    assert {json.loads(row[3]) for row in rows} == {"/global/cscratch1/sd/ssnyder/test123.h5"}


def test_an_output_is_replaced_through_its_link(log: Path, tmp_path: Path) -> None:
    trace, link = tmp_path / "trace.csv", tmp_path / "link"
    trace.write_text("old")
    link.symlink_to(trace)
    assert run(log, "-o", link).returncode == 0
    assert link.is_symlink()
    assert len(rows_of(trace)) == 59
    assert sorted(os.listdir(tmp_path)) == ["link", "trace.csv"]


@pytest.mark.parametrize("number", [1, 2])
def test_an_output_may_be_a_stream_of_its_own(number: int, log: Path, tmp_path: Path) -> None:
    # Such as /dev/stdout, which root would lose if the test failed.
    stream = tmp_path / "stream"
    stream.symlink_to(f"/proc/self/fd/{number}")
    expected = run(log).stdout
    assert expected.count("\n") == 60
    summary = "iogate.darshan: 59 rows from 4 records of DXT_POSIX\n"
    done = run(log, "-o", stream)
    assert done.stdout + done.stderr == expected + summary
    # Redirected to a file, which is not replaced under the stream.
    said = tmp_path / "said"
    with said.open("w") as file:
        command = [sys.executable, "-m", "iogate.darshan", str(log), "-o", str(stream)]
        folder = ROOT / "python"
        subprocess.run(command, cwd=folder, stdout=file, stderr=file, timeout=PATIENCE_SECONDS, check=True)
    assert said.read_text() == expected + summary


def test_every_scheduler_replays_the_trace(large_log: Path, program: Path, tmp_path: Path) -> None:
    convert(Settings(str(large_log), str(tmp_path / "trace.csv")))
    for scheduler in ("fifo", "to-agg", "aioli", "app-window"):
        command = [str(program), "replay", "trace.csv", "--scheduler", scheduler, "--device", "hdd"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "requests    7613 (" in done.stdout


def refused(*args: str | Path) -> str:
    """The one line that the converter says when it refuses."""
    done = run(*args)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix("iogate.darshan: ").rstrip("\n")


def test_what_is_not_a_dxt_log_is_refused(log: Path, tmp_path: Path) -> None:
    text, empty = tmp_path / "text", tmp_path / "empty"
    text.write_text("time_us,app,client\n" * 100)
    empty.touch()
    trace = tmp_path / "trace.csv"
    for wrong in (text, empty):
        assert refused(wrong, "-o", trace).startswith(f"{wrong}: not a Darshan log, or a truncated one: ")
    assert refused(tmp_path, "-o", trace) == f"{tmp_path}: cannot be read: Is a directory"
    assert refused("/dev/null", "-o", trace) == "/dev/null: expected a regular file"
    gone = tmp_path / "gone"
    assert refused(gone, "-o", trace) == f"{gone}: cannot be read: No such file or directory"
    plain = example("example.darshan")
    assert refused(plain, "-o", trace) == (
        f"{plain}: the log has no DXT records; run the job with DXT_ENABLE_IO_TRACE=1"
    )
    one = example("dxt.darshan")
    assert refused(one, "--module", MODULES[1]) == f"{one}: the log has no DXT_MPIIO records, only DXT_POSIX"
    assert not trace.exists()
    assert sorted(os.listdir(tmp_path)) == ["empty", "text"]


def test_an_output_that_cannot_be_written_is_named(log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(log.read_bytes())
    assert refused(copy, "-o", copy) == f"{copy}: the trace would replace the log"
    assert copy.read_bytes() == log.read_bytes()
    assert refused(log, "-o", tmp_path) == f"{tmp_path}: cannot be written: Is a directory"
    lost = tmp_path / "no" / "trace.csv"
    assert refused(log, "-o", lost) == f"{lost}: cannot be written: No such file or directory"
    assert refused(log, "-o", "/dev/full") == "/dev/full: cannot be written: No space left on device"
    assert os.listdir(tmp_path) == ["copy"]


def test_wrong_flags_are_refused(tmp_path: Path) -> None:
    for flags, words in (
        (["--app", "4294967296"], "expected a number from 0 to 4294967295, found '4294967296'"),
        (["--app", "-1"], "expected a number from 0 to 4294967295, found '-1'"),
        (["--module", "STDIO"], "invalid choice: 'STDIO'"),
    ):
        done = run(tmp_path / "log", *flags)
        assert done.returncode == 2
        assert words in done.stderr


def test_without_the_darshan_package_it_says_what_to_install(log: Path) -> None:
    # Without site-packages only the standard library is there.
    command = [sys.executable, "-S", "-m", "iogate.darshan", str(log)]
    done = subprocess.run(
        command, cwd=ROOT / "python", capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"iogate.darshan: {log}: the Python package darshan is missing; "
        "install it with: pip install darshan\n"
    )


def outcome(data: bytes, folder: Path) -> bytes | None:
    """The trace of a log with these bytes, or nothing if it is refused; fails if anything else happens."""
    # A fork of a process that has loaded the package is ten times faster.
    import darshan.backend.cffi_backend  # noqa: F401, PLC0415

    log, trace = folder / "log.darshan", folder / "trace.csv"
    log.write_bytes(data)
    trace.unlink(missing_ok=True)
    try:
        convert(Settings(str(log), str(trace)))
    except ConversionError as error:
        assert str(error).startswith(f"{log}: ")
        assert "\n" not in str(error)
        assert os.listdir(folder) == ["log.darshan"]
        return None
    assert sorted(os.listdir(folder)) == ["log.darshan", "trace.csv"]
    return trace.read_bytes()


@pytest.mark.parametrize("name", ["ior_hdf5_example", "dxt"])
def test_a_truncated_log_never_gives_a_part_of_its_trace(name: str, tmp_path: Path) -> None:
    data = example(f"{name}.darshan").read_bytes()
    whole = outcome(data, tmp_path)
    assert whole is not None
    # The last bytes of a log can belong to other modules, so that nothing lacks without them.
    for length in range(0, len(data), len(data) // 150):
        assert outcome(data[:length], tmp_path) in (None, whole), f"the first {length} bytes"
    assert outcome(data[: len(data) // 2], tmp_path) is None


def test_a_damaged_log_is_refused_or_read(log: Path, tmp_path: Path) -> None:
    data = bytearray(log.read_bytes())
    refusals = 0
    for position in range(0, len(data), 25):
        data[position] ^= 0xFF
        refusals += outcome(bytes(data), tmp_path) is None
        data[position] ^= 0xFF
    assert refusals > 0
