"""Numbers of a table and of its plots: means, errors, intervals and mean curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Curve",
    "Estimate",
    "bootstrap_interval",
    "difference_in_errors",
    "estimate",
    "joint_error",
    "mean_curve",
]

_RESAMPLES = 2000
_RESAMPLES_OF_CURVES = 500  # there are thousands of points, and nobody reads digits
_GRID = 61  # points of a mean curve where runs were evaluated at different steps


class Estimate(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: the mean.
        error: its standard error; ``None`` for a single seed.
        low: lower end of the 95 % bootstrap interval of the mean.
        high: upper end of it.
        seeds: number of them.
    """

    mean: float
    error: float | None
    low: float
    high: float
    seeds: int


class Curve(NamedTuple):
    """A mean over seeds along the stream, with its 95 % bootstrap interval.

    Attributes:
        steps: where it is known.
        mean: the mean at each step.
        low: lower ends of the intervals.
        high: upper ends of the intervals.
    """

    steps: NDArray[np.float64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def estimate(values: Sequence[float]) -> Estimate:
    """Mean, standard error and bootstrap interval of some seeds.

    Args:
        values: at least one number, one per seed.

    Example:
        >>> found = estimate([1.0, 3.0])
        >>> found.mean, found.error, found.seeds
        (2.0, 1.0, 2)
        >>> estimate([1.0]).error is None
        True
    """
    numbers = np.asarray(values, dtype=np.float64)
    count = len(numbers)
    error = float(numbers.std(ddof=1) / math.sqrt(count)) if count > 1 else None
    low, high = bootstrap_interval(numbers)
    return Estimate(float(numbers.mean()), error, float(low), float(high), count)


def bootstrap_interval(
    values: ArrayLike, *, resamples: int = _RESAMPLES, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The 95 % interval of the mean over seeds (percentile bootstrap).

    Args:
        values: shape ``(seeds,)`` or ``(seeds, points)``.
        resamples: how many means are drawn.
        seed: of the draws; the same values always have the same interval.

    Returns:
        Lower and upper ends, for each point.

    Example:
        >>> low, high = bootstrap_interval([1.0, 1.0, 1.0])
        >>> float(low), float(high)
        (1.0, 1.0)
    """
    numbers = np.asarray(values, dtype=np.float64)
    count = len(numbers)
    # Whole seeds are drawn, so only the number of times that each one comes matters.
    drawn = np.random.default_rng(seed).integers(count, size=(resamples, count))
    weights = np.zeros((resamples, count))
    np.add.at(weights, (np.arange(resamples)[:, None], drawn), 1.0 / count)
    low, high = np.quantile(weights @ numbers, [0.025, 0.975], axis=0)
    return low, high


def joint_error(first: float | None, second: float | None) -> float | None:
    """Standard error of the difference of two independent means.

    Args:
        first: standard error of one mean; ``None`` if nobody knows.
        second: of the other one.

    Example:
        >>> joint_error(3.0, 4.0)
        5.0
    """
    if first is None or second is None:
        return None
    return math.hypot(first, second)


def difference_in_errors(
    mean: float, error: float | None, other: float, other_error: float | None
) -> float | None:
    """A difference of two means in joint standard errors.

    Args:
        mean: the one.
        error: its standard error.
        other: what is subtracted.
        other_error: its standard error.

    Returns:
        The difference; ``None`` if an error is unknown or both are 0.

    Example:
        >>> difference_in_errors(90.0, 3.0, 80.0, 4.0)
        2.0
    """
    joint = joint_error(error, other_error)
    return (mean - other) / joint if joint else None


def mean_curve(curves: Sequence[tuple[Sequence[float], Sequence[Any]]]) -> Curve | None:
    """The mean of curves of several seeds.

    Args:
        curves: steps, in order, and values of each seed; a value may be ``None``.

    Returns:
        The mean at the steps that all seeds have; where these differ, at equally spaced
        steps, with straight lines between those of a seed. ``None`` without any value.

    Example:
        >>> curve = mean_curve([([0, 2], [0.0, 2.0]), ([0, 2], [2.0, 2.0])])
        >>> curve.steps.tolist(), curve.mean.tolist()
        ([0.0, 2.0], [1.0, 2.0])
    """
    known = []
    for steps, values in curves:
        pairs = [
            (step, value)
            for step, value in zip(steps, values, strict=True)
            if value is not None
        ]
        if pairs:
            known.append(np.array(pairs, dtype=np.float64).T)
    if not known:
        return None
    grid = known[0][0]
    if any(not np.array_equal(steps, grid) for steps, _ in known):
        first = max(steps[0] for steps, _ in known)
        last = min(steps[-1] for steps, _ in known)
        grid = np.linspace(first, max(first, last), _GRID)
    stacked = np.stack([np.interp(grid, steps, found) for steps, found in known])
    low, high = bootstrap_interval(stacked, resamples=_RESAMPLES_OF_CURVES)
    return Curve(grid, stacked.mean(0), low, high)
