"""What a run of Q-learning looks like: a table, and pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from agents.runs.folder import RunFolder
from agents.runs.pictures import Pictures

__all__ = ["draw_q_pictures", "format_q_result", "is_q_learning"]

_WORDS = {
    "end": "return at the end",
    "mean": "mean return along the run",
    "current_end": "last task, at the end",
    "old_end": "other tasks, at the end",
    "old_during": "other tasks, while the last was learned",
    "forgetting": "forgetting",
}


def is_q_learning(folder: RunFolder) -> bool:
    """Whether a run is one of ``info-replay dqn``.

    Raises:
        RunError: if the run is not finished.
    """
    return "updates_per_batch" in folder.read("result.json")


def format_q_result(folder: RunFolder) -> str:
    """A finished run's result as text.

    Args:
        folder: of the run.

    Returns:
        Several lines.

    Raises:
        RunError: if the run is not finished.
    """
    result, seconds = folder.read("result.json"), folder.read("timing.json")
    last = result["evaluations"][-1]
    lines = [
        f"{result['env']}, {result['policy']}, {result['capacity']} slots, seed "
        f"{result['seed']}: {result['frames']} frames",
        "",
        "  return of each task at the end: "
        + ", ".join(f"{value:.0f}" for value in last["returns"]),
    ]
    for name, words in _WORDS.items():
        value = result.get(name)
        if value is not None:
            lines.append(f"  {words:<40} {value:6.1f}")
    lines += [
        "",
        f"  memory: {last['size']} of {last['write_count']} transitions, "
        f"{100 * last['terminal_share']:.1f} % of them terminal",
    ]
    if "task_shares" in last:
        shares = ", ".join(f"{100 * share:.0f} %" for share in last["task_shares"])
        lines.append(f"  by task: {shares}")
    spent = ", ".join(f"{part} {time:.1f} s" for part, time in seconds.items())
    lines += ["", f"  time: {spent}"]
    return "\n".join(lines)


def draw_q_pictures(folder: RunFolder) -> list[Path]:
    """Draw a run's pictures into its folder.

    Args:
        folder: of a finished run.

    Returns:
        The files.
    """
    events = folder.read("result.json")["evaluations"]
    frames = [event["frame"] for event in events]
    pictures = Pictures(folder.path)
    figure, axes = pictures.start(xlabel="frame", ylabel="return")
    for task, returns in enumerate(np.array([event["returns"] for event in events]).T):
        axes.plot(frames, returns, label=f"task {task + 1}")
    axes.legend(frameon=False, fontsize=8)
    pictures.save(figure, "returns")
    if all("task_shares" in event for event in events):
        label = "share of each task in memory"
        figure, axes = pictures.start(xlabel="frame", ylabel=label)
        axes.stackplot(frames, np.array([event["task_shares"] for event in events]).T)
        pictures.save(figure, "memory_tasks")
    return pictures.paths
