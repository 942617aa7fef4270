"""The runs that a figure is drawn from: :func:`find_rows`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from agents.figures.settings import SweepFigureSettings, parse_numbers
from agents.runs.folder import RunError
from agents.sweeps.grid import make_jobs
from agents.sweeps.progress import run_with_progress
from agents.sweeps.results import read_rows

__all__ = ["describe_runs", "find_rows", "own_folder"]

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
    for setting in ("env", "epochs"):
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
        methods, then by imbalance, weight of stored outputs and seed.

    Raises:
        RunError: if there are no results of these methods, they are damaged, or a run
            failed.
        ValueError: if the settings cannot be run.
    """
    described = describe_runs(name, settings)
    if settings.results is None:
        folder = own_folder(out)
        report = run_with_progress(make_jobs(described), folder, mixed=settings.mixed)
        for reason, log in report.failed.values():
            raise RunError(f"a run failed: {reason} ({log})")
        folders = [str(folder)]
    else:
        folders = [part.strip() for part in settings.results.split(",")]
    rows = [row for folder in folders for row in read_rows(folder)]
    wanted = [
        row
        for row in {row["key"]: row for row in rows}.values()
        if row["method"] in described["methods"]
        and row["result"].get("average") is not None
    ]
    if not wanted:
        raise RunError(
            f"{', '.join(folders)}: no finished run of a method of this figure "
            f"({', '.join(described['methods'])})"
        )
    methods = [*described["methods"]]

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        its = row["result"]
        order = methods.index(row["method"])
        return order, its["imbalance"], its["alpha"], its["seed"]

    return sorted(wanted, key=place)
