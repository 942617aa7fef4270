"""Which results make one point of a figure: seeds that nothing else tells apart."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from agents.report.command import given_settings
from agents.report.paper_numbers import METHODS
from agents.runs.folder import RunError
from agents.supervised.config import ExperimentConfig

__all__ = ["check_pooled", "figure_name", "merge_rows"]

Row = dict[str, Any]

_FIELDS = dataclasses.fields(ExperimentConfig)
# Settings that older results lack were not there, or as they are by default.
_DEFAULTS = {
    field.name: field.default for field in _FIELDS if field.metadata["matters"]
}
_NOT_LEARNING = ("evaluations", "threads")


def figure_name(row: Row) -> str:
    """What figures call the method of a row: the paper's name, if it has no own one.

    Args:
        row: a result; of a sweep from the command line, policies are the methods.

    Example:
        >>> figure_name({"method": "infors", "result": {"policy": "infors"}})
        'InfoRS'
        >>> figure_name({"method": "mine", "result": {"policy": "infors"}})
        'mine'
    """
    method = str(row["method"])
    is_policy = row["result"].get("policy") == method
    return METHODS.get(method, method) if is_policy else method


def merge_rows(found: Mapping[str, Iterable[Row]]) -> list[Row]:
    """The rows of several folders; a run with the same result in two counts once.

    Args:
        found: rows by their folder.

    Returns:
        Rows; of the same run, that with the most evaluations.

    Raises:
        RunError: if a run has other numbers in another folder.
    """
    merged: dict[Any, tuple[str, Row]] = {}
    for folder, rows in found.items():
        for row in rows:
            told = _identity(row)
            before, other = merged.setdefault(told, (folder, row))
            if not _same_numbers(row["result"], other["result"]):
                places = " and ".join(dict.fromkeys([before, folder]))
                raise RunError(
                    f"{places} have different results of the same run "
                    f"({_run_name(row)}): give one of them"
                )
            if _evaluations(row) > _evaluations(other):
                merged[told] = folder, row
    return [row for _, row in merged.values()]


def _settings(row: Row) -> dict[str, Any]:
    return {**_DEFAULTS, **given_settings(row["result"])}


def _identity(row: Row) -> tuple[Any, ...]:
    settings = _settings(row)
    del settings["evaluations"]
    return (row["method"], *settings.items())


def _evaluations(row: Row) -> int:
    return int(row["result"].get("evaluations", 0))


def _same_numbers(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether all that came out is the same, as far as both have it."""
    names = (one.keys() & other.keys()) - _DEFAULTS.keys()
    # As text: what is not a number is the same as itself then.
    return all(json.dumps(one[name]) == json.dumps(other[name]) for name in names)


def _run_name(row: Row) -> str:
    its = row["result"]
    words = [f"{name} {its[name]}" for name in ("imbalance", "seed") if name in its]
    return ", ".join([str(its["stream"]), str(row["method"]), *words])


def check_pooled(
    rows: Iterable[Row],
    place_of: Callable[[Row], str],
    ignored: Collection[str] = _NOT_LEARNING,
) -> None:
    """Refuse runs at one place of a figure that differ in more than the seed.

    The seed may choose the task that comes more often, so that differs as well; but
    not between runs of the same seed.

    Args:
        rows: results of runs.
        place_of: what the place of a row in the figure is called.
        ignored: settings that do not change what the figure shows.

    Raises:
        RunError: naming the settings and their values.

    Example:
        >>> rows = [{"method": "RS", "result": {"capacity": n}} for n in (20, 50)]
        >>> check_pooled(rows, lambda row: row["method"])
        Traceback (most recent call last):
            ...
        agents.runs.folder.RunError: runs of RS must differ in the seed only, but have
        capacity 20, 50: give results with one value
    """
    places: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        places[place_of(row)].append(_settings(row))
    for place, found in places.items():
        names = _DEFAULTS.keys() - {"seed", "imbalanced_task", *ignored}
        differing = _differing(found, names)
        for same in _by_seed(found):
            differing = differing or _differing(same, _DEFAULTS.keys() - {"seed"})
        if differing:
            told = "; ".join(
                f"{name} {', '.join(map(str, values))}"
                for name, values in differing.items()
            )
            raise RunError(
                f"runs of {place} must differ in the seed only, but have {told}: give "
                "results with one value"
            )


def _by_seed(found: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    seeds: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for settings in found:
        seeds[settings["seed"]].append(settings)
    return [*seeds.values()]


def _differing(
    found: list[dict[str, Any]], names: Collection[str]
) -> dict[str, list[Any]]:
    """The values of those settings that do not have the same one everywhere."""
    values = {name: {each[name] for each in found} for name in _DEFAULTS}
    return {
        name: sorted(several, key=lambda value: (value is None, value))
        for name, several in values.items()
        if name in names and len(several) > 1
    }
