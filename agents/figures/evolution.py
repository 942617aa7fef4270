"""Test accuracies along one run (Figure "The evolution of test accuracies")."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from agents.figures.own_runs import find_rows
from agents.figures.pooling import check_pooled
from agents.figures.settings import SweepFigureSettings
from agents.figures.style import CLASS_COLORS, drawing

__all__ = ["make"]

_MOST_NAMES = 10  # further tasks would fill the picture with names


def make(name: str, settings: SweepFigureSettings, out: Path) -> list[str]:
    """Do the runs that have no result yet, and draw the figure.

    Of results with several imbalances, those with the strongest are drawn.

    Args:
        name: of the figure.
        settings: of the figure.
        out: the file.

    Returns:
        The final accuracies.

    Raises:
        RunError: if runs fail, or results cannot be read or written, or it
            is not clear which of them to draw.
    """
    rows = find_rows(name, settings, out)
    most = max(row["result"]["imbalance"] for row in rows)
    rows = [row for row in rows if row["result"]["imbalance"] == most]
    check_pooled(rows, lambda row: str(row["method"]))
    # A single run of each, as in the paper: that of the lowest seed.
    rows.sort(key=lambda row: row["result"]["seed"], reverse=True)
    single = {row["method"]: row for row in rows}
    order = sorted(single, key=lambda method: method != "RS")
    lines = ["accuracy after the last step (%)"]
    with drawing(out, 1, len(order), (1.4 + 3.4 * len(order), 3.2), sharey=True) as (
        figure,
        axes,
    ):
        for axis, method in zip(axes[0], order, strict=True):
            final = _draw(axis, single[method])
            axis.set_title(method)
            lines.append(f"  {method:<10}{final:.1f}")
        axes[0, 0].set_ylabel("test accuracy (%)")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right center")
    return lines


def _draw(axis: Any, row: dict[str, Any]) -> float:
    series = [each for each in row["evaluations"] if "scores" in each]
    ends = row["result"]["task_ends"]
    # Tasks are equally wide: in steps, the long one would hide the others.
    seen = np.interp(
        [each["step"] for each in series], [0, *ends], range(len(ends) + 1)
    )
    scores = 100 * np.array([each["scores"] for each in series])
    for task in range(1, len(ends)):
        axis.axvline(task, color="#8a8a8a", linewidth=0.7, linestyle="--")
    for task, curve in enumerate(scores.T):
        label = f"task {task + 1}" if scores.shape[1] <= _MOST_NAMES else None
        color = CLASS_COLORS[task % len(CLASS_COLORS)]
        axis.plot(seen, curve, linewidth=1, color=color, label=label)
    mean = scores.mean(1)
    axis.plot(seen, mean, linewidth=2.4, color="#111111", label="average")
    axis.set_xlabel("tasks seen")
    return float(mean[-1])
