"""Simulated clusters: `iogate.simulate("aioli-one-ior", quick=True)` does what `iogate sim` does.

Scenarios are described in docs/scenarios.md.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Callable, Literal, Protocol, Union, cast

from iogate._extension import extension
from iogate._numbers import U64_MAX, within

if TYPE_CHECKING:
    from iogate import _native
    from iogate._native import Request

Of = Literal["run", "app", "layer"]
"""What something is measured of: a whole run, its applications, or its layers of gates."""

Settings = Union[Mapping[str, Any], Iterable[str]]
"""Keys of a scenario and their values; or texts such as `servers.nodes=4`, as `iogate sim --set` has them."""

Picked = Union["Request", Iterable["Request"], float, None]
"""What a scheduler picks: a request or several, the time to wait until in seconds, or nothing."""


class Scheduler(Protocol):
    """What decides which of the requests of a gate goes next. It may also have `completed` and `depth`.

    `completed(now, file, op, end)` is called when something that was dispatched has been carried out, which
    ended at the byte `end` of the file. `depth` is the most dispatches that it wants in service at once.
    """

    def insert(self, request: Request, /) -> None:
        """Hears of a request that may be carried out from now on."""

    def pick(self, now: float, /) -> Picked:
        """Says what is to be carried out at the time `now`, in seconds; called while something waits.

        Several requests are carried out as one: they are of one file and operation, and each begins where the
        one before it ends. A time in the future: not before that, unless something arrives or completes.
        """


SEEDS_MAX = 100_000
"""The most seeds of a point, as of a scenario's `repetitions`."""


def simulate(  # noqa: PLR0913
    scenario: str | os.PathLike[str],
    *,
    set: Settings = (),
    schedulers: Mapping[str, Callable[[], Scheduler]] | None = None,
    quick: bool = False,
    seeds: int | None = None,
    seed: int | None = None,
    threads: int | None = None,
) -> Results:
    """Runs all points of a scenario with all seeds, in virtual time and without the interpreter's lock.

    Args:
        scenario: A file, the name of a scenario that comes with iogate, or the text of one (TOML).
        set: Keys to set, after those of the scenario. A list makes a sweep, where the key takes no list.
        schedulers: What makes a scheduler for each gate whose `scheduler` is `own:NAME`, by its name: a
            class, or another callable without arguments. They are called by the calling thread.
        quick: Whether the scenario's quick form is meant.
        seeds: How often each point is run, each time with another seed; `None` is as the scenario says.
        seed: The first seed; `None` is as the scenario says.
        threads: How many threads run at the same time; `None` is as many as there are processors, and one
            with schedulers in Python.

    Raises:
        OSError: The file cannot be read.
        ValueError: Something is wrong with the scenario or what is set.
        TypeError: `quick` is neither True nor False, or a setting is no value.
        RuntimeError: A run fails, or a scheduler does what it must not.
        Exception: Whatever a scheduler, or the handler of a signal, raises; it ends the runs.

    Warns:
        UserWarning: Random accesses come out faster than on a disk (docs/devices.md).
    """
    if not isinstance(quick, bool):
        raise TypeError(f"quick: expected True or False, found {quick!r}")
    if seeds is not None and not 1 <= seeds <= SEEDS_MAX:
        raise ValueError(f"seeds = {seeds} is out of range: expected 1 to {SEEDS_MAX}")
    within("threads", threads, 0, U64_MAX)
    text = os.fspath(scenario)
    is_text = isinstance(scenario, str) and ("\n" in text or ("=" in text and not os.path.exists(text)))
    settings = _settings(set)
    settings += [f"repetitions={seeds}"] if seeds is not None else []
    settings += [f"seed={seed}"] if seed is not None else []
    # A path object is never a name.
    if not isinstance(scenario, str) and "/" not in text:
        text = os.path.join(".", text)
    report = extension().simulate(
        text,
        is_text=is_text,
        settings=settings,
        quick=quick,
        threads=threads,
        schedulers=dict(schedulers or {}),
    )
    return Results(report)


