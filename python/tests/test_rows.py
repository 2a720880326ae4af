"""What becomes of segments, without a log."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from iogate.darshan import ConversionError, Log, _opened
from iogate.traces import micros


def segment(start_s: float, offset: int, length: int) -> dict[str, Any]:
    """A segment as the darshan package has it."""
    return {"offset": offset, "length": length, "start_time": start_s, "end_time": start_s + 1}


def test_records_are_merged_in_order_of_time_and_a_tie_in_order_of_the_log() -> None:
    log = Log(7, "DXT_POSIX", [])
    log.add("/a", 0, [segment(2, 0, 10)], [segment(3, 10, 20), segment(1, 30, 40)])
    log.add("/b", 4, [segment(2, 5, 6), segment(0.0000015, 7, 8)], [])
    assert list(log.rows()) == [
        ("1.5", 7, 5, "/b", "r", 7, 8),
        ("1000000", 7, 1, "/a", "w", 30, 40),
        ("2000000", 7, 1, "/a", "r", 0, 10),
        ("2000000", 7, 5, "/b", "r", 5, 6),
        ("3000000", 7, 1, "/a", "w", 10, 20),
    ]


def test_segments_of_zero_length_are_left_out_and_early_ones_put_at_the_start() -> None:
    log = Log(7, "DXT_POSIX", [], partial=True)
    log.add("/a", 0, [segment(1, 0, 0), segment(-1, 0, 1)], [segment(2, 0, 0)])
    assert list(log.rows()) == [("0", 7, 1, "/a", "r", 0, 1)]
    assert log.summary(1) == (
        "1 rows from 1 records of DXT_POSIX; 2 segments of zero length left out; 1 segments from before "
        "the job's start put at time 0; Darshan ran out of memory and left some out (DARSHAN_MODMEM gives it "
        "more)"
    )


@pytest.mark.parametrize(
    ("length", "lengths"),
    [
        (2**32 - 1, [2**32 - 1]),
        (2**32, [2**31, 2**31]),
        (2**32 + 1, [2**31, 2**31, 1]),
        (3 * 2**31, [2**31, 2**31, 2**31]),
    ],
)
def test_a_segment_that_no_row_can_hold_becomes_several(length: int, lengths: list[int]) -> None:
    log = Log(1, "DXT_POSIX", [])
    log.add("/a", 0, [], [segment(0, 100, length)])
    rows = list(log.rows())
    assert [row[6] for row in rows] == lengths
    assert [row[5] for row in rows] == [100 + sum(lengths[:index]) for index in range(len(lengths))]


def test_the_application_is_the_job_modulo_two_to_the_32_or_the_one_given() -> None:
    log = Log(2**32 + 5, "DXT_POSIX", [])
    log.add("/a", 0, [segment(0, 0, 1)], [])
    assert [row[1] for row in log.rows()] == [5]
    assert [row[1] for row in log.rows(app=0)] == [0]


@pytest.mark.parametrize(("offset", "length"), [(-1, 5), (0, -5), (0, 2**42 + 1), (0, 2**62)])
def test_a_segment_that_cannot_be_is_refused(offset: int, length: int) -> None:
    with pytest.raises(ConversionError, match=f"found offset {offset}, length {length} in a segment of '/a'"):
        Log(1, "DXT_MPIIO", []).add("/a", 0, [segment(0, offset, length)], [])


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [(0, "0"), (1, "0.001"), (999, "0.999"), (1000, "1"), (10_000, "10"), (1_500, "1.5"), (12_340, "12.34")],
)
def test_times_have_at_most_three_decimals(time_ns: int, text: str) -> None:
    assert micros(time_ns) == text


def test_a_name_that_is_taken_meanwhile_is_said_in_a_line(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    said = f"^{trace}: cannot be written: Is a directory$"
    with pytest.raises(ConversionError, match=said), _opened(str(trace)) as place:
        trace.mkdir()
        assert isinstance(place, str) and Path(place).is_file()
    assert list(tmp_path.iterdir()) == [trace]
    # What is not the output's is not said of it.
    with pytest.raises(OSError, match="No space"), _opened(str(tmp_path / "other.csv")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
