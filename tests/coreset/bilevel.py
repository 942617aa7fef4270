"""The bilevel problem of coresets, slowly: dense Hessians over all points.

Written from Borsos et al. (2020) in float64 NumPy; nothing here comes from
``info_replay``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BilevelProblem:
    """Points, and the two levels with dense matrices over all of them.

    Attributes:
        kernel: of every point with every point, ``(n, n)``.
        labels: ``(n,)``.
        weights: of the points in the outer objective, ``(n,)``.
        num_classes: number of classes.
        regularization: price of the squared norm.
    """

    kernel: Array
    labels: NDArray[np.int64]
    weights: Array
    num_classes: int
    regularization: float

    @property
    def count(self) -> int:
        """Number of points."""
        return len(self.labels)

    @property
    def targets(self) -> Array:
        """Labels as rows of zeros with a single one."""
        return np.eye(self.num_classes)[self.labels]

    def losses(self, logits: Array) -> Array:
        """Cross-entropy of each point."""
        return -log_softmax(logits, axis=1)[np.arange(self.count), self.labels]

    def outer(self, logits: Array) -> float:
        """Weighted mean of the losses of all points."""
        return float(self.weights @ self.losses(logits) / self.weights.sum())

    def inner(self, coefficients: Array, importance: Array) -> float:
        """Losses of the points that are learned from, and the price of the norm."""
        logits = self.kernel @ coefficients
        norm = np.sum(coefficients * logits)
        return float(importance @ self.losses(logits) + self.regularization * norm)

    def curvature(self, logits: Array, importance: Array) -> Array:
        """``2 lambda I + W P K`` for coefficients of all points."""
        size = self.count * self.num_classes
        matrix = np.zeros((self.count, self.num_classes) * 2)
        for i, p in enumerate(softmax(logits, axis=1)):
            hessian = importance[i] * (np.diag(p) - np.outer(p, p))
            for j in range(self.count):
                matrix[i, :, j, :] = hessian * self.kernel[i, j]
        return matrix.reshape(size, size) + 2 * self.regularization * np.eye(size)

    def fit(self, importance: Array) -> Array:
        """Logits of the inner solution, by damped Newton steps to rounding."""
        coefficients = np.zeros((self.count, self.num_classes))
        for _ in range(200):
            logits = self.kernel @ coefficients
            slope = importance[:, None] * (softmax(logits, axis=1) - self.targets)
            slope += 2 * self.regularization * coefficients
            if np.abs(slope).max() < 1e-13:
                break
            curvature = self.curvature(logits, importance)
            step = np.linalg.solve(curvature, slope.ravel()).reshape(slope.shape)
            value, length = self.inner(coefficients, importance), 1.0
            while (
                self.inner(coefficients - length * step, importance) > value + 1e-12
                and length > 1e-6
            ):
                length /= 2
            coefficients = coefficients - length * step
        return self.kernel @ coefficients

    def importance(self, chosen: list[int]) -> Array:
        """1 for points that are learned from, 0 for others."""
        result = np.zeros(self.count)
        result[chosen] = 1
        return result

    def gradients(self, chosen: list[int]) -> Array:
        """Implicit gradients with the explicit Hessian, one candidate at a time."""
        importance = self.importance(chosen)
        logits = self.fit(importance)
        slopes = softmax(logits, axis=1) - self.targets
        curvature = self.curvature(logits, importance)
        result = np.empty(self.count)
        for candidate in range(self.count):
            entering = np.zeros_like(slopes)
            entering[candidate] = slopes[candidate]
            move = -np.linalg.solve(curvature, entering.ravel()).reshape(slopes.shape)
            change = self.kernel @ move
            shares = self.weights / self.weights.sum()
            result[candidate] = shares @ (slopes * change).sum(axis=1)
        return result
