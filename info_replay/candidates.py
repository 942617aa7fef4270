"""A batch of points held against a memory that may change while they wait.

:class:`CandidateBatch` makes the sequential algorithms of the paper exact at batch
speed: it knows leverage and residual of all candidates at once, and when one of them
enters the memory, or an old point leaves it, both are corrected by a rank-one update
in ``O(nD)`` instead of being computed anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from info_replay.statistics import Statistics

__all__ = ["CandidateBatch"]

# Rank-one changes after which a batch should be set up anew. Each costs digits where a
# point of high leverage leaves a small memory; setting up costs a factorisation.
_CHANGES = 4


class CandidateBatch:
    """Leverages and residuals of points, kept right while the memory changes.

    Args:
        statistics: what the memory knows; it is read here, never changed.
        rows: features and targets of the candidates, shape ``(n, d + K)``.

    Attributes:
        targets: of the candidates, shape ``(n, K)``.
        leverage: ``v`` of each candidate, shape ``(n,)``.
        residual: target minus predictive mean, shape ``(n, K)``.
    """

    def __init__(self, statistics: Statistics, rows: Tensor) -> None:
        self._statistics = statistics
        features, self.targets = rows.split(
            [statistics.feature_dim, statistics.target_dim], dim=1
        )
        self.representation = statistics.represent(features)
        self._lowered = statistics.lower(self.representation)
        self._mean = statistics.mean
        self.leverage = torch.linalg.vecdot(self.representation, self._lowered)
        self.residual = torch.addmm(self.targets, self._lowered, self._mean, alpha=-1)
        # The changes so far: A^-1 = A0^-1 - Q G Q^T with the first `_changes` columns.
        self._changes = 0
        self._directions: Tensor | None = None
        self._gains: Tensor | None = None

    @property
    def is_worn(self) -> bool:
        """Whether so much has changed that rounding calls for a fresh start."""
        return self._changes >= _CHANGES

    def represent(self, rows: Tensor) -> Tensor:
        """Representations ``(m, D)`` of other points' rows."""
        return self._statistics.represent(rows[:, : self._statistics.feature_dim])

    @property
    def squared_error(self) -> Tensor:
        """``R`` of each candidate, summed over the outputs."""
        return torch.linalg.vecdot(self.residual, self.residual)

    def change(
        self, representations: Tensor, targets: Tensor, signs: Sequence[float]
    ) -> None:
        """Add points to the memory and take points out of it.

        Args:
            representations: of the points, shape ``(m, D)``: rows of this batch's, or
                from :meth:`Statistics.represent`.
            targets: of the points, shape ``(m, K)``.
            signs: 1 for each point that comes, -1 for each that goes.
        """
        directions, cross, gain, residual = self.effect(representations, targets, signs)
        weighted = cross @ gain
        self.leverage = self.leverage - torch.linalg.vecdot(weighted, cross)
        self.residual = torch.addmm(self.residual, weighted, residual, alpha=-1)
        self._mean = torch.addmm(self._mean, directions.T @ gain, residual)
        self._record(directions, gain)

    def effect(
        self, representations: Tensor, targets: Tensor, signs: Sequence[float]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What :meth:`change` would do, without doing it.

        For ``A' = A + U S U^T`` the change of the inverse is ``-Q G Q^T`` with
        ``Q = A^-1 U`` and ``G = (S + U^T Q)^-1``.

        Returns:
            ``Q^T`` ``(m, D)``, the inner products ``C`` of the candidates with it
            ``(n, m)``, ``G`` ``(m, m)`` and the residuals ``r`` of the points
            ``(m, K)``: leverages change by ``-diag(C G C^T)``, residuals by ``-C G r``.
        """
        lowered = self._statistics.lower(representations)
        directions = representations
        if self._changes:
            assert self._directions is not None
            assert self._gains is not None
            earlier = self._directions[: self._changes]
            gains = self._gains[: self._changes, : self._changes]
            directions = directions - ((lowered @ earlier.T) @ gains) @ earlier
        inner = lowered @ directions.T
        inner.diagonal().add_(inner.new_tensor(signs))
        residual = torch.addmm(targets, lowered, self._mean, alpha=-1)
        cross = self._lowered @ directions.T
        return directions, cross, torch.linalg.inv_ex(inner).inverse, residual

    def _record(self, directions: Tensor, gain: Tensor) -> None:
        first, last = self._changes, self._changes + len(directions)
        if self._directions is None or self._gains is None:
            self._directions = directions.new_empty(8, directions.shape[1])
            self._gains = gain.new_zeros(8, 8)
        while last > len(self._directions):
            grown = self._gains.new_zeros(2 * len(self._gains), 2 * len(self._gains))
            grown[:first, :first] = self._gains[:first, :first]
            self._gains = grown
            self._directions = torch.cat([self._directions, self._directions])
        self._directions[first:last] = directions
        self._gains[first:last, first:last] = gain
        self._changes = last

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
