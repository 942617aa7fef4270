"""How InfoRS holds a long task back (Figure "The reservoir count along with training").

Left: items that entered the reservoir along the run, with each task in turn coming ten
times as often; RS lets all of them in. Right: how uneven the classes in memory are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from agents.figures.own_runs import find_rows
from agents.figures.pooling import check_pooled
from agents.figures.settings import SweepFigureSettings
from agents.figures.style import COLORS, drawing, line_style
from agents.report.statistics import estimate
from agents.runs.folder import RunError

__all__ = ["make"]

_COUNT = "count"  # the method of the left panel's runs


def make(name: str, settings: SweepFigureSettings, out: Path) -> list[str]:
    """Do the runs that have no result yet, and draw the figure.

    Args:
        name: of the figure.
        settings: of the figure.
        out: the file.

    Returns:
        Lines that say what the figure shows.

    Raises:
        RunError: if runs fail, or results cannot be read, pooled or written.
    """
    rows = find_rows(name, settings, out)
    check_pooled(rows, _place_name)
    rows = [row for row in rows if row["result"]["memory"] is not None]
    if not rows:
        raise RunError(f"{settings.results}: no run of these methods has a memory")
    counted = [row for row in rows if row["method"] == _COUNT]
    others = [row for row in rows if row["method"] != _COUNT]
    # Results of a sweep may have the runs of one panel only.
    panels = [
        (draw, its)
        for draw, its in ((_draw_counts, counted), (_draw_variances, others))
        if its
    ]
    lines = []
    with drawing(out, 1, len(panels), (1 + 4.5 * len(panels), 3.4)) as (figure, axes):
        for axis, (draw, its) in zip(axes[0], panels, strict=True):
            lines += draw(axis, its)
        if others:  # lines may be anywhere in the panel
            handles, labels = axes[0, -1].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside right center")
    return lines


def _place_name(row: dict[str, Any]) -> str:
    along = "imbalanced_task" if row["method"] == _COUNT else "imbalance"
    return f"{row['method']}, {along} {row['result'][along]}"


def _draw_counts(axis: Any, rows: list[dict[str, Any]]) -> list[str]:
    lines = ["items that entered the reservoir at the end"]
    by_task = {row["result"]["imbalanced_task"]: row for row in rows}
    longest = 0
    for number, task in enumerate(sorted(by_task)):
        row = by_task[task]
        series = [each for each in row["evaluations"] if "reservoir_count" in each]
        steps = [each["step"] for each in series]
        counts = [each["reservoir_count"] for each in series]
        color = [*COLORS.values()][number % len(COLORS)]
        axis.plot(steps, np.array(counts) / 1000, color=color, label=f"task {task + 1}")
        lines.append(f"  InfoRS, task {task + 1} long: {counts[-1]:,}")
        if steps[-1] > longest:
            longest, size = steps[-1], row["result"]["batch_size"]
    axis.plot(
        [0, longest], [0, longest * size / 1000], "--", color="#111111", label="RS"
    )
    axis.legend(title="ten times as often", loc="upper left")
    axis.set_xlabel("step")
    axis.set_ylabel("reservoir count (thousands)")
    return lines


def _draw_variances(axis: Any, rows: list[dict[str, Any]]) -> list[str]:
    lines = ["variance of the class counts in memory, mean and 95 % interval"]
    ticks = sorted({row["result"]["imbalance"] for row in rows})
    for number, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        found = {}
        for place, imbalance in enumerate(ticks):
            values = [
                row["result"]["memory"]["class_variance"]
                for row in rows
                if (row["method"], row["result"]["imbalance"]) == (method, imbalance)
            ]
            if not values:
                continue
            each = found[place] = estimate(values)
            numbers = f"{each.mean:8.1f}  {each.low:6.1f} to {each.high:6.1f}"
            lines.append(f"  {method:<10} r = {imbalance:<3}{numbers}")
        means = np.array([each.mean for each in found.values()])
        ends = np.array([(each.low, each.high) for each in found.values()]).T
        axis.errorbar(
            [*found],
            means,
            yerr=np.abs(ends - means),
            markersize=4.5,
            capsize=2.5,
            label=method,
            **line_style(method, number),
        )
    axis.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
    axis.set_xlabel("imbalance r")
    axis.set_ylabel("class variance of the memory")
    return lines
