"""Traces in and out."""

from __future__ import annotations

import io
import itertools
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_SECONDS, ROOT, built, printed

from iogate import traces
from iogate.traces import Row


@pytest.fixture(autouse=True)
def extension() -> None:
    built("python/iogate/_native.abi3.so", "python/build")


def rows(count: int, *, seed: int = 1) -> list[Row]:
    """Any, with all that there can be."""
    chance = random.Random(seed)
    time, made = 0, []
    for _ in range(count):
        time += chance.choice([0, 1, 999, 1000, 12345, 10**9])
        size = chance.choice([1, 4096, 2**32 - 1])
        made.append(
            Row(
                time / 1e9,
                chance.randrange(2**32),
                chance.randrange(2**32),
                chance.choice(["1", "007", "a/b", 'with "quotes", and commas', "\u00e4 file"]),
                chance.choice(["read", "write"]),
                chance.randrange(2**64 - size),
                size,
                chance.choice([None, 0, 4095]),
                chance.choice([None, 0.0, 12.345678901]),
                chance.choice([None, (time + 17) / 1e9]),
                chance.choice([0, 0, 3]),
            )
        )
    return made


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    written = rows(5000)
    assert traces.write(path, iter(written), also=["target", "issued", "done", "lost"]) == 5000
    assert list(traces.read(path)) == written
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.csv"]
    again = io.StringIO()
    traces.write(again, traces.read(path), also=["target", "issued", "done", "lost"])
    assert again.getvalue() == path.read_text(encoding="utf-8")


