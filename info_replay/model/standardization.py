"""Targets in units of their own deviation: :class:`RunningStandardization`.

The noise of the Bayesian model is a number without units then: a stream and the same
stream in other units leave the same memory.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from info_replay.late_array import LateArray
from info_replay.validation import check_count, told

__all__ = ["RunningStandardization", "Standards"]

Array = NDArray[np.float64]

# What varies by less than this many roundings of the mean does not vary.
_ROUNDINGS = 8


class Standards:
    """What to subtract from targets and what to divide them by.

    Args:
        mean: shape ``(K,)``, or ``(n, K)`` for one of each item.
        deviation: of the same shape.
        eps: relative rounding of the targets.

    Attributes:
        mean: as given.
        scale: the deviation; infinite where targets have not varied yet, so that they
            become 0.
    """

    def __init__(self, mean: Array, deviation: Array, eps: float) -> None:
        self.mean = mean
        least = _ROUNDINGS * eps * np.abs(mean)
        self.scale = np.where(deviation > least, deviation, np.inf)

    def squared_errors(self, residuals: Array, first: int = 0) -> Array:
        """Squared errors ``(n,)`` of standardized targets (Sec. 2.3).

        The posterior mean is linear in the targets. With a column of ones among them,
        the residual of ``(y - m) / s`` follows from those of ``y`` and 1.

        Args:
            residuals: of the targets and of the ones, shape ``(n, K + 1)``.
            first: number of the first of these items.
        """
        mean, scale = self.mean, self.scale
        if mean.ndim == 2:
            some = slice(first, first + len(residuals))
            mean, scale = mean[some], scale[some]
        errors = (residuals[:, :-1] - mean * residuals[:, -1:]) / scale
        return np.vecdot(errors, errors)

    def of_item(self, item: int) -> Standards:
        """Those of one item, where there is one of each."""
        one = copy.copy(self)
        one.mean, one.scale = self.mean[item], self.scale[item]
        return one

    def matrix(self) -> Array:
        """``(K + 1, K)``: targets and ones, times this, are standardized targets."""
        return np.vstack([np.diag(1 / self.scale), -self.mean / self.scale])


class RunningStandardization:
    """Mean and deviation of every number of the targets, over all offered items.

    Example:
        >>> import numpy as np
        >>> statistics = RunningStandardization()
        >>> targets = np.array([[1.0], [3.0]])
        >>> statistics.state = statistics.walk(targets)[1]
        >>> statistics.mean, statistics.deviation
        (array([2.]), array([1.]))
    """

    def __init__(self) -> None:
        # Number of items, means and sums of squared distances.
        self._state = LateArray(np.float64)

    def prepare(self, width: int) -> None:
        """Make room for targets of so many numbers, if there is none."""
        self._state.prepare(1 + 2 * width)

    @property
    def state(self) -> Array:
        """Number of items, means and sums of squared distances, ``(1 + 2K,)``."""
        state = self._state.array
        return np.zeros(1) if state is None else state.copy()

    @state.setter
    def state(self, value: Array) -> None:
        self._state.put(value)

    @property
    def count(self) -> int:
        """Number of items."""
        return int(self.state[0])

    @property
    def mean(self) -> Array:
        """Of each number, shape ``(K,)``."""
        state = self.state
        return state[1 : 1 + len(state) // 2]

    @property
    def deviation(self) -> Array:
        """Population deviation of each number, shape ``(K,)``."""
        state = self.state
        return np.sqrt(state[1 + len(state) // 2 :] / max(state[0], 1.0))

    def now(self, width: int, eps: float) -> Standards:
        """The standards of what was offered so far.

        Args:
            width: ``K``, for when there was nothing yet.
            eps: relative rounding of the targets.
        """
        if self._state.array is None:
            return Standards(np.zeros(width), np.zeros(width), eps)
        return Standards(self.mean, self.deviation, eps)

    def walk(self, targets: Array, eps: float = 0.0) -> tuple[Standards, Array]:
        """The standards after each item, which counts itself; nothing is changed.

        Args:
            targets: shape ``(n, K)``, oldest first, at least one.
            eps: relative rounding of the targets.

        Returns:
            The standards and the state after the last item.
        """
        width = targets.shape[1]
        count, mean, squares = 0.0, targets[0], np.zeros(width)
        before = self._state.array
        if before is not None and before[0]:
            count, mean, squares = before[0], before[1 : 1 + width], before[1 + width :]
        # Distances from a mean that is close: nothing is lost where means are large.
        distances = targets - mean
        counts = count + np.arange(1.0, len(targets) + 1)[:, None]
        firsts = distances.cumsum(0)
        shifts = firsts / counts
        sums = squares + (distances * distances).cumsum(0) - shifts * firsts
        sums = np.maximum(sums, 0.0)
        means = mean + shifts
        state = np.concatenate([counts[-1], means[-1], sums[-1]])
        return Standards(means, np.sqrt(sums / counts), eps), state

    # -- state ------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget everything but the shape."""
        self._state.clear()

    def state_dict(self) -> torch.Tensor | None:
        """A copy as a tensor; ``None`` before the first item."""
        return self._state.state_dict()

    def check_state(self, state: Any) -> None:
        """Raise ``ValueError`` if a saved state does not fit."""
        self._state.check_state(state)
        if state is None:
            return
        width = len(state) // 2 if state.ndim == 1 else 0
        check_count("the number of targets", width)
        if len(state) != 1 + 2 * width:
            raise ValueError(f"expected {1 + 2 * width} numbers, got {len(state)}")
        if min(state[0], *state[1 + width :]) < 0:
            raise ValueError(
                f"expected a count and sums of squares of at least 0, got {told(state)}"
            )

    def load_state_dict(self, state: torch.Tensor | None) -> None:
        """Continue from a state that was checked."""
        self._state.load_state_dict(state)

    def share_memory_(self) -> None:
        """Move the statistics, now or when there are any, to shared memory."""
        self._state.share_memory_()

    def __repr__(self) -> str:
        """What they are."""
        return (
            f"RunningStandardization(count={self.count}, mean={self.mean}, "
            f"deviation={self.deviation})"
        )
