"""Time of learning and of the memory (Figure "The total running time")."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from agents.figures.own_runs import find_rows
from agents.figures.pooling import check_pooled
from agents.figures.settings import SweepFigureSettings
from agents.figures.style import COLORS, drawing
from agents.report.statistics import estimate

__all__ = ["make"]

_PARTS = {"learning": COLORS["sky"], "memory": COLORS["vermillion"]}


def make(name: str, settings: SweepFigureSettings, out: Path) -> list[str]:
    """Do the runs that have no result yet, and draw the figure.

    Evaluations are left out: they are not part of a method. Of results with several
    imbalances, those with the strongest are drawn.

    Args:
        name: of the figure.
        settings: of the figure.
        out: the file.

    Returns:
        Lines of a table of what the figure shows.

    Raises:
        RunError: if runs fail, or results cannot be read, pooled or written.
    """
    rows = find_rows(name, settings, out)
    most = max(row["result"]["imbalance"] for row in rows)
    rows = [row for row in rows if row["result"]["imbalance"] == most]
    check_pooled(rows, _place_name, ignored=("evaluations",))  # threads take time
    streams = sorted({row["result"]["stream"] for row in rows})
    lines = [
        f"seconds per run at r = {most}: learning, memory, both with 95 % interval"
    ]
    with drawing(out, 1, len(streams), (1.8 + 3.8 * len(streams), 2.6)) as (
        figure,
        axes,
    ):
        for axis, stream in zip(axes[0], streams, strict=True):
            here = [row for row in rows if row["result"]["stream"] == stream]
            methods = [*dict.fromkeys(row["method"] for row in here)]
            for place, method in enumerate(methods):
                spent = [row["seconds"] for row in here if row["method"] == method]
                left = 0.0
                for part, color in _PARTS.items():
                    mean = float(np.mean([each[part] for each in spent]))
                    label = part if place == 0 else None
                    axis.barh(place, mean, left=left, color=color, label=label)
                    left += mean
                total = estimate([sum(each[p] for p in _PARTS) for each in spent])
                ends = [[left - total.low], [total.high - left]]
                axis.errorbar(
                    left, place, xerr=np.abs(ends), color="#111111", capsize=2.5
                )
                memory = float(np.mean([each["memory"] for each in spent]))
                numbers = f"{left - memory:8.1f}{memory:7.1f}{left:8.1f}"
                interval = f"{total.low:.1f} to {total.high:.1f}"
                lines.append(f"  {stream}, {method:<10}{numbers}  ({interval})")
            axis.set_yticks(range(len(methods)), methods)
            axis.invert_yaxis()
            axis.set_xlabel("seconds per run")
            axis.set_title(f"{stream}, r = {most}")
            axis.grid(visible=False, axis="y")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
    return lines


def _place_name(row: dict[str, Any]) -> str:
    return f"{row['result']['stream']}, {row['method']}"
