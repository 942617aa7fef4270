"""Inputs and targets of mean 0 and deviation 1: :class:`Standardization`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Scale", "Standardization"]


@dataclass(frozen=True)
class Scale:
    """Mean and deviation of every column.

    Args:
        mean: shape ``()`` or ``(K,)``, float64.
        deviation: the same shape; 1 where a column is constant.

    Example:
        >>> scale = Scale.of(np.array([[1.0, 5.0], [3.0, 5.0]]))
        >>> scale.apply([[1.0, 5.0]]).tolist()
        [[-1.0, 0.0]]
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[Any]) -> Scale:
        """The scale of data.

        Args:
            values: shape ``(n,)`` or ``(n, K)``.

        Returns:
            Their mean and deviation.
        """
        mean = np.asarray(values.mean(0, dtype=np.float64))
        deviation = np.asarray(values.std(0, dtype=np.float64))
        # A constant column has a deviation of rounding errors: leave its unit alone.
        negligible = deviation <= 1e-12 * np.abs(mean)
        return cls(mean, np.where(negligible | (deviation == 0), 1.0, deviation))

    def apply(self, values: ArrayLike) -> NDArray[np.float32]:
        """From the user's units to mean 0 and deviation 1."""
        return ((np.asarray(values) - self.mean) / self.deviation).astype(np.float32)

    def undo(self, values: ArrayLike) -> NDArray[np.float64]:
        """From mean 0 and deviation 1 to the user's units."""
        return np.asarray(values, dtype=np.float64) * self.deviation + self.mean


@dataclass(frozen=True)
class Standardization:
    """What was done to a data set, so that predictions can be turned back.

    Args:
        input_scale: of the inputs, ``None`` if they are as they were.
        target_scale: of the targets, ``None`` if they are as they were.

    Example:
        >>> from continual_envs import make_dataset
        >>> X = np.random.default_rng(0).normal(size=(50, 3))
        >>> data = make_dataset((X, 20 + 3 * X[:, 0]))
        >>> mean = data.standardization.restore(np.zeros(1))  # in the units of y
        >>> bool(18 < mean[0] < 22)
        True
    """

    input_scale: Scale | None = None
    target_scale: Scale | None = None

    def inputs(self, x: ArrayLike) -> NDArray[Any]:
        """Inputs as the stream shows them.

        Args:
            x: in the user's units, shape ``(n, d)``.

        Returns:
            The same shape.
        """
        return np.asarray(x) if self.input_scale is None else self.input_scale.apply(x)

    def targets(self, y: ArrayLike) -> NDArray[Any]:
        """Targets as the stream tells them.

        Args:
            y: in the user's units, shape ``(n,)`` or ``(n, K)``.

        Returns:
            The same shape.
        """
        scale = self.target_scale
        return np.asarray(y) if scale is None else scale.apply(y)

    def restore_inputs(self, x: ArrayLike) -> NDArray[Any]:
        """Inputs in the user's units.

        Args:
            x: as the stream shows them, shape ``(n, d)``.

        Returns:
            The same shape.
        """
        return np.asarray(x) if self.input_scale is None else self.input_scale.undo(x)

    def restore(self, prediction: ArrayLike) -> NDArray[Any]:
        """Predictions in the user's units.

        Args:
            prediction: of a learner, shape ``(n,)`` or ``(n, K)``.

        Returns:
            The same shape.
        """
        scale = self.target_scale
        return np.asarray(prediction) if scale is None else scale.undo(prediction)
