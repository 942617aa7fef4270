"""The tables of a report as numbers: :func:`make_table`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agents.report.paper_numbers import (
    PaperNumber,
    differences_from_paper,
    paper_number,
)
from agents.report.runs import Run
from agents.report.statistics import (
    Estimate,
    difference_in_errors,
    estimate,
    joint_error,
)

__all__ = ["MEASURES", "Agreement", "Cell", "Table", "agreement", "make_table"]

#: What runs are compared by, and its name; more is better for all of them.
MEASURES = {
    "average": "Accuracy",
    "backward_transfer": "Backward transfer",
    "forward_transfer": "Forward transfer",
    "prequential": "Prequential",
}
_CLOSE = 2.0  # joint standard errors


@dataclass
class Cell:
    """One method at one imbalance.

    Attributes:
        ours: over the seeds; ``None`` without a run that has the number.
        diverged: runs that have none because their training diverged.
        best: whether it is the highest of its column.
        close: whether it is within one joint standard error of the highest.
        paper: the paper's number, in the same unit.
        comparable: whether it was measured like the paper's.
        difference: from the paper's, in joint standard errors.
    """

    ours: Estimate | None = None
    diverged: int = 0
    best: bool = False
    close: bool = False
    paper: PaperNumber | None = None
    comparable: bool = True
    difference: float | None = None


@dataclass(frozen=True)
class Table:
    """One measure on one stream.

    Attributes:
        stream: its name.
        benchmark: its name without a word on held-out data.
        measure: a name of :data:`MEASURES`.
        title: what the measure is called on this stream.
        percent: whether numbers are percent.
        methods: rows.
        imbalances: columns.
        cells: by method and imbalance.
        usual_count: number of seeds of most cells.
        differences: what the paper has fixed otherwise, by setting.
    """

    stream: str
    benchmark: str
    measure: str
    title: str
    percent: bool
    methods: list[str]
    imbalances: list[int]
    cells: dict[tuple[str, int], Cell]
    usual_count: int
    differences: dict[str, Any]

    @property
    def is_empty(self) -> bool:
        """Whether there is no number at all."""
        return all(cell.ours is None for cell in self.cells.values())


@dataclass(frozen=True)
class Agreement:
    """How many numbers are like the paper's.

    Attributes:
        close: within two joint standard errors.
        compared: of so many.
    """

    close: int
    compared: int


def make_table(runs: Iterable[Run], stream: str, measure: str) -> Table:
    """The table of one measure on one stream.

    Args:
        runs: of the sweep.
        stream: its name.
        measure: a name of :data:`MEASURES`.
    """
    of_stream = [run for run in runs if run.stream == stream]
    percent = any(run.result.get("metric") == "accuracy" for run in of_stream)
    methods = list(dict.fromkeys(run.method for run in of_stream))
    imbalances = sorted({run.imbalance for run in of_stream})
    cells = {
        (method, imbalance): _cell(
            [r for r in of_stream if (r.method, r.imbalance) == (method, imbalance)],
            measure,
            100.0 if percent else 1.0,
        )
        for method in methods
        for imbalance in imbalances
    }
    for imbalance in imbalances:
        _mark_best([cells[method, imbalance] for method in methods])
    counts = Counter(cell.ours.seeds for cell in cells.values() if cell.ours)
    differences: dict[str, Any] = {}
    for run in of_stream:
        differences |= differences_from_paper(stream, run.settings)
    return Table(
        stream,
        of_stream[0].benchmark,
        measure,
        _title(of_stream, measure),
        percent,
        methods,
        imbalances,
        cells,
        max(counts, key=lambda count: (counts[count], count), default=0),
        differences,
    )


def _title(runs: Sequence[Run], measure: str) -> str:
    """What a measure is called on a stream, from its runs."""
    title = MEASURES[measure]
    if measure == "average":
        # A run that diverged has no metric.
        known = (str(run.result["metric"]) for run in runs if run.result.get("metric"))
        title = next(known, "score")
        title = title[:1].upper() + title[1:]
    # Prequential scores are of what comes along the stream, before it is learned.
    held_out = measure != "prequential" and runs[0].held_out
    return f"{title} on held-out data" if held_out else title


def _cell(runs: list[Run], measure: str, unit: float) -> Cell:
    values = [run.value(measure) for run in runs]
    known = [unit * value for value in values if value is not None]
    cell = Cell(estimate(known) if known else None, sum(run.diverged for run in runs))
    if runs and unit == 100:
        run = runs[0]
        cell.paper = paper_number(measure, run.stream, run.policy, run.imbalance)
        cell.comparable = not any(
            differences_from_paper(each.stream, each.settings) for each in runs
        )
    if cell.ours is not None and cell.paper is not None and cell.comparable:
        cell.difference = difference_in_errors(
            cell.ours.mean, cell.ours.error, cell.paper.mean, cell.paper.error
        )
    return cell


def _mark_best(cells: list[Cell]) -> None:
    """Mark the highest cell of a column, and those that may be as high."""
    known = [(cell, cell.ours) for cell in cells if cell.ours is not None]
    if len(known) < 2:
        return  # nothing to compare with
    _, highest = max(known, key=lambda each: each[1].mean)
    # The same numbers, added up in another order, differ in rounding.
    equal = [math.isclose(ours.mean, highest.mean) for _, ours in known]
    if all(equal):
        return
    for (cell, ours), is_equal in zip(known, equal, strict=True):
        cell.best = is_equal
        joint = joint_error(ours.error, highest.error)
        cell.close = (
            not cell.best and joint is not None and highest.mean - ours.mean <= joint
        )


def agreement(tables: Iterable[Table]) -> Agreement:
    """How many cells agree with the paper's within two joint standard errors.

    Args:
        tables: any; cells without a number of the paper, or of a single seed, or that
            were measured otherwise, do not count.
    """
    differences = [
        cell.difference
        for table in tables
        for cell in table.cells.values()
        if cell.difference is not None
    ]
    return Agreement(sum(abs(each) <= _CLOSE for each in differences), len(differences))
