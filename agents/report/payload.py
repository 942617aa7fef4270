"""The data that the script of a report draws: :func:`make_payload`, :func:`to_json`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from agents.report.runs import Run
from agents.report.statistics import mean_curve
from agents.report.tables import Table

__all__ = ["make_payload", "quantities", "to_json"]

_DIGITS = 4  # significant ones: finer than a pixel of any screen

# Okabe and Ito's palette, as names of colors in the style sheet. RS is blue and InfoRS
# red in the paper, too.
_COLORS = {
    "rs": "blue",
    "infors": "vermillion",
    "infogs": "orange",
    "cbrs": "green",
    "wrs": "sky",
    "infogs-rs": "purple",
    "gss": "black",
    "coreset": "gray",
    "fss-clust": "yellow",
}


def to_json(data: Any) -> str:
    r"""JSON that may stand inside ``<script>`` of a page, whatever is in it.

    Args:
        data: plain values.

    Example:
        >>> to_json({"name": "</script>"})
        '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def make_payload(
    runs: Sequence[Run],
    tables: Sequence[Table],
    images: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that can be chosen on the page.

    Args:
        runs: of the sweep.
        tables: of all measures and streams.
        images: of memories, by key of the run.
    """
    streams = dict.fromkeys(table.stream for table in tables)
    return {
        "methods": _appearance(runs),
        "streams": {
            stream: {
                "percent": next(t.percent for t in tables if t.stream == stream),
                "imbalances": next(t.imbalances for t in tables if t.stream == stream),
                "methods": next(t.methods for t in tables if t.stream == stream),
                "measures": {
                    t.measure: _measure(t)
                    for t in tables
                    if t.stream == stream and not t.is_empty
                },
                "curves": _curves([run for run in runs if run.stream == stream]),
            }
            for stream in streams
        },
        "runs": [_run(run, images.get(run.key)) for run in runs],
    }


def _appearance(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Color, marker and dashes of each method: no two are alike in all of them."""
    policies = dict.fromkeys((run.method, run.policy) for run in runs)
    wanted = [_COLORS.get(policy) for _, policy in policies]
    free = [color for color in _COLORS.values() if color not in wanted]
    used: dict[str, int] = {}
    found = {}
    for number, (method, policy) in enumerate(policies):
        color = _COLORS.get(policy)
        if color is None or (color in used and free):
            color = free.pop(0) if free else [*_COLORS.values()][number % len(_COLORS)]
        dash = used.get(color, 0)
        used[color] = dash + 1
        found[method] = {"color": color, "dash": dash, "marker": number}
    return found


def _measure(table: Table) -> dict[str, Any]:
    def numbers(method: str, imbalance: int) -> list[float | None] | None:
        ours = table.cells[method, imbalance].ours
        if ours is None:
            return None
        error = None if ours.error is None else _short(ours.error)
        ends = _short(ours.mean), _short(ours.low), _short(ours.high)
        return [*ends, error, ours.seeds]

    return {
        "title": table.title,
        "cells": {
            method: [numbers(method, imbalance) for imbalance in table.imbalances]
            for method in table.methods
        },
        "paper": {
            method: [table.cells[method, r].paper for r in table.imbalances]
            for method in table.methods
        },
    }


def quantities(run: Run) -> dict[str, list[Any]]:
    """What is known of a run along the stream.

    Args:
        run: any.

    Returns:
        A value, or ``None``, for each of ``steps``, by the name of the quantity:
        ``all`` (mean score of all tasks), ``seen`` (of those that have begun), ``task
        1`` and so on, ``reservoir``, ``variance``, and the ``counts`` of classes.
    """
    events = run.row.get("evaluations") or []
    # The last evaluation of a shortened run need not be the end of a task.
    ends = (run.result.get("task_ends") or [])[:-1]
    unit = 100.0 if run.result.get("metric") == "accuracy" else 1.0
    found: dict[str, list[Any]] = {"steps": [event["step"] for event in events]}
    scores = [_scores(event, unit) for event in events]
    num_tasks = max(map(len, scores), default=0)
    # A run that diverged has neither a metric nor ends of tasks.
    if num_tasks and not run.diverged:
        begun = [1 + sum(end < event["step"] for end in ends) for event in events]
        found["all"] = [_mean(each) for each in scores]
        found["seen"] = [_mean(s[:n]) for s, n in zip(scores, begun, strict=True)]
        for task in range(num_tasks):
            values = [each[task] if task < len(each) else None for each in scores]
            found[f"task {task + 1}"] = values
    for name, key in (
        ("reservoir", "reservoir_count"),
        ("variance", "class_variance"),
        ("counts", "class_counts"),
    ):
        values = [event.get(key) for event in events]
        if any(value is not None for value in values):
            found[name] = values
    return found


def _scores(event: Mapping[str, Any], unit: float) -> list[float]:
    """Scores of an evaluation; none if training had diverged."""
    found = [unit * each for each in event.get("scores") or ()]
    return found if all(map(math.isfinite, found)) else []


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _curves(runs: Sequence[Run]) -> dict[str, dict[str, dict[str, Any]]]:
    """Means over seeds that did not diverge by imbalance, quantity and method."""
    groups: dict[tuple[int, str], list[dict[str, list[Any]]]] = {}
    for run in runs:
        if run.diverged:
            continue
        groups.setdefault((run.imbalance, run.method), []).append(quantities(run))
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for (imbalance, method), known in groups.items():
        names = dict.fromkeys(name for each in known for name in each)
        for name in names:
            if name in ("steps", "counts"):
                continue
            curve = mean_curve(
                [(each["steps"], each[name]) for each in known if name in each]
            )
            if curve is not None:
                of_imbalance = found.setdefault(str(imbalance), {})
                of_imbalance.setdefault(name, {})[method] = [
                    [_short(value) for value in part.tolist()] for part in curve
                ]
    return found


def _run(run: Run, images: Any) -> dict[str, Any]:
    known = quantities(run)
    series = {
        name: [_short(v) if isinstance(v, float) else v for v in values]
        for name, values in known.items()
        if name != "steps"
    }
    return {
        "key": run.key,
        "stream": run.stream,
        "method": run.method,
        "imbalance": run.imbalance,
        "seed": run.seed,
        "steps": known["steps"],
        "series": series,
        "ends": (run.result.get("task_ends") or [])[:-1],
        "images": images,
    }


def _short(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")
