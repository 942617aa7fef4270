"""The runs of a sweep, as the report tells them apart: :func:`read_runs`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.report.command import given_settings
from agents.report.paper_numbers import METHODS
from agents.runs.folder import RunError
from agents.sweeps.results import read_rows

__all__ = [
    "WRONG_VALUES",
    "Run",
    "finished_rows",
    "identity",
    "read_runs",
    "runs_of_rows",
    "wrong_line",
]

# Settings that tell cells of a table apart, or do not change what is learned.
_NOT_A_VARIANT = (
    "env",
    "data",
    "validation",
    "imbalance",
    "seed",
    "evaluations",
    "threads",
)


#: What using a value of a wrong type or size leads to.
WRONG_VALUES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class Run:
    """One finished run.

    Attributes:
        key: a name that no other run has.
        method: the row of a table that it belongs to.
        stream: what it learned from; scores on held-out data have a stream of their
            own, as they cannot be compared with those on test data.
        imbalance: ``r``.
        seed: its seed.
        policy: of its memory.
        settings: that it was given.
        row: everything that is known of it.
    """

    key: str
    method: str
    stream: str
    imbalance: int
    seed: int
    policy: str
    settings: dict[str, Any]
    row: dict[str, Any]

    @property
    def result(self) -> dict[str, Any]:
        """Settings, scores and memory."""
        found: dict[str, Any] = self.row["result"]
        return found

    @property
    def benchmark(self) -> str:
        """What it learned from, wherever it was tested."""
        return str(self.result["stream"])

    @property
    def held_out(self) -> bool:
        """Whether its scores are on held-out data, as those of a tuning are."""
        return _is_held_out(self.result)

    @property
    def diverged(self) -> bool:
        """Whether its training diverged; it has no scores then."""
        return "diverged_at_step" in self.result

    def value(self, measure: str) -> float | None:
        """A number of the result, if it has one and it is finite.

        Raises:
            TypeError: if it has something else in its place.
        """
        found = self.result.get(measure)
        if found is None or not math.isfinite(found):
            return None
        return float(found)


def read_runs(path: str | Path) -> list[Run]:
    """All runs of a sweep.

    Runs of one name with different settings become methods of their own; of two runs
    that differ in the number of evaluations only, the one with more is taken.

    Args:
        path: the folder of the sweep, or its file of results.

    Raises:
        RunError: if there is no such sweep, its file is damaged, or no run is finished.
    """
    return runs_of_rows(finished_rows(path))


def finished_rows(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a sweep, at least one.

    Args:
        path: the folder of the sweep, or its file of results.

    Raises:
        RunError: if there is no such sweep, its file is damaged, or no run is finished.
    """
    rows = read_rows(path)
    if not rows:
        raise RunError(f"{path} has no finished runs: run its sweep first")
    return rows


def runs_of_rows(rows: Iterable[dict[str, Any]]) -> list[Run]:
    """The runs that rows of results tell of; see :func:`read_runs`.

    Args:
        rows: of one or several sweeps; of rows with the same key, the last counts.
    """
    found = {row["key"]: row for row in rows}
    return _with_variants(_without_repeats(_as_run(row) for row in found.values()))


def _as_run(row: dict[str, Any]) -> Run:
    result = row["result"]
    return Run(
        row["key"],
        str(row["method"]),
        _stream(result),
        int(result["imbalance"]),
        int(result["seed"]),
        str(result["policy"]),
        given_settings(result),
        row,
    )


def _is_held_out(result: Mapping[str, Any]) -> bool:
    return bool(result.get("validation"))


def _stream(result: Mapping[str, Any]) -> str:
    return f"{result['stream']}{' (held-out)' if _is_held_out(result) else ''}"


def _variant(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in settings.items() if name not in _NOT_A_VARIANT
    }


def identity(run: Run, method: str) -> str:
    """What is the same of two runs that must give the same result.

    Args:
        run: of any place.
        method: its name there.
    """
    told = (run.stream, method, run.imbalance, run.seed, _variant(run.settings))
    return repr(told)


def _without_repeats(runs: Iterable[Run]) -> list[Run]:
    found: dict[str, Run] = {}
    for run in runs:
        told = identity(run, run.method)
        before = found.setdefault(told, run)
        more, fewer = (each.settings.get("evaluations", 0) for each in (run, before))
        if more > fewer:
            found[told] = run
    return list(found.values())


def _with_variants(runs: list[Run]) -> list[Run]:
    """Runs with names that tell the settings that differ within a cell."""
    cells: dict[tuple[str, str, int], list[Run]] = defaultdict(list)
    for run in runs:
        cells[run.stream, run.method, run.imbalance].append(run)
    differing: dict[str, list[str]] = defaultdict(list)
    for (_, method, _), cell in cells.items():
        variants = [_variant(run.settings) for run in cell]
        names = dict.fromkeys(name for variant in variants for name in variant)
        differing[method] += [
            name
            for name in names
            if len({repr(variant.get(name)) for variant in variants}) > 1
            and name not in differing[method]
        ]
    named = []
    for run in runs:
        words = [f"{name}={run.settings.get(name)}" for name in differing[run.method]]
        method = " ".join([run.method, *words])
        named.append(Run(**{**vars(run), "method": method}))
    return sorted(
        named,
        key=lambda run: (
            run.stream,
            _method_order(run, differing[str(run.row["method"])]),
            run.imbalance,
            run.seed,
        ),
    )


def _method_order(run: Run, differing: Iterable[str]) -> tuple[Any, ...]:
    """Methods are in the order of the paper's tables, others after them.

    Variants of a method are in the order of the values that differ.
    """
    policies = [*METHODS]
    place = policies.index(run.policy) if run.policy in policies else len(policies)
    values = [_value_order(run.settings.get(name)) for name in differing]
    return place, str(run.row["method"]), values, run.method


def _value_order(value: Any) -> tuple[int, float, str]:
    """Nothing comes first, then numbers by size, then words."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, str(value)


def wrong_line(
    rows: Sequence[dict[str, Any]], use: Callable[[list[dict[str, Any]]], object]
) -> str:
    """Where rows stop making sense, as the end of a sentence.

    Args:
        rows: of a file, one of each line.
        use: fails with a row that makes no sense.

    Returns:
        ``": see line 3"``; nothing if each row alone can be used.
    """
    for number, row in enumerate(rows, 1):
        try:
            use([row])
        except WRONG_VALUES:
            return f": see line {number}"
    return ""
