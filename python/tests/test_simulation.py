"""`iogate.simulate` gives what `iogate sim` gives."""

from __future__ import annotations

import json
import math
import subprocess
from array import array
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_SECONDS, PROGRAMS, built, printed

import iogate

TEXT = """
title = "two servers"
repetitions = 3
alone = true

[clients]
nodes = 4

[servers]
nodes = 2
device = "sata-7200-250g"

[[app]]
name = "a"
processes = 4
pattern = "strided"
op = "read"
bytes = "1MiB"
request = "64KiB"

[[app]]
name = "b"
processes = 2
pattern = "contiguous"
op = "write"
bytes = "512KiB"
request = "32KiB"

[sweep]
"servers.gate.scheduler" = ["fifo", "aioli"]
"""


@pytest.fixture(autouse=True)
def extension() -> None:
    built("python/iogate/_native.abi3.so", "python/build")


def told(program: Path, *args: str | Path, cwd: Path | None = None) -> str:
    """What `iogate sim` writes."""
    command = [program, "sim", *args]
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_the_bytes_are_those_of_the_program(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(TEXT, encoding="utf-8")
    settings = ["servers.nodes=[1, 2]", "app.a.request=128KiB"]
    flags = [flag for setting in settings for flag in ("--set", setting)]
    expected = told(program, path, *flags, "--seeds", "2", "--json", "-")
    for scenario in (TEXT, path, str(path)):
        for threads in (1, 2, None):
            results = iogate.simulate(scenario, set=settings, seeds=2, threads=threads)
            assert results.json() == expected
    as_dict = {"servers.nodes": [1, 2], "app.a.request": "128KiB"}
    assert iogate.simulate(path, set=as_dict, seeds=2).json() == expected

    class Count(int):
        """A number that says itself in its own way, as those of numpy."""

        def __repr__(self) -> str:
            return f"Count({int(self)})"

    as_dict["servers.nodes"] = [Count(1), Count(2)]
    assert iogate.simulate(path, set=as_dict, seeds=2).json() == expected
    assert results.csv() == told(program, path, *flags, "--seeds", "2", "--csv", "-")
    assert str(results) == told(program, path, *flags, "--seeds", "2")
    told(program, path, *flags, "--seeds", "2", "--html", tmp_path / "page.html")
    assert results.html() == (tmp_path / "page.html").read_text(encoding="utf-8")
    assert iogate.simulate(path, seed=7).json() == told(program, path, "--seed", "7", "--json", "-")


@pytest.mark.parametrize("name", ["two-readers", "aioli-one-ior", "global-cap"])
def test_so_are_those_of_scenarios_that_come_with_it(program: Path, name: str) -> None:
    results = iogate.simulate(name, quick=True)
    assert results.json() == told(program, name, "--quick", "--json", "-")


def test_files_beside_a_scenario_are_found(program: Path, tmp_path: Path) -> None:
    text = TEXT.replace('[[app]]\nname = "b"', '[[app]]\nname = "b"\nstart = "1ms"')
    path = tmp_path / "plain.toml"
    path.write_text(text, encoding="utf-8")
    expected = told(program, "./plain.toml", "--json", "-", cwd=tmp_path)
    assert iogate.simulate(path).json() == expected


def test_results_as_rows_and_columns() -> None:
    results = iogate.simulate(TEXT)
    points = results.to_dict()["points"]
    assert results.to_dict() == json.loads(results.json())
    runs, apps, layers = results.rows(), results.rows("app"), results.rows("layer")
    assert (len(runs), len(apps), len(layers)) == (6, 12, 6)
    key = "servers.gate.scheduler"
    assert [(row[key], row["seed"]) for row in runs] == [(s, n) for s in ("fifo", "aioli") for n in (1, 2, 3)]
    assert {row["name"] for row in apps} == {"a", "b"}
    for index, point in enumerate(points):
        makespan = next(metric for metric in point["metrics"] if metric["name"] == "makespan")
        assert [row["makespan"] for row in runs[3 * index :][:3]] == makespan["values"]
    assert "seconds" in results.metrics()["makespan"] or "s)" in results.metrics()["makespan"]
    assert set(results.metrics()) <= set(runs[0])
    columns = results.columns("app")
    assert columns["name"] == [row["name"] for row in apps]
    for name in results.metrics("app"):
        column = columns[name]
        assert isinstance(column, array)
        expected = [row[name] for row in apps]
        assert all(
            math.isnan(found) if value is None else found == value for found, value in zip(column, expected)
        )
    assert repr(results) == "<iogate.Results 'two servers', 2 points>"
    with pytest.raises(ValueError, match="expected 'run', 'app' or 'layer', found 'server'"):
        results.rows("server")  # type: ignore[arg-type]


def test_pandas_takes_them() -> None:
    pandas = pytest.importorskip("pandas")
    results = iogate.simulate(TEXT)
    frame = pandas.DataFrame(results.rows("app"))
    other = pandas.DataFrame(results.columns("app"))
    pandas.testing.assert_frame_equal(frame.astype(other.dtypes), other)
    assert frame.groupby("name")["throughput"].count().to_dict() == {"a": 6, "b": 6}


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"scenario": "aioli-one-iro"}, ValueError, "did you mean 'aioli-one-ior'"),
        ({"scenario": "nothing/here.toml"}, FileNotFoundError, "nothing/here.toml cannot be read"),
        ({"scenario": Path("aioli-one-ior")}, FileNotFoundError, "cannot be read"),
        ({"scenario": "title = 3\nclient.nodes = 2"}, ValueError, "the scenario:2: unknown key 'client'"),
        ({"scenario": TEXT, "set": {"servers.node": 3}}, ValueError, "servers.node"),
        ({"scenario": TEXT, "set": ["servers.nodes"]}, ValueError, "expected key=value"),
        ({"scenario": TEXT, "set": "servers.nodes=3"}, TypeError, "expected a dict or a list"),
        ({"scenario": TEXT, "set": {"servers.nodes": object()}}, TypeError, "expected a text, a number"),
        ({"scenario": TEXT, "seeds": 0}, ValueError, "seeds = 0 is out of range: expected 1 to 100000"),
        ({"scenario": TEXT, "quick": 1}, TypeError, "quick: expected True or False, found 1"),
        ({"scenario": TEXT, "threads": -1}, OverflowError, "threads = -1 is out of range"),
        ({"scenario": TEXT, "threads": 0}, ValueError, "expected a number from 1 on"),
        ({"scenario": TEXT, "set": {"servers.gate.scheduler": "own:x"}}, ValueError, "there are none"),
        (
            {"scenario": TEXT, "set": {"servers.gate": {"scheduler": "own:x", "depht": 2}}},
            ValueError,
            "depht",
        ),
        (
            {
                "scenario": TEXT,
                "set": {
                    "clients.gate": {"scheduler": "twins", "split": True, "queue": 1},
                    "servers.stripe": "4KiB",
                },
            },
            RuntimeError,
            "raise `queue`",
        ),
    ],
)
def test_errors_say_what_was_expected(arguments: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error) as raised:
        iogate.simulate(**arguments)
    assert said in str(raised.value)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_ctrl_c_ends_runs_that_are_underway(threads: str) -> None:
    said = printed(PROGRAMS / "interrupted.py", threads)
    assert said == "KeyboardInterrupt in simulate\n"


def test_random_accesses_that_come_out_too_fast_are_warned_of() -> None:
    sparse = TEXT.replace("strided", "random").replace("64KiB", '64KiB"\nfile_bytes = "200GiB')
    with pytest.warns(UserWarning, match="a: random accesses are faster here than on a disk") as warned:
        iogate.simulate(sparse, seeds=1)
    assert [Path(one.filename).name for one in warned] == [Path(__file__).name]
    with pytest.raises(ValueError, match="its device \\('sata-7200-250g'\\) has "):
        iogate.simulate(sparse.replace("200GiB", "200TiB"), seeds=1)
