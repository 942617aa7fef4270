"""The Bayesian linear model that says what a memory knows (Sec. 2.3 of the paper).

:class:`BayesianLinearPosterior` regresses targets on features; rows can be observed,
forgotten and replaced at rank-one cost, and one factorization serves all questions
between two changes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from info_replay.model.candidates import CandidateBatch
from info_replay.model.linear_algebra import row_products
from info_replay.model.statistics import (
    KernelStatistics,
    PrimalStatistics,
    Rows,
    Statistics,
)
from info_replay.validation import check_positive, told

__all__ = ["BayesianLinearPosterior"]

# What a saved posterior and the one that it is restored into must have in common.
_SHAPE = ("form", "feature_dim", "target_dim", "max_rows")


class BayesianLinearPosterior:
    r"""Posterior of ``y = w^T h + noise`` given the rows of a memory.

    Features are normalized as ``h = [h0, 1] / sqrt(d)`` with ``d = d0 + 1``, which is
    the same as ``[h0, 1]`` with ``c d`` in place of ``c``. With the prior
    ``w ~ N(0, sigma^2 / c)``, one for each of the ``K`` outputs (Sec. 2.3),

    .. math::
        p(w | Y; H) = N(A^{-1} b, \sigma^2 A^{-1}), \quad
        A = H^\top H + cI, \quad b = H^\top Y.

    Args:
        feature_dim: width ``d0`` of the features as they are given.
        target_dim: number ``K`` of outputs.
        noise: standard deviation ``sigma`` of the observations.
        jitter: ``c``, the ratio of noise to prior variance.
        max_rows: the most rows that it will ever hold, if that is known.
        form: ``"primal"`` keeps ``H^T H``; ``"kernel"`` keeps ``H H^T`` and needs
            ``max_rows``; ``"auto"`` takes the cheaper one.
        dtype: floating type of the statistics.
        device: where they live.

    Example:
        >>> import torch
        >>> posterior = BayesianLinearPosterior(2, 1)
        >>> features = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> targets = torch.tensor([[1.0], [-1.0]])
        >>> posterior.leverage(features)
        tensor([6.6667, 6.6667], dtype=torch.float64)
        >>> posterior.observe(features, targets)
        >>> mean, variance = posterior.predict(features)
        >>> mean.flatten()
        tensor([ 0.7692, -0.7692], dtype=torch.float64)
        >>> posterior.forget(features, targets)
        >>> float(posterior.predict(features)[0].abs().max()) < 1e-12
        True
    """

    def __init__(
        self,
        feature_dim: int,
        target_dim: int = 1,
        *,
        noise: float = 0.3,
        jitter: float = 0.1,
        max_rows: int | None = None,
        form: Literal["auto", "primal", "kernel"] = "auto",
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
    ) -> None:
        for name, size in (("feature_dim", feature_dim), ("target_dim", target_dim)):
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size!r}")
        check_positive("noise", noise)
        check_positive("jitter", jitter)
        if form not in ("auto", "primal", "kernel"):
            raise ValueError(f"form must be 'auto', 'primal' or 'kernel', got {form!r}")
        if form == "kernel" and max_rows is None:
            raise ValueError("the kernel form needs max_rows")
        if max_rows is not None and max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows!r}")
        if dtype not in (torch.float32, torch.float64):
            raise TypeError(f"dtype must be torch.float32 or float64, got {dtype}")
        self.feature_dim = feature_dim
        self.target_dim = target_dim
        self.noise = noise
        self.jitter = jitter
        self.dtype = dtype
        self.device = torch.device(device or "cpu")
        width = feature_dim + 1
        # The kernel form factorizes M x M instead of d x d but needs one more product,
        # so it pays for M up to about two thirds of d.
        if form == "auto":
            small = max_rows is not None and 3 * max_rows <= 2 * width
            form = "kernel" if small else "primal"
        self.form = form
        self.max_rows = max_rows if form == "kernel" else None  # None: any number
        make = KernelStatistics if form == "kernel" else PrimalStatistics
        self.statistics: Statistics = make(
            width, target_dim, jitter * width, max_rows, dtype=dtype, device=self.device
        )

    def join(self, features: Tensor, targets: Tensor | None = None) -> Tensor:
        """Rows ``[h0, 1, y]`` or ``[h0, 1]``, as the statistics take them.

        Args:
            features: shape ``(n, d0)``.
            targets: shape ``(n, K)``.

        Returns:
            Shape ``(n, d + K)`` or, without targets, ``(n, d)``.

        Raises:
            ValueError: if features or targets have another shape.
        """
        return torch.as_tensor(self.statistics.join(features, targets))

    def observe(
        self, features: Tensor, targets: Tensor, *, rows: slice | Tensor | None = None
    ) -> None:
        """Condition on rows.

        Args:
            features: shape ``(n, d0)``.
            targets: shape ``(n, K)``.
            rows: numbers of the rows, if the caller numbers them: the kernel form then
                need not search for them.
        """
        self.statistics.replace(None, self.statistics.join(features, targets), rows)

    def forget(
        self, features: Tensor, targets: Tensor, *, rows: slice | Tensor | None = None
    ) -> None:
        """Take observed rows out; arguments as in :meth:`observe`."""
        self.statistics.replace(self.statistics.join(features, targets), None, rows)

    def replace(
        self,
        old_features: Tensor,
        old_targets: Tensor,
        features: Tensor,
        targets: Tensor,
        *,
        rows: slice | Tensor | None = None,
    ) -> None:
        """Put new rows in the place of old ones.

        Args:
            old_features: features of the rows that leave, shape ``(n, d0)``.
            old_targets: their targets, shape ``(n, K)``.
            features: features of the rows that come, shape ``(n, d0)``.
            targets: their targets, shape ``(n, K)``.
            rows: numbers of the rows, as in :meth:`observe`, all different.
        """
        count, join = len(old_features), self.statistics.join
        if count != len(features):
            raise ValueError(
                f"{count} rows can be replaced by as many, got {len(features)}"
            )
        old = join(old_features, old_targets)
        self.statistics.replace(old, join(features, targets), rows)

    def refresh(
        self,
        old_features: Tensor,
        features: Tensor,
        targets: Tensor,
        *,
        rows: slice | Tensor | None = None,
    ) -> None:
        """Give rows new features (Sec. 2.3 "Feature update"); the targets stay.

        Args:
            old_features: features that the rows had, shape ``(n, d0)``.
            features: features that they have now, shape ``(n, d0)``.
            targets: their targets, shape ``(n, K)``.
            rows: as in :meth:`replace`.

        Example:
            >>> import torch
            >>> posterior = BayesianLinearPosterior(1)
            >>> old, new, target = torch.zeros(1, 1), torch.ones(1, 1), torch.ones(1)
            >>> posterior.observe(old, target)
            >>> posterior.refresh(old, new, target)
            >>> posterior.predict(new)[0]
            tensor([[0.9091]], dtype=torch.float64)
        """
        self.replace(old_features, targets, features, targets, rows=rows)

    def rebuild(
        self,
        features: Tensor,
        targets: Tensor,
        encode: Callable[[Tensor], Rows] | None = None,
    ) -> None:
        """Start again from exactly these rows, numbered from 0, block by block.

        Args:
            features: shape ``(n, d0)``.
            targets: shape ``(n, K)``, or what ``encode`` turns into that.
            encode: applied to each block of targets, one-hot encoding for example.
        """
        self.statistics.rebuild(features, targets, encode)

    def clear(self) -> None:
        """Forget every row."""
        self.statistics.clear()

    def candidates(self, features: Tensor, targets: Tensor) -> CandidateBatch[Tensor]:
        """Hold points against the memory; see :class:`CandidateBatch`."""
        return CandidateBatch(self.statistics, self.join(features, targets))

    def leverage(self, features: Tensor) -> Tensor:
        """``v = h^T A^-1 h`` of features ``(n, d0)``, shape ``(n,)``."""
        return self._leverage(features)[0]

    def predict(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Predictive mean ``(n, K)`` and variance ``sigma^2 (1 + v)``, ``(n,)``."""
        leverage, lowered = self._leverage(features)
        mean = torch.as_tensor(lowered @ self.statistics.mean)
        return mean, self.noise**2 * (1 + leverage)

    def _leverage(self, features: Tensor) -> tuple[Tensor, Any]:
        """Leverages ``(n,)`` and representations with the metric applied."""
        representation = self.statistics.represent(self.statistics.join(features))
        lowered = self.statistics.lower(representation)
        return torch.as_tensor(row_products(representation, lowered)), lowered

    def leave_one_out(self, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Leverage and residual of each observed row without itself (Sec. 2.4).

        With the row they are ``l`` and ``r``; without it, ``l / (1 - l)`` and
        ``r / (1 - l)``.

        Args:
            features: of rows that were observed, shape ``(n, d0)``.
            targets: of these rows, shape ``(n, K)``.

        Returns:
            Leverages ``(n,)`` and residuals ``(n, K)``.

        Example:
            >>> import torch
            >>> posterior = BayesianLinearPosterior(1)
            >>> features = torch.tensor([[0.0], [2.0]])
            >>> posterior.observe(features, torch.zeros(2))
            >>> leverage, _ = posterior.leave_one_out(features, torch.zeros(2))
            >>> posterior.forget(features[:1], torch.zeros(1))
            >>> bool(torch.isclose(leverage[0], posterior.leverage(features[:1])[0]))
            True
        """
        batch = self.candidates(features, targets)
        rest = 1 - batch.leverage
        return batch.leverage / rest, batch.residual / rest[:, None]

    def with_targets(self, matrix: Tensor) -> BayesianLinearPosterior:
        """The posterior of the same features with targets ``Y T``.

        Args:
            matrix: ``T``, shape ``(K, L)``.

        Returns:
            A new posterior with ``L`` outputs.
        """
        twin = copy.copy(self)
        twin.target_dim = matrix.shape[1]
        twin.statistics = self.statistics.with_targets(
            matrix.to(self.device, self.dtype)
        )
        return twin

    def share_memory_(self) -> None:
        """Move the statistics to memory that child processes share."""
        self.statistics.share_memory_()

    def state_dict(self) -> dict[str, Any]:
        """The statistics, bit for bit; settings are the constructor's."""
        tensors = self.statistics.tensors()
        return {
            **{name: getattr(self, name) for name in _SHAPE},
            "tensors": {name: tensor.clone() for name, tensor in tensors.items()},
        }

    def check_state(self, state_dict: dict[str, Any]) -> None:
        """Raise ``ValueError`` if a :meth:`state_dict` has another shape."""
        for name in _SHAPE:
            if state_dict[name] != getattr(self, name):
                raise ValueError(
                    f"cannot restore a posterior with {name}={state_dict[name]!r} "
                    f"into one with {name}={getattr(self, name)!r}"
                )
        for name, tensor in self.statistics.tensors().items():
            saved = state_dict["tensors"].get(name)
            if (
                not isinstance(saved, Tensor)
                or saved.shape != tensor.shape
                or saved.dtype != tensor.dtype
            ):
                raise ValueError(
                    f"{name!r} must be a tensor of {tensor.dtype} and shape "
                    f"{tuple(tensor.shape)}, got {told(saved)}"
                )
            if not bool(saved.isfinite().all()):
                raise ValueError(f"{name!r} must be finite")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict` of a posterior of the same shape.

        Raises:
            ValueError: if it has another shape; nothing is changed.
        """
        self.check_state(state_dict)
        self.statistics.load_tensors(state_dict["tensors"])

    def __repr__(self) -> str:
        """Sizes and settings."""
        return (
            f"BayesianLinearPosterior(feature_dim={self.feature_dim}, "
            f"target_dim={self.target_dim}, noise={self.noise}, "
            f"jitter={self.jitter}, form={self.form!r}, device='{self.device}')"
        )
