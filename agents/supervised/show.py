"""What a run's result looks like: a table, and three pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from agents.runs.folder import RunFolder
from agents.runs.pictures import Pictures, as_bytes
from agents.supervised.saved_run import stored_items
from continual_envs.rendering import picture

__all__ = ["draw_pictures", "format_result"]

_MOST_IMAGES = 100
_MOST_COLORS = 10  # of matplotlib's; further classes begin again with the first


def format_result(folder: RunFolder) -> str:
    """A finished run's result as text.

    Args:
        folder: of the run.

    Returns:
        Several lines.

    Raises:
        RunError: if the run is not finished.
    """
    result, seconds = folder.read("result.json"), folder.read("timing.json")
    accuracy = result["metric"] == "accuracy"

    def number(value: float | None) -> str:
        if value is None:
            return "-"
        return f"{100 * value:.2f} %" if accuracy else f"{value:.4f}"

    whole = result["steps_done"] == result["steps_of_stream"]
    lines = [
        f"{_title(result)}: {result['steps_done']} steps"
        + (
            ""
            if whole or result["steps_of_stream"] is None
            else f" of {result['steps_of_stream']} (shortened)"
        ),
        "",
        f"  average {result['metric']:<16} {number(result['average'])}",
        f"  prequential              {number(result['prequential'])}",
        f"  backward transfer        {number(result['backward_transfer'])}",
        f"  forward transfer         {number(result['forward_transfer'])}",
    ]
    # Runs of version 0.1 have no metrics of the user's.
    for name, found in result.get("metrics", {}).items():
        lines.append(f"  {name:<24} {found['average']:.4f}")
    if result["average"] is not None:
        what = f"{result['metric']} of each task (columns) after each task (rows)"
        lines += ["", f"  {what}"]
        lines += [
            "    "
            + "  ".join(f"{100 * v:6.1f}" if accuracy else f"{v:8.4f}" for v in row)
            for row in result["matrix"]
        ]
    memory = result["memory"]
    if memory is not None:
        lines += ["", f"  memory: {memory['size']} items"]
        if "class_counts" in memory:
            lines[-1] += f", classes {memory['class_counts']}"
        what = "items that entered the reservoir, or were stored where there is none"
        lines.append(f"  {what}: {memory['reservoir_count']}")
    total = sum(seconds.values()) or 1.0
    spent = ", ".join(
        f"{part} {time:.1f} s ({100 * time / total:.0f} %)"
        for part, time in seconds.items()
    )
    lines += ["", f"  time: {spent}"]
    return "\n".join(lines)


def _title(result: dict[str, Any]) -> str:
    """What a run was, in a few words."""
    what = result.get("stream", result["env"])  # the latter in version 0.1
    if result.get("validation"):
        what = f"{what} (held-out)"
    learner = result.get("learner", "der++")
    if learner != "der++":
        what = f"{what}, {learner}"
    return (
        f"{what}, {result['policy']}, imbalance {result['imbalance']}, seed "
        f"{result['seed']}"
    )


def draw_pictures(folder: RunFolder) -> list[Path]:
    """Draw a run's pictures into its folder.

    Args:
        folder: of a finished run.

    Returns:
        The files.
    """
    result = folder.read("result.json")
    pictures = Pictures(folder.path)
    events = list(folder.events("evaluation"))
    steps = [event["step"] for event in events]
    title = _title(result)
    # Runs of earlier versions have none.
    ends = result.get("task_ends", [])[:-1]

    def start(ylabel: str) -> tuple[Any, Any]:
        """A picture along the run; dashed lines are ends of tasks."""
        figure, axes = pictures.start(xlabel="step", ylabel=ylabel, title=title)
        for end in ends:
            axes.axvline(end, color="grey", linewidth=0.8, linestyle="--")
        return figure, axes

    scores_of_tasks = np.array([event["scores"] for event in events]).T
    if len(scores_of_tasks):  # a live stream may have nothing to evaluate on
        figure, axes = start(result["metric"])
        for task, scores in enumerate(scores_of_tasks):
            axes.plot(steps, scores, label=f"task {task + 1}")
        _legend(axes)
        pictures.save(figure, "tasks")
    memory = [event for event in folder.events("memory") if "class_counts" in event]
    if memory:
        figure, axes = start("items of each class in memory")
        counts = np.array([event["class_counts"] for event in memory]).T
        labels = [f"class {number}" for number in range(len(counts))]
        axes.stackplot([event["step"] for event in memory], counts, labels=labels)
        if len(counts) <= _MOST_COLORS:
            _legend(axes, stacked=True)
        pictures.save(figure, "memory_classes")
    items = stored_items(folder)
    images = items.get("observation")
    if images is not None and images.ndim == 4 and images.shape[1] in (1, 3):
        targets = items["target"]
        order = targets.argsort() if targets.ndim == 1 else np.arange(len(targets))
        chosen = order[np.linspace(0, len(order) - 1, _MOST_IMAGES).astype(int)]
        shown = as_bytes(images[chosen.unique_consecutive()].numpy())
        pictures.save_image(picture(shown), "memory_images")
    return pictures.paths


def _legend(axes: Any, *, stacked: bool = False) -> None:
    """Names beside the picture, the last at the top if areas are stacked."""
    place = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    axes.legend(frameon=False, fontsize=8, reverse=stacked, **place)