def test_a_trace_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    old = tmp_path / "old.csv"
    old.touch(0o600)
    before = os.umask(0o027)
    try:
        for path in (old, tmp_path / "new.csv"):
            traces.write(path, rows(1), also=traces.ALSO)
            assert path.stat().st_mode & 0o7777 == 0o640
    finally:
        os.umask(before)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_trace_is_replaced_through_its_link(is_there: bool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    trace, link = tmp_path / "folder/trace.csv", tmp_path / "link"
    if is_there:
        trace.write_text("old")
    link.symlink_to("folder/trace.csv")
    written = rows(10)
    with pytest.raises(ValueError, match="row 1"):
        traces.write(link, [written[0]._replace(bytes=0)])
    assert trace.exists() == is_there
    traces.write(link, written, also=traces.ALSO)
    assert (os.readlink(link), list(traces.read(trace))) == ("folder/trace.csv", written)
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["folder", "link", "trace.csv"]


PRINTS_A_TRACE = """
import sys
from iogate import traces
print("before")
traces.write(sys.argv[1], [traces.Row(1.0, 1, 2, "f", "read", 0, 3)])
print("after")
"""
PRINTED = "before\ntime_us,app,client,file,op,offset,bytes\n1000000,1,2,f,r,0,3\nafter\n"


def test_a_trace_may_go_to_pipes_and_to_standard_output(tmp_path: Path) -> None:
    # Such as /dev/stdout, which root would lose if the test failed.
    stdout = tmp_path / "stdout"
    stdout.symlink_to("/proc/self/fd/1")
    assert printed("-c", PRINTS_A_TRACE, stdout) == PRINTED
    redirected = tmp_path / "out"
    with redirected.open("w") as out:
        program = [sys.executable, "-c", PRINTS_A_TRACE, str(stdout)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        subprocess.run(program, stdout=out, env=environment, timeout=PATIENCE_SECONDS, check=True)
    assert redirected.read_text() == PRINTED
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Open for both, so that nobody waits for the other end.
    with open(os.open(pipe, os.O_RDWR), "rb", buffering=0) as end:
        traces.write(pipe, [Row(1.0, 1, 2, "f", "read", 0, 3)])
        assert f"before\n{end.read(4096).decode()}after\n" == PRINTED
    assert pipe.is_fifo()
    assert stdout.is_symlink()


def test_a_trace_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for path, error in (
        (tmp_path / "no" / "trace.csv", FileNotFoundError),
        (tmp_path, IsADirectoryError),
    ):
        with pytest.raises(error) as raised:
            traces.write(path, rows(1), also=traces.ALSO)
        assert raised.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []


def test_the_program_replays_it(program: Path, tmp_path: Path) -> None:
    plain = [Row(n * 1e-4, 1, n % 4 + 1, "file", "read", 4096 * (n // 4), 4096) for n in range(400)]
    traces.write(tmp_path / "trace.csv", plain)
    command = [str(program), "replay", str(tmp_path / "trace.csv"), "--device", "hdd"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert "requests    400 (1.56 MiB)" in done.stdout


def test_it_is_read_as_it_goes(tmp_path: Path) -> None:
    class Endless(io.RawIOBase):
        asked = 0

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            self.asked += 1
            head = b"time_us,app,client,file,op,offset,bytes\n" if self.asked == 1 else b""
            return head + b"0,0,0,f,r,0,1\n" * 1000

    found = list(itertools.islice(traces.read(Endless()), 5000))
    assert len(found) == 5000
    with open(tmp_path / "t", "wb+") as file:
        file.write(b"time_us,app,client,file,op,offset,bytes\n1.5,0,0,f,w,0,1\n")
        file.seek(0)
        assert list(traces.read(file)) == [Row(1.5e-6, 0, 0, "f", "write", 0, 1)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1"),
        ("time_us,app\n", "line 1"),
        ("time_us,app,client,file,op,offset,bytes\n1,0,0,f,x,0,1\n", "line 2, column 5 (op)"),
        ("time_us,app,client,file,op,offset,bytes\n2,0,0,f,r,0,1\n1,0,0,f,r,0,1\n", "not before 2"),
    ],
)
def test_what_is_no_trace_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as raised:
        list(traces.read(path))
    assert said in str(raised.value)


def test_what_a_file_raises_comes_out() -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        list(traces.read(Broken()))
    with pytest.raises(FileNotFoundError):
        list(traces.read("/nothing/here.csv"))
    with pytest.raises(TypeError):
        list(traces.read(io.StringIO("text")))  # type: ignore[arg-type]


GOOD: dict[str, Any] = {
    "time": 1.0,
    "app": 0,
    "client": 0,
    "file": "f",
    "op": "read",
    "offset": 0,
    "bytes": 1,
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"time": -1.0}, "row 2: time: expected seconds"),
        ({"time": 0.5}, "row 2: expected a time not before 1.0"),
        ({"time": float("nan")}, "row 2: time"),
        ({"app": 2**32}, "row 2: app: expected a number below 2^32, found 4294967296"),
        ({"file": "a\nb"}, "a name in one line"),
        ({"op": "append"}, "'read' or 'write'"),
        ({"bytes": 0}, "row 2: bytes"),
        ({"offset": 2**64 - 1}, "row 2: offset"),
        ({"done": 0.5}, "not before the arrival"),
        ({"target": 4096}, "row 2: target: expected a number below 4096"),
        ({"lost": 2**64}, "row 2: lost"),
        ({"offset": 8192 / 2}, "row 2: offset: expected a whole number, found 4096.0"),
        ({"app": "1"}, "row 2: app: expected a whole number, found '1'"),
        ({"target": 3.0}, "row 2: target: expected a whole number, found 3.0"),
        ({"time": "1"}, "row 2: time: expected seconds"),
        ({"file": 7}, "row 2: file: expected a name in one line, found 7"),
        ({"file": "\u00e4" * 33_000}, "row 2: file: expected a name with which a line has at most 64 KiB"),
        ({"done": 2.0}, "it has done; expected also=['done', ...]"),
    ],
)
def test_rows_that_there_cannot_be(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as raised:
        traces.write(tmp_path / "trace.csv", [Row(**GOOD), Row(**{**GOOD, **change})])
    assert said in str(raised.value)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="expected some of target, issued, done, lost"):
        traces.write(tmp_path / "trace.csv", [], also=["size"])  # type: ignore[list-item]


def test_whole_numbers_of_any_type_are_written_as_numbers(tmp_path: Path) -> None:
    class Whole:
        def __index__(self) -> int:
            return 7

    path = tmp_path / "trace.csv"
    numbers: dict[str, Any] = {"app": Whole(), "client": True, "offset": Whole(), "target": Whole()}
    traces.write(path, [Row(**{**GOOD, **numbers})], also=["target"])
    (row,) = traces.read(path)
    assert (row.app, row.client, row.offset, row.target) == (7, 1, 7, 7)
    name = '"' * 30_000
    traces.write(path, [Row(**{**GOOD, "file": name})])
    assert [row.file for row in traces.read(path)] == [name]


def test_the_program_of_the_documentation(tmp_path: Path) -> None:
    text = (ROOT / "docs/traces.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    trace = [Row(1.0 * n, 1, 1, "f", "read" if n % 2 else "write", n, 1) for n in range(10)]
    traces.write(tmp_path / "trace.csv", trace)
    said = printed("-c", program, cwd=tmp_path)
    assert said == "5 reads, twice as fast\n"
    assert [row.time for row in traces.read(tmp_path / "reads.csv")] == [0.5, 1.5, 2.5, 3.5, 4.5]
