"""The paper's formulas, slowly: explicit inverses, densities and whole histories.

Written from the paper alone (Sec. 2.2 to 2.4, appendices "Information-theoretic
criteria" and "Proofs") in float64 NumPy; nothing here comes from ``info_replay``. The
algorithms that are built on them are in :mod:`tests.writers.reference`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def normalize(features: ArrayLike) -> Array:
    """``h = [h0, 1] / sqrt(d)`` with ``d = d0 + 1``, of rows ``(n, d0)``."""
    rows = np.asarray(features, dtype=np.float64)
    ones = np.ones((len(rows), 1))
    return np.concatenate([rows, ones], axis=1) / math.sqrt(rows.shape[1] + 1)


def one_hot(labels: Sequence[int], num_classes: int) -> Array:
    """Labels ``(n,)`` as rows of zeros with a single one."""
    rows = np.zeros((len(labels), num_classes))
    for row, label in zip(rows, labels, strict=True):
        row[label] = 1.0
    return rows


def log_normal(value: Array, mean: Array, variance: float) -> Array:
    """Log density of a univariate Gaussian, for each output."""
    return -((value - mean) ** 2) / (2 * variance) - math.log(
        math.sqrt(2 * math.pi * variance)
    )


@dataclass(frozen=True)
class Memory:
    """Rows of a memory and the Bayesian linear model that they define.

    Attributes:
        features: as the network gives them, shape ``(n, d0)``.
        targets: shape ``(n, K)``.
        noise: ``sigma``.
        jitter: ``c = sigma^2 / sigma_w^2``.
    """

    features: Array
    targets: Array
    noise: float = 0.3
    jitter: float = 0.1

    @classmethod
    def empty(
        cls, feature_dim: int, target_dim: int, noise: float = 0.3, jitter: float = 0.1
    ) -> Memory:
        """A memory without rows."""
        return cls(np.zeros((0, feature_dim)), np.zeros((0, target_dim)), noise, jitter)

    def with_rows(self, features: ArrayLike, targets: ArrayLike) -> Memory:
        """The memory with rows appended."""
        return replace(
            self,
            features=np.concatenate([self.features, np.asarray(features)]),
            targets=np.concatenate([self.targets, np.asarray(targets)]),
        )

    def with_point(self, feature: Array, target: Array) -> Memory:
        """The memory ``M+`` with one row appended."""
        return self.with_rows(feature[None], target[None])

    def without(self, row: int) -> Memory:
        """The memory with one row really left out."""
        return replace(
            self,
            features=np.delete(self.features, row, axis=0),
            targets=np.delete(self.targets, row, axis=0),
        )

    # -- the weight posterior (Sec. 2.3) -----------------------------------------------

    @property
    def A(self) -> Array:
        """``H^T H + c I``."""
        h = normalize(self.features)
        return h.T @ h + self.jitter * np.eye(h.shape[1])

    @property
    def b(self) -> Array:
        """``H^T Y``, one column per output."""
        return normalize(self.features).T @ self.targets

    @functools.cached_property
    def weights(self) -> tuple[Array, Array]:
        """Mean ``(d, K)`` and covariance ``(d, d)`` of the weight posterior."""
        inverse = np.linalg.inv(self.A)
        return inverse @ self.b, self.noise**2 * inverse

    def predict(self, feature: Array) -> tuple[Array, float]:
        """Predictive mean ``(K,)`` and variance at one point, noise included."""
        h = normalize(feature[None])[0]
        mean, covariance = self.weights
        return h @ mean, float(h @ covariance @ h) + self.noise**2

    def leverages(self, features: Array) -> Array:
        """``h^T A^-1 h`` of each point."""
        inverse = np.linalg.inv(self.A)
        return np.array([h @ inverse @ h for h in normalize(features)])

    def residuals(self, features: Array, targets: Array) -> Array:
        """Target minus predictive mean of each point, shape ``(n, K)``."""
        return targets - normalize(features) @ self.weights[0]

    # -- the criteria (Sec. 2.2 and appendix) ------------------------------------------

    def surprise(self, feature: Array, target: Array) -> float:
        """``-log p(y | memory)``, summed over the outputs."""
        return -float(log_normal(target, *self.predict(feature)).sum())

    def learnability(self, feature: Array, target: Array) -> float:
        """``log p(y' | y, memory)`` at ``y' = y``, summed over the outputs."""
        after = self.with_point(feature, target)
        return float(log_normal(target, *after.predict(feature)).sum())

    def mic(self, feature: Array, target: Array, eta: float) -> float:
        """``eta * learnability + surprise``."""
        return eta * self.learnability(feature, target) + self.surprise(feature, target)

    def expected_log_likelihood(self, feature: Array, target: Array) -> float:
        """``E[log p(y | w)]`` over weights that know the point, summed over outputs."""
        h = normalize(feature[None])[0]
        mean, covariance = self.with_point(feature, target).weights
        squared_error = (target - h @ mean) ** 2 + h @ covariance @ h
        density = -squared_error / (2 * self.noise**2)
        return float((density - math.log(self.noise * math.sqrt(2 * math.pi))).sum())

    def information_gain(self, feature: Array, target: Array, eta: float) -> float:
        """``eta * E[log p(y | w)] - log p(y | memory)``."""
        expected = self.expected_log_likelihood(feature, target)
        return eta * expected + self.surprise(feature, target)

    def divergence(self, feature: Array, target: Array) -> float:
        """``KL(p(w | y, memory) || p(w | memory))``, summed over the outputs."""
        old_mean, old = self.weights
        new_mean, new = self.with_point(feature, target).weights
        old_inverse = np.linalg.inv(old)
        spread = (
            np.trace(old_inverse @ new)
            - len(old)
            + np.linalg.slogdet(old)[1]
            - np.linalg.slogdet(new)[1]
        )
        shift = new_mean - old_mean
        return float(
            sum((spread + column @ old_inverse @ column) / 2 for column in shift.T)
        )

    def entropy_reduction(self, feature: Array, target: Array) -> float:
        """Entropy of the weights of one output before, minus after."""
        after = self.with_point(feature, target)
        return entropy(self.weights[1]) - entropy(after.weights[1])


def entropy(covariance: Array) -> float:
    """Differential entropy of a Gaussian, from the determinant of its covariance."""
    return float(np.linalg.slogdet(2 * math.pi * math.e * covariance)[1]) / 2


#: Of a memory, the features and the target of a point.
Criterion = Callable[[Memory, Array, Array], float]


def mic(eta: float) -> Criterion:
    """MIC as a function of memory and point."""
    return lambda memory, feature, target: memory.mic(feature, target, eta)


def information_gain(eta: float) -> Criterion:
    """IG as a function of memory and point."""
    return lambda memory, feature, target: memory.information_gain(feature, target, eta)


def leave_one_out(memory: Memory) -> tuple[Array, Array]:
    """Leverage ``(n,)`` and residual ``(n, K)`` of each row given all the others."""
    leverages, residuals = [], []
    for row in range(len(memory.features)):
        rest = memory.without(row)
        point = memory.features[row : row + 1], memory.targets[row : row + 1]
        leverages.append(rest.leverages(point[0])[0])
        residuals.append(rest.residuals(*point)[0])
    return np.array(leverages), np.array(residuals)


def sequential_fill(
    memory: Memory, features: Array, targets: Array
) -> tuple[Array, Array]:
    """Leverage and residual that each point meets when all before it were stored."""
    leverages, residuals = [], []
    for feature, target in zip(features, targets, strict=True):
        leverages.append(memory.leverages(feature[None])[0])
        residuals.append(memory.residuals(feature[None], target[None])[0])
        memory = memory.with_point(feature, target)
    return np.array(leverages), np.array(residuals)


@dataclass(frozen=True)
class GaussianProcess:
    """Gaussian process regression of scalars on scalars by explicit conditioning.

    Attributes:
        kernel: covariance of the function at two inputs.
        inputs: where it was observed, shape ``(n,)``.
        targets: what was observed, shape ``(n,)``.
        noise: standard deviation of the observations.
    """

    kernel: Callable[[float, float], float]
    inputs: Array
    targets: Array
    noise: float

    def predict(self, x: float) -> tuple[float, float]:
        """Predictive mean and variance of an observation, noise included."""
        k = np.array([[self.kernel(a, b) for b in self.inputs] for a in self.inputs])
        inverse = np.linalg.inv(k + self.noise**2 * np.eye(len(self.inputs)))
        cross = np.array([self.kernel(x, a) for a in self.inputs])
        variance = self.kernel(x, x) - cross @ inverse @ cross + self.noise**2
        return float(cross @ inverse @ self.targets), float(variance)

    def given(self, x: float, y: float) -> GaussianProcess:
        """The process conditioned on one more observation."""
        return replace(
            self, inputs=np.append(self.inputs, x), targets=np.append(self.targets, y)
        )

    def surprise(self, x: float, y: float) -> float:
        """``-log p(y | data)``."""
        mean, variance = self.predict(x)
        return -float(log_normal(np.array(y), np.array(mean), variance))

    def learnability(self, x: float, y: float) -> float:
        """``log p(y' | y, data)`` at ``y' = y``."""
        mean, variance = self.given(x, y).predict(x)
        return float(log_normal(np.array(y), np.array(mean), variance))


def moments(values: Sequence[float], decay: float | None) -> tuple[float, float, float]:
    """Total weight, mean and population deviation; the newest value has weight 1."""
    if not len(values):
        return 0.0, 0.0, 0.0
    items = np.asarray(values, dtype=np.float64)
    weights = (decay or 1.0) ** np.arange(len(items))[::-1]
    total = math.fsum(weights)
    mean = math.fsum(weights * items) / total
    return total, mean, math.sqrt(math.fsum(weights * (items - mean) ** 2) / total)
