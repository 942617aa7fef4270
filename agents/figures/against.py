"""Accuracy against a setting, for several methods: one panel per stream and setting.

Imbalance, memory budget, the ablations, criteria and update timing are all of this
kind; :data:`PANELS` says what is drawn against what.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agents.figures.own_runs import find_rows
from agents.figures.pooling import check_pooled
from agents.figures.settings import SweepFigureSettings
from agents.figures.style import drawing, line_style
from agents.report.statistics import Estimate, estimate

__all__ = ["PANELS", "Panel", "group_rows", "make"]

Row = dict[str, Any]


class Panel(NamedTuple):
    """What a panel shows.

    Attributes:
        x: the setting along the axis.
        label: of that axis.
        line: the settings that lines differ in; ``"method"`` for the method's name.
        method: whose runs are in the panel; ``None`` for all.
    """

    x: str
    label: str
    line: tuple[str, ...] = ("method",)
    method: str | None = None


_R = "imbalance r"
#: Panels of each figure, from left to right.
PANELS: dict[str, list[Panel]] = {
    "imbalance": [Panel("imbalance", _R)],
    "greedy": [Panel("imbalance", _R)],
    "criteria": [Panel("imbalance", _R)],
    "budget": [Panel("capacity", "slots of the memory M", ("method", "imbalance"))],
    "timing": [Panel("update_delay", "steps after the task began Δt", ("alpha",))],
    "eta_gamma": [
        Panel("eta", "learnability ratio η", ("imbalance",), "eta"),
        Panel("gamma", "threshold γ$_i$", ("imbalance",), "gamma"),
    ],
    "alpha_beta": [
        Panel("alpha", "weight of stored outputs α", ("imbalance",), "alpha"),
        Panel("beta", "weight of stored labels β", ("imbalance",), "beta"),
    ],
}
_SYMBOLS = {"imbalance": "r", "alpha": "α"}


def make(name: str, settings: SweepFigureSettings, out: Path) -> list[str]:
    """Do the runs that have no result yet, and draw the figure.

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
    streams = sorted({row["result"]["stream"] for row in rows})
    panels = [(stream, panel) for stream in streams for panel in PANELS[name]]
    lines_of_rows = (_line_name(row, panel) for row in rows for panel in PANELS[name])
    names = [*dict.fromkeys(lines_of_rows)]
    lines = []
    width = 1.6 + 3.6 * len(panels)
    with drawing(out, 1, len(panels), (width, 3.4), sharey=len(streams) == 1) as (
        figure,
        axes,
    ):
        legend: dict[str, Any] = {}  # a method may be in one panel only
        for axis, (stream, panel) in zip(axes[0], panels, strict=True):
            found = group_rows(rows, stream, panel)
            _draw(axis, panel, found, names)
            handles, labels = axis.get_legend_handles_labels()
            legend.update(zip(labels, handles, strict=True))
            if len(streams) > 1:
                axis.set_title(stream)
            lines += _table(stream, panel, found)
        axes[0, 0].set_ylabel(_axis_label(rows))
        shown = [line for line in names if line in legend]
        figure.legend([*map(legend.get, shown)], shown, loc="outside right center")
    return lines


def group_rows(
    rows: list[Row], stream: str, panel: Panel
) -> dict[str, dict[Any, Estimate]]:
    """Means over seeds of one panel.

    Args:
        rows: results of runs.
        stream: that is in the panel.
        panel: what it shows.

    Returns:
        By line, in the order of rows, the estimate at each place along the axis.

    Raises:
        RunError: if runs at one place differ in more than the seed.

    Example:
        >>> result = {"stream": "s", "eta": 1, "average": 0.5, "metric": "accuracy"}
        >>> rows = [{"method": "RS", "result": result}]
        >>> group_rows(rows, "s", Panel("eta", "η"))["RS"][1].mean
        50.0
    """
    here = [row for row in rows if _is_in(row, stream, panel)]
    check_pooled(here, lambda row: _place_name(row, panel))
    values: dict[str, dict[Any, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in here:
        result = row["result"]
        scale = 100 if result["metric"] == "accuracy" else 1
        place = values[_line_name(row, panel)][result[panel.x]]
        place.append(scale * result["average"])
    return {
        line: {x: estimate(found[x]) for x in sorted(found)}
        for line, found in values.items()
    }


def _is_in(row: Row, stream: str, panel: Panel) -> bool:
    result = row["result"]
    fits = result["stream"] == stream and panel.method in (None, row["method"])
    return fits and result[panel.x] is not None


def _place_name(row: Row, panel: Panel) -> str:
    result = row["result"]
    x = f"{panel.x} {result[panel.x]:g}"
    return f"{result['stream']}, {_line_name(row, panel)}, {x}"


def _line_name(row: Row, panel: Panel) -> str:
    words = []
    for setting in panel.line:
        if setting == "method":
            words.append(str(row["method"]))
        else:
            value = row["result"][setting]
            words.append(f"{_SYMBOLS.get(setting, setting)} = {value:g}")
    return ", ".join(words)


def _axis_label(rows: list[Row]) -> str:
    result = rows[0]["result"]
    on = "held-out" if result.get("validation") else "test"
    if result["metric"] != "accuracy":
        return str(result["metric"])
    return f"average {on} accuracy (%)"


def _draw(
    axis: Any, panel: Panel, found: dict[str, dict[Any, Estimate]], names: list[str]
) -> None:
    ticks = sorted({x for estimates in found.values() for x in estimates})
    for line, estimates in found.items():
        number = names.index(line)  # the same place and color in every panel
        # Equally spaced and side by side: intervals would hide each other.
        shift = 0.3 * (number - (len(names) - 1) / 2) / len(names)
        places = np.array([ticks.index(x) for x in estimates]) + shift
        means = np.array([each.mean for each in estimates.values()])
        ends = np.array([(each.low, each.high) for each in estimates.values()]).T
        axis.errorbar(
            places,
            means,
            yerr=np.abs(ends - means),
            markersize=4.5,
            capsize=2.5,
            label=line,
            **line_style(line, number),
        )
    axis.set_xticks(range(len(ticks)), [f"{tick:g}" for tick in ticks])
    axis.set_xlabel(panel.label)


def _table(
    stream: str, panel: Panel, found: dict[str, dict[Any, Estimate]]
) -> list[str]:
    lines = [f"{stream}, {panel.x}: mean and 95 % interval"]
    for line, estimates in found.items():
        for x, each in estimates.items():
            numbers = f"{each.mean:7.2f}  {each.low:6.2f} to {each.high:6.2f}"
            seeds = "1 seed" if each.seeds == 1 else f"{each.seeds} seeds"
            lines.append(f"  {line:<22}{x:>8g} {numbers}  {seeds}")
    return lines
