"""Running mean and deviation of everything that was seen.

:class:`RunningMoments` is what the thresholds of InfoRS and InfoGS compare with. It
lives on the host: thresholds decide on the host, from one transfer a round.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from info_replay.host_array import HostArray

__all__ = ["RunningMoments"]

Array = NDArray[np.float64]

# How far weights may fade, as a power of e, within one block of a decayed prefix sum:
# so little that distances are never taken from a mean that has long been forgotten.
_LOG_RANGE = 5.0


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
        self._state = HostArray(np.zeros(3))

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
        return float(deviations(self._state.array))

    def update(self, values: ArrayLike) -> None:
        """Add items, oldest first.

        Args:
            values: one number or an array of shape ``(n,)``.
        """
        items = np.atleast_1d(np.asarray(values, dtype=np.float64))
        self._state.array[:] = self.path(items)[:, -1]

    def before(self, values: ArrayLike) -> tuple[Array, Array]:
        """Moments that each item meets: of all that came before it, not itself.

        Args:
            values: array of shape ``(n,)``, oldest first; nothing is changed.

        Returns:
            Means and deviations, each of shape ``(n,)``.

        Example:
            >>> moments = RunningMoments()
            >>> moments.before([1.0, 3.0, 5.0])[0]
            array([0., 1., 2.])
        """
        path = self.path(np.asarray(values, dtype=np.float64))[:, :-1]
        return path[1], deviations(path)

    def path(self, items: Array, state: Array | None = None) -> Array:
        """The state before the first item and after each one; nothing is changed.

        Args:
            items: shape ``(n,)``, oldest first.
            state: where to start from, shape ``(3,)``; by default the current one.

        Returns:
            Weights, means and sums of squared distances, shape ``(3, n + 1)``.
        """
        path = np.empty((3, items.size + 1))
        path[:, 0] = self._state.array if state is None else state
        if self.decay is None:
            if items.size:
                _walk(items, path, None)
            return path
        # A decayed prefix sum is a plain one of items / decay^i, block by block.
        block = max(1, int(_LOG_RANGE / -math.log(self.decay)))
        for start in range(0, items.size, block):
            stop = min(start + block, items.size)
            _walk(items[start:stop], path[:, start : stop + 1], self.decay)
        return path

    @property
    def state(self) -> Array:
        """Weight, mean and sum of squared distances, to be handed to :meth:`path`."""
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
        return {"state": self._state.tensor()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`."""
        self._state.assign(state_dict["state"])

    def __repr__(self) -> str:
        """Settings and current values."""
        return (
            f"RunningMoments(decay={self.decay}, weight={self.weight:g}, "
            f"mean={self.mean:g}, deviation={self.deviation:g})"
        )


def deviations(path: Array) -> Array:
    """Deviations of states ``(3, ...)``; 0 where nothing has been seen."""
    result: Array = np.sqrt(path[2] / np.maximum(path[0], 1e-300))
    return result


def _walk(items: Array, path: Array, decay: float | None) -> None:
    """Fill in the states after each item of one block, ``path[:, 1:]``.

    Distances are taken from a reference close to the items, so that no precision is
    lost where the mean is large and the deviation small.
    """
    weight, mean, squares = path[:, 0].tolist()
    reference = mean if weight > 0 else items[0]
    distances = items - reference
    if decay is None:
        weights = weight + np.arange(1.0, items.size + 1)
        firsts = distances.cumsum()
        seconds = squares + (distances * distances).cumsum()
    else:
        fade = decay ** np.arange(1.0, items.size + 1)
        weights = fade * weight + (1 - fade) / (1 - decay)
        firsts = fade * (distances / fade).cumsum()
        seconds = fade * (squares + (distances * distances / fade).cumsum())
    shifts = firsts / weights
    path[0, 1:] = weights
    np.add(shifts, reference, out=path[1, 1:])
    np.maximum(seconds - shifts * firsts, 0.0, out=path[2, 1:])
