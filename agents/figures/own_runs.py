"""The runs that a figure is drawn from: :func:`find_rows`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from agents.figures.pooling import figure_name, merge_rows
from agents.figures.settings import RUN_SETTINGS, SweepFigureSettings, parse_numbers
from agents.runs.folder import RunError
from agents.sweeps.grid import Job, make_jobs
from agents.sweeps.progress import run_with_progress
from agents.sweeps.results import read_rows

__all__ = ["describe_runs", "find_rows", "own_folder"]

#: Rows of results by the folder that they are from.
Found = dict[str, list[dict[str, Any]]]

_DESCRIPTIONS = Path(__file__).parent / "sweeps"


def describe_runs(name: str, settings: SweepFigureSettings) -> dict[str, Any]:
    """The description of a figure's runs, as a sweep has one.

    Args:
        name: of the figure.
        settings: that win over the description.

    Example:
        >>> settings = SweepFigureSettings(env="SplitCIFAR10", seeds="0-2")
        >>> described = describe_runs("greedy", settings)
        >>> described["env"], described["seed"], [*described["methods"]]
        ('SplitCIFAR10', [0, 1, 2], ['InfoGS', 'InfoGS-RS', 'InfoRS'])
    """
    text = (_DESCRIPTIONS / f"{name}.yaml").read_text()
    described: dict[str, Any] = yaml.safe_load(text)
    for setting in RUN_SETTINGS:
        if (value := getattr(settings, setting)) is not None:
            described[setting] = value
    if settings.seeds is not None:
        described["seed"] = parse_numbers("seeds", settings.seeds)
    return described


def own_folder(out: Path) -> Path:
    """The folder of a figure's own runs, beside the picture.

    Args:
        out: the picture.

    Example:
        >>> own_folder(Path("figures/budget.png")).name
        'budget'
    """
    return out.with_suffix("")


def find_rows(
    name: str, settings: SweepFigureSettings, out: Path
) -> list[dict[str, Any]]:
    """The results of a figure's methods; runs that have none yet are done first.

    Args:
        name: of the figure.
        settings: where results are, or which runs to do.
        out: the picture.

    Returns:
        Rows of finished runs that did not diverge, in the order of the description's
        methods, then by imbalance, weight of stored outputs and seed. Of own runs,
        exactly those that the settings ask for.

    Raises:
        RunError: if there are no results of these methods, they are damaged, two
            folders have different ones of the same run, or a run failed.
        ValueError: if the settings cannot be run.
    """
    described = describe_runs(name, settings)
    methods = [*described["methods"]]
    if settings.methods is not None:
        methods = [name.strip() for name in settings.methods.split(";")]
    if settings.results is None:
        found = _own_rows(make_jobs(described), settings, own_folder(out))
    else:
        folders = [part.strip() for part in settings.results.split(",")]
        found = {folder: read_rows(folder) for folder in folders}
        _tell_left_out(found, methods)
    merged = merge_rows(
        {folder: _of_methods(rows, methods) for folder, rows in found.items()}
    )
    wanted = [row for row in merged if row["result"]["average"] is not None]
    if not wanted:
        raise RunError(
            f"{', '.join(found)}: no finished run of a method of this figure "
            f"({', '.join(methods)}); {_methods_text(found)}"
        )

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        its = row["result"]
        order = methods.index(row["method"])
        return order, its["imbalance"], its["alpha"], its["seed"]

    return sorted(wanted, key=place)


def _own_rows(jobs: list[Job], settings: SweepFigureSettings, folder: Path) -> Found:
    """Do the runs that have no result yet; the folder may have others as well."""
    report = run_with_progress(
        jobs, folder, mixed=settings.mixed, workers=settings.workers
    )
    for reason, log in report.failed.values():
        raise RunError(f"a run failed: {reason} ({log})")
    keys = {job.key for job in jobs}
    return {str(folder): [row for row in read_rows(folder) if row["key"] in keys]}


def _tell_left_out(found: Found, methods: list[str]) -> None:
    """Name on the standard error what is in the results and not in the figure."""
    rows = (row for rows in found.values() for row in rows)
    others = [*dict.fromkeys(map(figure_name, rows)).keys() - {*methods}]
    if others:
        names = "; ".join(sorted(others))
        print(f"left out (--methods draws others): {names}", file=sys.stderr)


def _of_methods(rows: list[dict[str, Any]], methods: list[str]) -> list[dict[str, Any]]:
    """Supervised runs of some methods, with the names that the figure has for them."""
    named = [
        {**row, "method": figure_name(row)}
        for row in rows
        if {"average", "stream"} <= row["result"].keys()
    ]
    return [row for row in named if row["method"] in methods]


def _methods_text(found: Found) -> str:
    there = dict.fromkeys(str(row["method"]) for rows in found.values() for row in rows)
    return f"found {', '.join(there)}" if there else "found no method at all"
