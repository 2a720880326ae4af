"""Traces in and out."""

from __future__ import annotations

import io
import itertools
import random
import re
import subprocess
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


def test_the_program_of_the_documentation(tmp_path: Path) -> None:
    text = (ROOT / "docs/traces.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    trace = [Row(1.0 * n, 1, 1, "f", "read" if n % 2 else "write", n, 1) for n in range(10)]
    traces.write(tmp_path / "trace.csv", trace)
    said = printed("-c", program, cwd=tmp_path)
    assert said == "5 reads, twice as fast\n"
    assert [row.time for row in traces.read(tmp_path / "reads.csv")] == [0.5, 1.5, 2.5, 3.5, 4.5]
