"""A batch of points held against a memory that may change while they wait.

:class:`CandidateBatch` makes the sequential algorithms of the paper exact at batch
speed: it knows leverage and residual of all candidates at once, and when one of them
enters the memory, or an old point leaves it, both are corrected by a rank-one update
in ``O(nD)`` instead of being computed anew.
"""

from __future__ import annotations

import torch
from torch import Tensor

from info_replay.statistics import Statistics

__all__ = ["CandidateBatch"]


class CandidateBatch:
    """Leverages and residuals of points, kept right while the memory changes.

    Args:
        statistics: what the memory knows; it is read here, never changed.
        features: normalised features of the candidates, shape ``(n, d)``.
        targets: their targets, shape ``(n, K)``.

    Attributes:
        leverage: ``v`` of each candidate, shape ``(n,)``.
        residual: target minus predictive mean, shape ``(n, K)``.
    """

    def __init__(
        self, statistics: Statistics, features: Tensor, targets: Tensor
    ) -> None:
        self._statistics = statistics
        self.representation = statistics.represent(features)
        self._lowered = statistics.lower(self.representation)
        self._mean = statistics.mean
        self.leverage = (self.representation * self._lowered).sum(1)
        self.residual = targets - self._lowered @ self._mean
        # The changes so far: A^-1 = A0^-1 - sum_j scale_j q_j q_j^T.
        self._directions: list[Tensor] = []
        self._scales: list[Tensor] = []

    @property
    def squared_error(self) -> Tensor:
        """``R`` of each candidate, summed over the outputs."""
        return self.residual.square().sum(1)

    def observe(self, representation: Tensor, target: Tensor) -> None:
        """Add a point to the memory.

        Args:
            representation: of the point, shape ``(D,)``: a row of this batch's, or from
                :meth:`Statistics.represent`.
            target: of the point, shape ``(K,)``.
        """
        self._change(representation, target, 1.0)

    def forget(self, representation: Tensor, target: Tensor) -> None:
        """Take a point out of the memory; arguments as in :meth:`observe`."""
        self._change(representation, target, -1.0)

    def _change(self, representation: Tensor, target: Tensor, sign: float) -> None:
        direction, cross, gain, residual = self.step(representation, target, sign)
        self.leverage = self.leverage - gain * cross.square()
        self.residual = self.residual - torch.outer(gain * cross, residual)
        self._mean = self._mean + torch.outer(gain * direction, residual)
        self._directions.append(direction)
        self._scales.append(gain)

    def step(
        self, representation: Tensor, target: Tensor, sign: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What adding (or with ``sign`` -1 removing) a point would change.

        Returns:
            The direction ``q = A^-1 h`` of the change, its inner products ``c`` with
            the candidates, the gain ``g`` and the point's residual ``r``: leverages
            change by ``-g c^2`` and residuals by ``-g c r^T``.
        """
        lowered = self._statistics.lower(representation)
        direction = representation
        if self._directions:
            directions = torch.stack(self._directions)
            scales = torch.stack(self._scales)
            direction = direction - directions.T @ (scales * (directions @ lowered))
        gain = sign / (1 + sign * (lowered @ direction))
        cross = self._lowered @ direction
        residual = target - lowered @ self._mean
        return direction, cross, gain, residual

    def copy_row(self, source: int, destination: int) -> None:
        """Let one candidate become a second copy of another.

        Args:
            source: row to copy.
            destination: row to overwrite.
        """
        for tensor in (
            self.representation,
            self._lowered,
            self.leverage,
            self.residual,
        ):
            tensor[destination] = tensor[source]

    def in_sequence(self) -> tuple[Tensor, Tensor]:
        """What each candidate meets if all before it in the batch were memorised.

        With ``V`` the inner products of the candidates and ``L L^T = I + V``, the
        sequential residuals are ``L_ii (L^-1 E)_i`` and the sequential leverages are
        ``L_ii^2 - 1``.

        Returns:
            Leverages ``(n,)`` and residuals ``(n, K)``.
        """
        products = self._lowered @ self.representation.T
        diagonal = products.diagonal().clone()
        products.diagonal().add_(1)
        factor = torch.linalg.cholesky_ex(products).L
        residual = torch.linalg.solve_triangular(factor, self.residual, upper=False)
        # The same as L_ii^2 - 1, without its cancellation where leverages are small.
        leverage = diagonal - factor.tril(-1).square().sum(1)
        return leverage, factor.diagonal()[:, None] * residual