class Results:
    """What a scenario gave: for each point of its sweep what was measured, in all its runs.

    As text it is the table that `iogate sim` prints.
    """

    def __init__(self, report: _native.Report) -> None:
        """What the extension has measured."""
        self._report = report
        self._read: dict[str, Any] | None = None

    def json(self) -> str:
        """The bytes that `iogate sim --json` writes for the same scenario."""
        return self._report.json()

    def csv(self) -> str:
        """The bytes that `iogate sim --csv` writes: a line for each metric, with its mean and interval."""
        return self._report.csv()

    def html(self) -> str:
        """A page with pictures, as `iogate sim --html` writes it."""
        return self._report.html()

    def to_dict(self) -> dict[str, Any]:
        """Everything that the JSON has."""
        if self._read is None:
            self._read = json.loads(self.json())
        return cast("dict[str, Any]", self._read)

    def rows(self, of: Of = "run") -> list[dict[str, Any]]:
        """A row for each run of each point, of each of its applications, or of each of its layers.

        A row has a value for each key that varies, `seed`, `name` (but for runs), and the metrics, whose
        meanings `metrics` has; one that could not be measured is `None`. `pandas.DataFrame` takes this.
        """
        if of not in ("run", "app", "layer"):
            raise ValueError(f"of: expected 'run', 'app' or 'layer', found {of!r}")
        report = self.to_dict()
        metrics = list(self.metrics(of))
        rows = []
        for point in report["points"]:
            settings = {axis["key"]: point["settings"].get(axis["key"]) for axis in report["axes"]}
            measured = [point] if of == "run" else point[f"{of}s"]
            for one in measured:
                values = {metric["name"]: metric.get("values", []) for metric in one["metrics"]}
                names = [*metrics, *(name for name in values if name not in metrics)]
                name = {} if of == "run" else {"name": one["name"]}
                for index, seed in enumerate(point["seeds"]):
                    row = {**settings, "seed": seed, **name}
                    row |= {name: _at(values.get(name, []), index) for name in names}
                    rows.append(row)
        return rows

    def columns(self, of: Of = "run") -> dict[str, list[Any] | array[float]]:
        """The same by columns: metrics as arrays of numbers, with NaN for what could not be measured."""
        rows = self.rows(of)
        # Reasons to wait are not in every row.
        names = list(dict.fromkeys(name for row in rows for name in row))
        axes = {axis["key"] for axis in self.to_dict()["axes"]} | {"seed", "name"}
        columns: dict[str, list[Any] | array[float]] = {}
        for name in names:
            values = [row.get(name) for row in rows]
            is_metric = name not in axes
            columns[name] = (
                array("d", (float("nan") if value is None else value for value in values))
                if is_metric
                else values
            )
        return columns

    def metrics(self, of: Of = "run") -> dict[str, str]:
        """What the metrics mean, with their units, by name."""
        metrics = (metric for metric in self.to_dict()["metrics"] if metric["of"] == of)
        return {metric["name"]: f"{metric['meaning']} ({metric['unit']})" for metric in metrics}

    def __str__(self) -> str:
        """The table that `iogate sim` prints."""
        return self._report.text()

    def __repr__(self) -> str:
        """The title, and how many points there are."""
        report = self.to_dict()
        return f"<iogate.Results {report['title']!r}, {len(report['points'])} points>"


def _at(values: list[float], index: int) -> float | None:
    return values[index] if index < len(values) else None


def _settings(settings: Settings) -> list[str]:
    """Each as `key=value`."""
    if isinstance(settings, str):
        raise TypeError(
            f"set: expected a dict or a list of texts such as 'servers.nodes=4', found {settings!r}"
        )
    if isinstance(settings, Mapping):
        # Outside of lists and tables a text may stand without quotes.
        return [
            f"{key}={value}" if isinstance(value, str) else f"{key}={_toml(value)}"
            for key, value in settings.items()
        ]
    return list(settings)


def _toml(value: Any) -> str:
    """A value as a scenario has it."""
    if isinstance(value, (bool, str)):
        # A text of JSON is one of TOML.
        return json.dumps(value, ensure_ascii=False)
    # Not as those say it that are derived from them, as numbers of numpy and those with names.
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple, range)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # Of numpy: other numbers, and arrays.
    if hasattr(value, "tolist"):
        return _toml(value.tolist())
    raise TypeError(f"set: expected a text, a number, a list or a dict, found {value!r}")
