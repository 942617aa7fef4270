"""Running mean and deviation of everything that was seen: :class:`RunningMoments`.

The thresholds of InfoRS and InfoGS follow from them. They live on the host, where
thresholds are applied, after one transfer per round.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from info_replay.shared_state import SharedArray

__all__ = ["MomentsWalk", "RunningMoments"]

Array = NDArray[np.float64]

# How far weights may fade, as a power of e, within one block of a decayed prefix sum:
# so little that distances are never taken from a mean that has long been forgotten.
_LOG_RANGE = 5.0

# How far rounding may push a score below a threshold that it ties with.
_SLACK = {
    dtype: math.sqrt(torch.finfo(dtype).eps) for dtype in (torch.float32, torch.float64)
}


class RunningMoments:
    """Mean and population deviation of a stream, over all history or fading.

    Args:
        decay: ``None`` weighs all history alike, as the paper says (Sec. 3.2). A number
            in (0, 1) multiplies the weight of an item by ``decay`` with each later one,
            so the moments follow a stream that changes.

    Example:
        >>> moments = RunningMoments()
        >>> moments.update([1.0, 2.0, 3.0])
        >>> moments.mean, round(moments.deviation, 4)
        (2.0, 0.8165)
        >>> fading = RunningMoments(decay=0.5)
        >>> fading.update([0.0, 3.0])
        >>> fading.mean
        2.0
    """

    def __init__(self, decay: float | None = None) -> None:
        if decay is not None and not 0 < decay < 1:
            raise ValueError(
                f"decay must be None or a number between 0 and 1, got {decay!r}"
            )
        self.decay = decay
        # Total weight, mean, weighted sum of squared distances from the mean.
        self._state = SharedArray(3, np.float64)

    @property
    def weight(self) -> float:
        """Sum of the weights: the number of items where there is no decay."""
        return float(self._state.array[0])

    @property
    def mean(self) -> float:
        """Weighted mean, 0 before the first item."""
        return float(self._state.array[1])

    @property
    def deviation(self) -> float:
        """Weighted population deviation, 0 before the first item."""
        weight, _, squares = self._state.array
        return float(_deviations(weight, squares))

    def threshold(self, gamma: float, dtype: torch.dtype = torch.float64) -> float:
        """``mean + gamma * deviation``, lowered by what rounding may cost a score.

        A score that equals the threshold passes (the paper's ``>=``). Streams with
        repeated items have such ties, which the order of summation must not decide.

        Args:
            gamma: deviations above the mean.
            dtype: that scores are computed in.
        """
        value = self.mean + gamma * self.deviation
        slack = _SLACK[dtype]
        return value - (slack * abs(value) + slack)

    def update(self, values: ArrayLike) -> None:
        """Add items, oldest first.

        Args:
            values: one number or an array of shape ``(n,)``.
        """
        items = np.atleast_1d(np.asarray(values, dtype=np.float64))
        self._state.array[:] = self.walk(items).after(items.size)

    def before(self, values: ArrayLike) -> tuple[Array, Array]:
        """Moments before each item, without the item itself; nothing is changed.

        Args:
            values: array of shape ``(n,)``, oldest first.

        Returns:
            Means and deviations, each of shape ``(n,)``.

        Example:
            >>> moments = RunningMoments()
            >>> moments.before([1.0, 3.0, 5.0])[0]
            array([0., 1., 2.])
        """
        walk = self.walk(np.asarray(values, dtype=np.float64))
        return walk.means[:-1], walk.deviations[:-1]

    def walk(self, items: Array, state: Array | None = None) -> MomentsWalk:
        """The moments along items, oldest first; nothing is changed.

        Args:
            items: shape ``(n,)``.
            state: where to start from, shape ``(3,)``; by default the current one.
        """
        start = self._state.array if state is None else state
        return MomentsWalk(items, start, self.decay)

    @property
    def state(self) -> Array:
        """Weight, mean and sum of squared distances, to be handed to :meth:`walk`."""
        return self._state.array.copy()

    @state.setter
    def state(self, value: Array) -> None:
        self._state.array[:] = value

    def clear(self) -> None:
        """Forget everything."""
        self._state.array[:] = 0

    def share_memory_(self) -> RunningMoments:
        """Move the moments to memory that child processes share."""
        self._state.share_memory_()
        return self

    def state_dict(self) -> dict[str, Any]:
        """The moments as plain values; the decay is a setting, not state."""
        return {"state": self._state.state_dict()}

    def check_state(self, state_dict: dict[str, Any]) -> None:
        """Raise ``ValueError`` if a :meth:`state_dict` does not fit."""
        self._state.check_state(state_dict["state"])
        if float(state_dict["state"][[0, 2]].min()) < 0:
            raise ValueError(
                "expected a weight and a sum of squares of at least 0, got "
                f"{state_dict['state'].tolist()}"
            )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`."""
        self._state.load_state_dict(state_dict["state"])

    def __repr__(self) -> str:
        """Settings and current values."""
        return (
            f"RunningMoments(decay={self.decay}, weight={self.weight:g}, "
            f"mean={self.mean:g}, deviation={self.deviation:g})"
        )


class MomentsWalk:
    """Moments before the first item and after each one, computed when they are read.

    A state is weight, mean and sum of squared distances; ``start`` is that before them.
    """

    means: Array  # shape (n + 1,)

    def __init__(self, items: Array, start: Array, decay: float | None) -> None:
        self._start = start
        self._path = None if decay is None else _decayed_path(items, start, decay)
        if self._path is not None:
            self.means = self._path[1]
            return
        weight, mean, self._squares = start.tolist()
        # No precision is lost where the mean is large and the deviation small.
        reference = mean if weight > 0 or not items.size else items[0]
        self._distances = items - reference
        self._firsts = self._distances.cumsum()
        self._weights = weight + np.arange(1.0, items.size + 1)
        self.means = np.empty(items.size + 1)
        self.means[0] = mean
        self._shifts = self._firsts / self._weights
        np.add(self._shifts, reference, out=self.means[1:])

    @functools.cached_property
    def deviations(self) -> Array:
        """Deviations, shape ``(n + 1,)``."""
        if self._path is not None:
            return _deviations(self._path[0], self._path[2])
        squares = (self._distances * self._distances).cumsum()
        squares += self._squares
        squares -= self._firsts * self._shifts
        np.maximum(squares, 0, out=squares)
        squares /= self._weights
        deviations = np.empty(squares.size + 1)
        weight, _, before = self._start.tolist()
        deviations[0] = math.sqrt(before / weight) if weight else 0.0
        np.sqrt(squares, out=deviations[1:])
        return deviations

    def thresholds(self, gamma: float, dtype: torch.dtype) -> Array:
        """What each item must reach, ``(n,)``; see :meth:`RunningMoments.threshold`."""
        thresholds = self.means[:-1]
        if gamma:
            thresholds = thresholds + gamma * self.deviations[:-1]
        slack = _SLACK[dtype]
        return thresholds - (slack * np.abs(thresholds) + slack)

    def after(self, count: int) -> Array:
        """The state after the first ``count`` items, shape ``(3,)``."""
        if not count:
            return self._start
        if self._path is not None:
            return self._path[:, count]
        # One state does not need the sum of squares up to each item.
        distances = self._distances[:count]
        weight, first = self._weights[count - 1], self._firsts[count - 1]
        squares = self._squares + distances.dot(distances) - first * (first / weight)
        return np.array([weight, self.means[count], max(squares, 0.0)])


def _deviations(weights: Any, squares: Any) -> Any:
    """Deviations; 0 where nothing has been seen."""
    return np.sqrt(squares / np.maximum(weights, 1e-300))


def _decayed_path(items: Array, start: Array, decay: float) -> Array:
    """States before the first item and after each one, shape ``(3, n + 1)``."""
    path = np.empty((3, items.size + 1))
    path[:, 0] = start
    # A decayed prefix sum is a plain one of items / decay^i, block by block. Distances
    # are taken from a mean that is close to the items of the block.
    block = max(1, int(_LOG_RANGE / -math.log(decay)))
    for first in range(0, items.size, block):
        part = items[first : first + block]
        weight, mean, squares = path[:, first].tolist()
        reference = mean if weight > 0 else part[0]
        distances = part - reference
        fade = decay ** np.arange(1.0, part.size + 1)
        weights = fade * weight + (1 - fade) / (1 - decay)
        firsts = fade * (distances / fade).cumsum()
        seconds = fade * (squares + (distances * distances / fade).cumsum())
        shifts = firsts / weights
        path[:, first + 1 : first + part.size + 1] = (
            weights,
            reference + shifts,
            np.maximum(seconds - shifts * firsts, 0.0),
        )
    return path
