"""How much a memory would learn from a point: the criteria of the paper.

The paper writes the criteria with two Gaussian densities and two matrix inverses
(Sec. "An Efficient Bayesian Model"). Under a Gaussian model with noise variance
``sigma^2`` they depend on the memory through two numbers only:

* the **leverage** ``v``: the variance of the noise-free prediction in units of the
  noise variance, so that the predictive variance is ``sigma^2 (1 + v)``. For the
  Bayesian linear model ``v = h^T A^-1 h``;
* the **squared error** ``R``: the squared distance of the target from the predictive
  mean, summed over the ``K`` outputs.

Conditioning any Gaussian model on the point itself shrinks ``v`` to ``v / (1 + v)`` and
``R`` to ``R / (1 + v)^2``, hence the closed forms below. For a model that gives a mean
and a variance, use :meth:`Criterion.from_prediction`.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from info_replay.registry import register_criterion
from info_replay.validation import check_finite

__all__ = [
    "MIC",
    "Criterion",
    "EntropyReduction",
    "InformationGain",
    "learnability",
    "surprise",
]

#: One number per point: tensors on any device, or arrays on the host.
Values = TypeVar("Values", Tensor, NDArray[np.float64])


def surprise(
    leverage: Values, squared_error: Values, *, noise: float, num_outputs: int = 1
) -> Values:
    r"""Negative log density of the target before it is memorized (Sec. 2.2).

    .. math:: \frac{R}{2\sigma^2(1+v)} + \frac{K}{2}\log 2\pi\sigma^2(1+v)

    Args:
        leverage: ``v`` of each point, shape ``(n,)``.
        squared_error: ``R`` of each point, summed over the outputs, shape ``(n,)``.
        noise: standard deviation ``sigma`` of the observations.
        num_outputs: number ``K`` of outputs that ``squared_error`` sums over.

    Returns:
        The surprise of each point, shape ``(n,)``.

    Example:
        >>> import torch
        >>> v, error = torch.tensor([0.1, 0.1]), torch.tensor([0.0, 1.0])
        >>> surprise(v, error, noise=0.3)
        tensor([-0.2374,  4.8131])
    """
    double = 2 * noise**2 * (1 + leverage)
    return squared_error / double + num_outputs / 2 * _log(math.pi * double)


def learnability(
    leverage: Values, squared_error: Values, *, noise: float, num_outputs: int = 1
) -> Values:
    r"""Log density of the target after the model was conditioned on it (Sec. 2.2).

    .. math::
        -\frac{R}{2\sigma^2(1+v)(1+2v)}
        - \frac{K}{2}\log 2\pi\sigma^2\frac{1+2v}{1+v}

    Args:
        leverage: ``v`` of each point, shape ``(n,)``.
        squared_error: ``R`` of each point, summed over the outputs, shape ``(n,)``.
        noise: standard deviation ``sigma`` of the observations.
        num_outputs: number ``K`` of outputs that ``squared_error`` sums over.

    Returns:
        The learnability of each point, shape ``(n,)``.

    Example:
        A point far from the data (high leverage) is learned; an outlier among
        well-known points is not.

        >>> import torch
        >>> v, error = torch.tensor([9.0, 0.1]), torch.tensor([1.0, 1.0])
        >>> learnability(v, error, noise=0.3)
        tensor([-0.0651, -3.9672])
    """
    before, after = 1 + leverage, 1 + 2 * leverage
    logarithm = _log(2 * math.pi * noise**2 * after / before)
    misfit = -squared_error / (2 * noise**2 * before * after)
    return misfit - num_outputs / 2 * logarithm


class Criterion(abc.ABC):
    """Turns leverage and squared error into the information that a point carries.

    Example:
        >>> import torch
        >>> class Leverage(Criterion):
        ...     def __call__(self, leverage, squared_error, *, noise, num_outputs=1):
        ...         return leverage
        >>> Leverage()(torch.tensor([0.5]), torch.tensor([0.0]), noise=0.3)
        tensor([0.5000])
    """

    #: Whether it also takes arrays, which spares writers on the host a conversion.
    takes_arrays: bool = False

    @abc.abstractmethod
    def __call__(
        self,
        leverage: Tensor,
        squared_error: Tensor,
        *,
        noise: float,
        num_outputs: int = 1,
    ) -> Tensor:
        """Score points; larger means more informative.

        Args:
            leverage: ``v`` of each point, shape ``(n,)``.
            squared_error: ``R`` of each point, summed over the outputs, ``(n,)``.
            noise: standard deviation ``sigma`` of the observations.
            num_outputs: number ``K`` of outputs.

        Returns:
            The score of each point, shape ``(n,)``.
        """

    def on_host(
        self,
        leverage: NDArray[np.float64],
        squared_error: NDArray[np.float64],
        *,
        noise: float,
        num_outputs: int = 1,
    ) -> NDArray[np.float64]:
        """Score points that are given as arrays; see :meth:`__call__`."""
        points = torch.from_numpy(leverage), torch.from_numpy(squared_error)
        scores: Any = self(*points, noise=noise, num_outputs=num_outputs)
        if not isinstance(scores, Tensor):
            raise TypeError(f"{self!r} must return a tensor, got {scores!r}")
        return scores.double().numpy()

    def from_prediction(
        self, target: Tensor, mean: Tensor, variance: Tensor, *, noise: float
    ) -> Tensor:
        """Score points from the prediction of any Gaussian model.

        Args:
            target: observed values, shape ``(n,)`` or ``(n, K)``.
            mean: predictive means, of the shape of ``target``.
            variance: predictive variances of the observations, noise included, of
                shape ``(n,)``: the outputs share the variance of a point.
            noise: standard deviation ``sigma`` of the observations.

        Returns:
            The score of each point, shape ``(n,)``.

        Raises:
            ValueError: if the shapes do not match or a variance is below the noise's.

        Example:
            The toy Gaussian process of the paper (Appendix "Experimental Details"):
            both new points surprise the memory, but it can only learn the second.

            >>> import torch
            >>> def kernel(a, b):
            ...     return torch.exp(-2 * (a[:, None] - b[None, :]) ** 2)
            >>> x = torch.linspace(-1, 1, 10, dtype=torch.float64)
            >>> y = torch.sin(3 * x) - 1
            >>> new_x = torch.tensor([0.0, 1.5], dtype=torch.float64)
            >>> new_y = torch.tensor([1.0, 1.0], dtype=torch.float64)
            >>> weights = torch.linalg.solve(
            ...     kernel(x, x) + 0.04 * torch.eye(10), kernel(x, new_x)
            ... )
            >>> mean = weights.T @ y
            >>> variance = 1.04 - (kernel(new_x, x) * weights.T).sum(1)
            >>> low, high = MIC().from_prediction(new_y, mean, variance, noise=0.2)
            >>> bool(low < high)
            False
            >>> low, high = MIC(eta=3).from_prediction(new_y, mean, variance, noise=0.2)
            >>> bool(low < high)
            True
        """
        if target.shape != mean.shape or target.ndim not in (1, 2):
            raise ValueError(
                "target and mean must both have the shape (n,) or (n, K), got "
                f"{tuple(target.shape)} and {tuple(mean.shape)}"
            )
        if variance.shape != target.shape[:1]:
            raise ValueError(
                f"variance must have the shape ({target.shape[0]},), one value per "
                f"point, got {tuple(variance.shape)}"
            )
        leverage = variance / noise**2 - 1
        if bool((leverage < -1e-6).any()):
            raise ValueError(
                f"variance includes the noise, so it is at least noise**2 = "
                f"{noise**2:g}, got {variance.min().item():g}"
            )
        error = (target - mean).square()
        if error.ndim == 2:
            error = error.sum(1)
        num_outputs = target.shape[1] if target.ndim == 2 else 1
        return self(leverage.clamp_min(0), error, noise=noise, num_outputs=num_outputs)


def _log(values: Values) -> Values:
    return values.log() if isinstance(values, Tensor) else np.log(values)


def _check_eta(eta: float) -> None:
    check_finite("eta", eta)
    # Scores are squared and summed: much more would not be finite.
    if not 0 <= eta <= 1e9:
        raise ValueError(
            f"eta must be a finite number >= 0 and at most 1e+09, got {eta!r}"
        )


@register_criterion("mic")
@dataclass(frozen=True)
class MIC(Criterion):
    r"""Memorable information criterion (Sec. 2.2): ``eta * learnability + surprise``.

    .. math:: \mathrm{MIC}_\eta = \eta\, s_\text{learn} + s_\text{surp}

    Args:
        eta: weight of the learnability, at least 0. At 0 outliers look attractive; at
            1 the criterion bounds the information gain from above.

    Example:
        >>> import torch
        >>> MIC(eta=1.0)(torch.tensor([0.1]), torch.tensor([1.0]), noise=0.3)
        tensor([0.8459])
    """

    eta: float = 1.0
    takes_arrays = True

    def __post_init__(self) -> None:
        """Refuse a weight that is negative or not finite."""
        _check_eta(self.eta)

    def __call__(
        self,
        leverage: Values,
        squared_error: Values,
        *,
        noise: float,
        num_outputs: int = 1,
    ) -> Values:
        """Score points; see :meth:`Criterion.__call__`."""
        # The two closed forms with common terms collected: every item is scored here,
        # so each operation counts.
        eta = self.eta
        if eta == 0:
            return surprise(
                leverage, squared_error, noise=noise, num_outputs=num_outputs
            )
        before = 1 + leverage
        after = before + leverage
        weight = num_outputs / 2
        log: Any = torch.log if isinstance(leverage, Tensor) else np.log
        logarithms = weight * (1 + eta) * log(before) - weight * eta * log(after)
        if eta != 1:
            logarithms += weight * (1 - eta) * math.log(2 * math.pi * noise**2)
        misfit = squared_error * (after - eta) / (before * after)
        return logarithms + 1 / (2 * noise**2) * misfit


@register_criterion("ig")
@dataclass(frozen=True)
class InformationGain(Criterion):
    r"""Weighted information gain (Appendix "Information-theoretic criteria").

    .. math::
        \mathrm{IG}_\eta = \eta\,\mathbb{E}_{p(w|y_*,y_M)}[\log p(y_*|w)]
        + s_\text{surp}, \qquad \mathbb{E}[\cdot] = -\frac{R}{2\sigma^2(1+v)^2}
        - \frac{K}{2}\log 2\pi\sigma^2 - \frac{K}{2}\frac{v}{1+v}

    At ``eta = 1`` it is the Kullback-Leibler divergence from the old to the new
    posterior of the weights, hence never negative.

    Args:
        eta: weight of the first term, at least 0.

    Example:
        >>> import torch
        >>> InformationGain()(torch.tensor([0.1]), torch.tensor([1.0]), noise=0.3)
        tensor([0.4613])
    """

    eta: float = 1.0
    takes_arrays = True

    def __post_init__(self) -> None:
        """Refuse a weight that is negative or not finite."""
        _check_eta(self.eta)

    def __call__(
        self,
        leverage: Values,
        squared_error: Values,
        *,
        noise: float,
        num_outputs: int = 1,
    ) -> Values:
        """Score points; see :meth:`Criterion.__call__`."""
        before = 1 + leverage
        misfit = -squared_error / (2 * noise**2 * before * before)
        spread = math.log(2 * math.pi * noise**2) + leverage / before
        expected = misfit - num_outputs / 2 * spread
        return self.eta * expected + surprise(
            leverage, squared_error, noise=noise, num_outputs=num_outputs
        )


@register_criterion("er")
@dataclass(frozen=True)
class EntropyReduction(Criterion):
    r"""Entropy that the posterior loses (Appendix "Information-theoretic criteria").

    .. math:: \mathrm{ER} = \tfrac{1}{2}\log(1 + v)

    It ignores the target: a point is informative where inputs are new.

    Example:
        >>> import torch
        >>> EntropyReduction()(torch.tensor([1.0]), torch.tensor([5.0]), noise=0.3)
        tensor([0.3466])
    """

    takes_arrays = True

    def __call__(
        self,
        leverage: Values,
        squared_error: Values,
        *,
        noise: float,
        num_outputs: int = 1,
    ) -> Values:
        """Score points; see :meth:`Criterion.__call__`."""
        log1p: Any = torch.log1p if isinstance(leverage, Tensor) else np.log1p
        return log1p(leverage) / 2
