"""What a run is judged by, from the scores of every task along the stream.

``R[i, j]`` is the score of task ``j`` after task ``i`` has been learned, ``b[j]`` that
of task ``j`` before anything was (Appendix "Forward transfer and backward transfer").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "average_score",
    "backward_transfer",
    "class_variance",
    "forward_transfer",
    "mean_and_standard_error",
]


def average_score(matrix: ArrayLike) -> float:
    """Mean of the last row of ``R``: all tasks count alike.

    Example:
        >>> average_score([[0.9, 0.0], [0.5, 0.7]])
        0.6
    """
    return float(np.mean(np.asarray(matrix)[-1]))


def backward_transfer(matrix: ArrayLike) -> float | None:
    r"""``1/(T-1) \sum_{i<T} (R[T, i] - R[i, i])``; ``None`` for a single task.

    Example:
        >>> round(backward_transfer([[0.9, 0.0], [0.5, 0.7]]), 3)
        -0.4
    """
    scores = np.asarray(matrix, dtype=np.float64)
    if len(scores) < 2:
        return None
    return float(np.mean((scores[-1] - scores.diagonal())[:-1]))


def forward_transfer(matrix: ArrayLike, first: ArrayLike) -> float | None:
    r"""``1/(T-1) \sum_{i<T} (R[i, i+1] - b[i+1])``; ``None`` for a single task.

    Example:
        >>> round(forward_transfer([[0.9, 0.2], [0.5, 0.7]], [0.1, 0.1]), 3)
        0.1
    """
    scores = np.asarray(matrix, dtype=np.float64)
    if len(scores) < 2:
        return None
    return float(np.mean(scores.diagonal(1) - np.asarray(first)[1:]))


def class_variance(counts: ArrayLike) -> float:
    r"""``1/K \sum_k M_k^2 - (1/K \sum_k M_k)^2`` of a memory's class counts (Sec. 5).

    Example:
        >>> class_variance([5, 5]), class_variance([10, 0])
        (0.0, 25.0)
    """
    return float(np.var(np.asarray(counts, dtype=np.float64)))


def mean_and_standard_error(values: ArrayLike) -> tuple[float, float]:
    """Mean of some runs and the standard error of it; 0 for a single run.

    Example:
        >>> mean_and_standard_error([1.0, 3.0])
        (2.0, 1.0)
    """
    numbers = np.asarray(values, dtype=np.float64)
    if len(numbers) < 2:
        return float(numbers.mean()), 0.0
    return float(numbers.mean()), float(numbers.std(ddof=1) / np.sqrt(len(numbers)))
