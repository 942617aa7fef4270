"""A batch of points held against a memory that may change while they wait.

:class:`CandidateBatch` makes the sequential algorithms of the paper exact at batch
speed: it knows leverage and residual of all candidates at once, and when one of them
enters the memory, or an old point leaves it, both are corrected by a rank-one update
in ``O(nD)`` instead of being computed anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Generic

import numpy as np
import torch

from info_replay.linear_algebra import Matrix, alike, cholesky, solve_lower
from info_replay.statistics import Statistics

__all__ = ["CandidateBatch", "row_products"]

# Rank-one changes after which a batch should be set up anew. Each costs digits where a
# point of high leverage leaves a small memory; setting up costs a factorisation.
_CHANGES = 4


class CandidateBatch(Generic[Matrix]):
    """Leverages and residuals of points, kept right while the memory changes.

    Args:
        statistics: what the memory knows; it is read here, never changed.
        rows: features and targets of the candidates, shape ``(n, d + K)``: a tensor,
            or an array that all that follows is then done with.

    Attributes:
        targets: of the candidates, shape ``(n, K)``.
        representation: of their features, shape ``(n, D)``.
        leverage: ``v`` of each candidate, shape ``(n,)``.
        residual: target minus predictive mean, shape ``(n, K)``.
    """

    def __init__(self, statistics: Statistics, rows: Matrix) -> None:
        self._statistics = statistics
        width = statistics.feature_dim
        self.targets: Matrix = rows[:, width:]
        self.representation: Matrix = statistics.represent(rows[:, :width])
        self._lowered: Matrix = statistics.lower(self.representation)
        self._mean: Matrix = alike(statistics.mean, rows)
        self.leverage: Matrix = row_products(self.representation, self._lowered)
        self.residual: Matrix = self.targets - self._lowered @ self._mean
        # The changes so far: A^-1 = A0^-1 - sum of Q G Q^T.
        self._changes: list[tuple[Matrix, Matrix]] = []

    @property
    def is_worn(self) -> bool:
        """Whether so much has changed that rounding calls for a fresh start."""
        return sum(len(gain) for _, gain in self._changes) >= _CHANGES

    def represent(self, features: Matrix) -> Matrix:
        """Representations ``(m, D)`` of other points' features ``(m, d)``."""
        return self._statistics.represent(features)

    @property
    def squared_error(self) -> Matrix:
        """``R`` of each candidate, summed over the outputs."""
        return row_products(self.residual, self.residual)

    def change(
        self, representations: Matrix, targets: Matrix, signs: Sequence[float]
    ) -> None:
        """Add points to the memory and take points out of it.

        Args:
            representations: of the points, shape ``(m, D)``: rows of this batch's, or
                from :meth:`represent`.
            targets: of the points, shape ``(m, K)``.
            signs: 1 for each point that comes, -1 for each that goes.
        """
        directions, cross, gain, residual = self.effect(representations, targets, signs)
        weighted = cross @ gain
        self.leverage = self.leverage - row_products(weighted, cross)
        self.residual = self.residual - weighted @ residual
        self._mean = self._mean + directions.T @ (gain @ residual)
        self._changes.append((directions, gain))

    def swap(self, row: int, representation: Matrix, target: Matrix) -> None:
        """Let a candidate take the place of a point in the memory.

        Args:
            row: of the candidate.
            representation: of the point, shape ``(1, D)``, as in :meth:`change`.
            target: of the point, shape ``(1, K)``.
        """
        one = slice(row, row + 1)
        self.change(
            _join(self.representation[one], representation),
            _join(self.targets[one], target),
            (1, -1),
        )

    def effect(
        self, representations: Matrix, targets: Matrix, signs: Sequence[float]
    ) -> tuple[Matrix, Matrix, Matrix, Matrix]:
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
        for earlier, gain in self._changes:
            directions = directions - ((lowered @ earlier.T) @ gain) @ earlier
        residual = targets - lowered @ self._mean
        cross = self._lowered @ directions.T
        return directions, cross, _gain(lowered @ directions.T, signs), residual

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

    def in_sequence(self) -> tuple[Matrix, Matrix]:
        """What each candidate meets if all before it in the batch were memorised.

        With ``V`` the inner products of the candidates and ``L L^T = I + V``, the
        sequential residuals are ``L_ii (L^-1 E)_i`` and the sequential leverages are
        ``L_ii^2 - 1``.

        Returns:
            Leverages ``(n,)`` and residuals ``(n, K)``.
        """
        products = torch.as_tensor(self._lowered @ self.representation.T)
        diagonal = products.diagonal().clone()
        products.diagonal().add_(1)
        factor = cholesky(products)
        residual = solve_lower(factor, self.residual)
        # The same as L_ii^2 - 1, without its cancellation where leverages are small.
        leverage = diagonal - factor.tril(-1).square().sum(1)
        scale = alike(factor.diagonal()[:, None], residual)
        return alike(leverage, residual), scale * residual


def row_products(left: Matrix, right: Matrix) -> Matrix:
    """Inner products of the rows of two matrices ``(n, D)``, shape ``(n,)``."""
    if isinstance(left, np.ndarray):
        return np.einsum("ij,ij->i", left, right)
    return torch.linalg.vecdot(left, right)


def _join(above: Matrix, below: Matrix) -> Matrix:
    if isinstance(above, np.ndarray):
        return np.concatenate([above, below])
    return torch.cat([above, below])


def _gain(inner: Matrix, signs: Sequence[float]) -> Matrix:
    """``(S + U^T Q)^-1``; not finite, or not sensible, where there is none."""
    if isinstance(inner, np.ndarray) and len(inner) == 2:
        # By hand: this is most of what a swap costs otherwise.
        (a, b), (c, d) = inner.tolist()
        a, d = a + signs[0], d + signs[1]
        determinant = a * d - b * c or math.nan
        return np.array([[d, -b], [-c, a]]) / determinant
    if isinstance(inner, np.ndarray):
        return _gain(torch.from_numpy(inner), signs).numpy()
    inner.diagonal().add_(inner.new_tensor(signs))
    return torch.linalg.inv_ex(inner).inverse
