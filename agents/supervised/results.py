"""What is told of a run, :func:`summarize`, and a memory, :func:`describe_memory`."""

from __future__ import annotations

from typing import Any

import numpy as np
from torchrl.data import TensorDictReplayBuffer

from agents.supervised.metrics import (
    average_score,
    backward_transfer,
    class_variance,
    forward_transfer,
)

__all__ = ["describe_memory", "summarize"]

Scores = list[list[float]]


def describe_memory(
    memory: TensorDictReplayBuffer | None, num_classes: int | None
) -> dict[str, Any] | None:
    """How full a memory is, and with what.

    Args:
        memory: any; ``None`` if there is none.
        num_classes: number of classes, ``None`` if targets are numbers.

    Returns:
        Plain values, ``None`` if there is no memory.
    """
    if memory is None:
        return None
    described: dict[str, Any] = {
        "size": len(memory),
        "reservoir_count": getattr(memory, "reservoir_count", memory.write_count),
    }
    if num_classes is not None:
        counts = [0] * num_classes
        if len(memory):
            counts = memory[:]["target"].bincount(minlength=num_classes).tolist()
        described["class_counts"] = counts
        described["class_variance"] = class_variance(counts)
    return described


def summarize(
    matrix: Scores, first: list[float], metrics: dict[str, Scores], *, whole: bool
) -> dict[str, Any]:
    """The numbers by which runs are compared.

    Args:
        matrix: score of each task (columns) after each task (rows); rows are empty
            where there is nothing to evaluate on.
        first: scores before anything was learned.
        metrics: the same as ``matrix`` for metrics of the user's.
        whole: whether the stream was seen to its end.

    Returns:
        Average, backward and forward transfer (``None`` where there is none), and the
        scores themselves.
    """
    evaluated = bool(first)
    complete = whole and evaluated and np.shape(matrix)[0] == len(first)
    return {
        "average": average_score(matrix) if evaluated else None,
        "backward_transfer": backward_transfer(matrix) if complete else None,
        "forward_transfer": forward_transfer(matrix, first) if complete else None,
        "first": first,
        "matrix": matrix,
        "metrics": {
            name: {"average": average_score(found), "matrix": found}
            for name, found in metrics.items()
            if evaluated
        },
    }
