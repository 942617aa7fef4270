"""Running mean and deviation of everything that was seen.

:class:`RunningMoments` is what the thresholds of InfoRS and InfoGS compare with. It
lives on the host: thresholds decide on the host, from one transfer a round.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

__all__ = ["RunningMoments"]

# exp(-_LOG_RANGE) is the smallest weight that one block of a decayed prefix sum may
# hold; below it the rescaled sums could overflow.
_LOG_RANGE = 300.0


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
        # Total weight, mean, weighted sum of squared distances from the mean. A tensor,
        # changed in place, so that processes that share a memory share its moments.
        self._state = torch.from_numpy(np.zeros(3))

    @property
    def weight(self) -> float:
        """Sum of the weights: the number of items where there is no decay."""
        return float(self._state.numpy()[0])

    @property
    def mean(self) -> float:
        """Weighted mean, 0 before the first item."""
        return float(self._state.numpy()[1])

    @property
    def deviation(self) -> float:
        """Weighted population deviation, 0 before the first item."""
        weight, _, squares = self._state.numpy()
        return math.sqrt(max(squares / weight, 0.0)) if weight > 0 else 0.0

    def update(self, values: ArrayLike) -> None:
        """Add items, oldest first.

        Args:
            values: one number or an array of shape ``(n,)``.
        """
        items = np.atleast_1d(np.asarray(values, dtype=np.float64))
        if items.size:
            weights, means, squares = self._after(items)
            self._state.numpy()[:] = weights[-1], means[-1], squares[-1]

    def before(
        self, values: ArrayLike
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
        items = np.asarray(values, dtype=np.float64)
        weights, means, squares = self._after(items[:-1])
        first = self._state.numpy()
        weights = np.concatenate([first[:1], weights])
        variances = np.concatenate([first[2:], squares]) / np.maximum(weights, 1e-300)
        return (
            np.concatenate([first[1:2], means]),
            np.sqrt(np.maximum(variances, 0.0)),
        )

    def _after(
        self, items: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """State after each item, as three arrays of shape ``(n,)``."""
        weight, mean, squares = (float(number) for number in self._state.numpy())
        if self.decay is None:
            return _extend(items, weight, mean, squares)
        # A decayed prefix sum is a plain one of items / decay^i; blocks keep that
        # power within range.
        block = max(1, int(_LOG_RANGE / -math.log(self.decay)))
        parts = []
        for start in range(0, items.size, block):
            part = _extend(
                items[start : start + block], weight, mean, squares, self.decay
            )
            weight, mean, squares = (float(array[-1]) for array in part)
            parts.append(part)
        if not parts:
            return _extend(items, weight, mean, squares)
        weights, means, sums = (
            np.concatenate(arrays) for arrays in zip(*parts, strict=True)
        )
        return weights, means, sums

    def clear(self) -> None:
        """Forget everything."""
        self._state.numpy()[:] = 0

    def copy(self) -> RunningMoments:
        """An independent copy.

        Example:
            >>> moments = RunningMoments()
            >>> moments.update(1.0)
            >>> moments.copy().mean
            1.0
        """
        twin = RunningMoments(self.decay)
        twin.assign(self)
        return twin

    def assign(self, other: RunningMoments) -> None:
        """Take the values of another one.

        Args:
            other: where to take them from.
        """
        self._state.numpy()[:] = other._state.numpy()

    def share_memory_(self) -> RunningMoments:
        """Move the moments to memory that child processes share."""
        self._state.share_memory_()
        return self

    def state_dict(self) -> dict[str, Any]:
        """The moments as plain values; the decay is a setting, not state."""
        return {"state": torch.from_numpy(self._state.numpy().copy())}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`."""
        self._state.numpy()[:] = state_dict["state"].cpu().numpy()

    def __repr__(self) -> str:
        """Settings and current values."""
        return (
            f"RunningMoments(decay={self.decay}, weight={self.weight:g}, "
            f"mean={self.mean:g}, deviation={self.deviation:g})"
        )


def _extend(
    items: NDArray[np.float64],
    weight: float,
    mean: float,
    squares: float,
    decay: float = 1.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Weights, means and sums of squares after each item of one block.

    Distances are taken from a reference close to the items, so that no precision is
    lost where the mean is large and the deviation small.
    """
    if not items.size:
        return items, items, items
    reference = mean if weight > 0 else float(items[0])
    distances = items - reference
    if decay == 1.0:
        weights = weight + np.arange(1.0, items.size + 1)
        firsts = np.cumsum(distances)
        seconds = squares + np.cumsum(distances * distances)
    else:
        fade = decay ** np.arange(1.0, items.size + 1)
        weights = fade * weight + (1 - fade) / (1 - decay)
        firsts = fade * np.cumsum(distances / fade)
        seconds = fade * (squares + np.cumsum(distances * distances / fade))
    shifts = firsts / weights
    return weights, reference + shifts, np.maximum(seconds - shifts * firsts, 0.0)
