"""Leverages and residuals of a batch while the memory changes.

:class:`CandidateBatch` makes the sequential algorithms of the paper exact at batch
speed: when a point enters or leaves the memory, a rank-one update corrects leverage and
residual of all candidates in ``O(nD)`` instead of computing them anew.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
import torch
from numpy.typing import NDArray

from info_replay.model.linear_algebra import (
    Matrix,
    alike,
    cholesky,
    native,
    row_products,
    solve_lower,
    subtract_product,
    update_gain,
)
from info_replay.model.statistics import Statistics

__all__ = ["MOST_POINTS", "CandidateBatch", "largest_leverage", "rounding_shows"]

#: Points that may come and go before a batch should be set up anew: points of high
#: leverage that leave a small memory cost digits, and each point makes the next slower.
MOST_POINTS = 8


class CandidateBatch(Generic[Matrix]):
    """Leverages and residuals of points, kept current while the memory changes.

    Args:
        statistics: those of the memory; read, never changed.
        rows: features and targets of the candidates, shape ``(n, d + K)``: a tensor, or
            an array; all matrices are of that kind.

    Attributes:
        statistics: as given.
        targets: of the candidates, shape ``(n, K)``.
        representation: of their features, shape ``(n, D)``.
        leverage: ``v`` of each candidate, shape ``(n,)``.
        residual: target minus predictive mean, shape ``(n, K)``.
    """

    def __init__(self, statistics: Statistics, rows: Matrix) -> None:
        self.statistics = statistics
        width = statistics.feature_dim
        self.targets: Matrix = rows[:, width:]
        self.representation: Matrix = statistics.represent(rows[:, :width])
        self._lowered: Matrix = statistics.lower(self.representation)
        self._mean: Matrix = alike(statistics.mean, rows)
        self.leverage: Matrix = row_products(self.representation, self._lowered)
        self.residual: Matrix = subtract_product(
            self.targets, self._lowered, self._mean
        )
        self._first: tuple[Matrix, Matrix] = self.leverage, self.residual
        self._changes: _Changes[Matrix] | None = None

    @property
    def needs_refresh(self) -> bool:
        """Whether so much has changed that rounding calls for a fresh start."""
        return self._changes is not None and len(self._changes.signs) >= MOST_POINTS

    @property
    def squared_error(self) -> Matrix:
        """``R`` of each candidate, summed over the outputs."""
        return row_products(self.residual, self.residual)

    def change(
        self, representations: Matrix, targets: Matrix, signs: tuple[int, ...]
    ) -> None:
        """Add points to the memory and take points out of it.

        For ``A' = A + U S U^T`` the change of the inverse is ``-Q G Q^T`` with
        ``Q = A^-1 U`` and ``G = (S + U^T Q)^-1``: leverages change by
        ``-diag(C G C^T)`` and residuals by ``-C G r``, where ``C`` are the inner
        products of the candidates with ``U`` and ``r`` the residuals of ``U``. All are
        those before the first change, so rounding does not add up.

        Args:
            representations: of the points, shape ``(m, D)``, by the same statistics.
            targets: of the points, shape ``(m, K)``.
            signs: 1 for each point that comes, -1 for each that goes.
        """
        lowered = self.statistics.lower(representations)
        residual = targets - lowered @ self._mean
        cross = self._lowered @ representations.T
        before: _Changes[Matrix] | None = self._changes
        if before is not None:
            representations = _join(before.points, representations)
            lowered = _join(before.lowered, lowered)
            residual = _join(before.residual, residual)
            cross = _join(before.cross.T, cross.T).T
            signs = before.signs + signs
        gain = update_gain(lowered @ representations.T, signs)
        self._changes = _Changes(representations, lowered, residual, cross, gain, signs)
        weighted = cross @ gain
        leverage, errors = self._first
        self.leverage = leverage - row_products(weighted, cross)
        self.residual = errors - weighted @ residual

    def after_swaps(
        self, rows: list[int], leaving: Matrix, start: int = 0
    ) -> tuple[Matrix, Matrix, Matrix]:
        """Leverages ``(n,)`` and residuals, given that candidates replace points.

        Each candidate meets the memory after the swaps of those before it. Nothing is
        changed, and nothing may have been changed before.

        Args:
            rows: the candidates that come, at least one, ascending.
            leaving: features and targets ``(m, d + K)`` of what each one replaces.
            start: the first candidate to return.

        Returns:
            Leverages ``(n,)`` and residuals ``(n, K)``, and the leverages ``(2m,)`` of
            what comes and what goes, in turns, which tell whether rounding shows: see
            :func:`rounding_shows`.
        """
        width = self.statistics.feature_dim
        going = self.statistics.represent(leaving[:, :width])
        # What comes and what goes alternate.
        stack: Any = np.stack if isinstance(leaving, np.ndarray) else torch.stack
        points = stack([self.representation[rows], going], 1).reshape(2 * len(rows), -1)
        targets = stack([self.targets[rows], leaving[:, width:]], 1)
        targets = targets.reshape(2 * len(rows), -1)
        # Candidates between two swaps meet the same memory.
        ends = [max(row + 1 - start, 0) for row in rows]
        return self._after(points, targets, ends, start)

    def after_swaps_of_others(
        self, coming: Matrix, leaving: Matrix, ends: list[int]
    ) -> tuple[Matrix, Matrix]:
        """Leverages ``(n,)`` and residuals, given swaps that are not of candidates.

        Args:
            coming: features and targets ``(m, d + K)`` of what comes, at least one.
            leaving: of what each one replaces.
            ends: for each swap, the number of candidates that do not meet it, which
                are the first ones; ascending.
        """
        width = self.statistics.feature_dim
        stack: Any = np.stack if isinstance(leaving, np.ndarray) else torch.stack
        rows = stack([coming, leaving], 1).reshape(2 * len(coming), -1)
        points = self.statistics.represent(rows[:, :width])
        return self._after(points, rows[:, width:], ends, 0)[:2]

    def _after(
        self, points: Matrix, targets: Matrix, ends: list[int], start: int
    ) -> tuple[Matrix, Matrix, Matrix]:
        """As :meth:`after_swaps`, of representations of what comes and goes."""
        lowered = self.statistics.lower(points)
        residual = subtract_product(targets, lowered, self._mean)
        inner = lowered @ points.T
        cross = self._lowered[start:] @ points.T
        copy: Any = np.copy if isinstance(points, np.ndarray) else torch.clone
        leverages, residuals = copy(self.leverage[start:]), copy(self.residual[start:])
        ends = [*ends, len(cross)]
        for number, (begin, end) in enumerate(itertools.pairwise(ends), 1):
            if begin == end:
                continue
            met = 2 * number
            gain = update_gain(inner[:met, :met], (1, -1) * number)
            part = cross[begin:end, :met]
            weighted = part @ gain
            # Views: an in-place operation on a slice would write the slice twice.
            leverage, errors = leverages[begin:end], residuals[begin:end]
            leverage -= row_products(weighted, part)
            errors -= weighted @ residual[:met]
        return leverages, residuals, inner.diagonal()

    def with_point(
        self, representation: Matrix, target: Matrix
    ) -> tuple[Matrix, Matrix]:
        """Leverages ``(n,)`` and residuals ``(n, K)`` if a point were added.

        The point is a representation ``(1, D)``, as in :meth:`change`, and a target
        ``(1, K)``; nothing is changed.
        """
        lowered = self.statistics.lower(representation)
        cross = self._lowered @ representation.T
        own = lowered @ representation.T
        residual = target - lowered @ self._mean
        before: _Changes[Matrix] | None = self._changes
        if before is not None:
            weights = (lowered @ before.points.T) @ before.gain
            cross = cross - before.cross @ weights.T
            own = own - weights @ (before.lowered @ representation.T)
            residual = residual - weights @ before.residual
        weighted = cross / (1 + own)
        leverage = self.leverage - row_products(weighted, cross)
        return leverage, self.residual - weighted @ residual

    def copy_row(self, source: int, destination: int) -> None:
        """Overwrite one candidate with a copy of another."""
        matrices: list[Any] = [
            self.targets,
            self.representation,
            self._lowered,
            self.leverage,
            self.residual,
            *self._first,
        ]
        if self._changes is not None:
            matrices.append(self._changes.cross)
        for matrix in matrices:
            matrix[destination] = matrix[source]

    def in_sequence(self) -> tuple[Matrix, Matrix]:
        """Leverages ``(n,)`` and residuals ``(n, K)`` if all before are memorized.

        With ``V`` the inner products of the candidates and ``L L^T = I + V``, the
        sequential residuals are ``L_ii (L^-1 E)_i`` and the sequential leverages are
        ``L_ii^2 - 1``.
        """
        products = torch.as_tensor(self._lowered @ self.representation.T)
        diagonal = products.diagonal().clone()
        products.diagonal().add_(1)
        factor = torch.as_tensor(cholesky(native(products)))
        residual = solve_lower(native(factor), self.residual)
        # The same as L_ii^2 - 1, without its cancellation where leverages are small.
        leverage = (diagonal - factor.tril(-1).square().sum(1)).clamp(min=0)
        residual = alike(factor.diagonal()[:, None], residual) * residual
        return alike(leverage, residual), residual


@functools.cache
def largest_leverage(dtype: torch.dtype) -> float:
    """Above this, a point is too far from all others for an update.

    A point of leverage ``v`` multiplies the error of the update by ``v^2`` if it comes,
    by ``1 / (1 - v)^2`` if it goes.

    Args:
        dtype: that is computed in.
    """
    return float(torch.finfo(dtype).eps ** -0.25)


def rounding_shows(leverages: NDArray[np.float64], dtype: torch.dtype) -> bool:
    """Whether points come or go that are too far from all others for an update.

    Args:
        leverages: of points that come and that go, in turns, at most ``MOST_POINTS``
            of each, given the memory before the update.
        dtype: that is computed in.
    """
    fine = leverages < _leverage_limits(dtype)[: len(leverages)]  # NaN is not
    return bool(np.count_nonzero(fine) < len(leverages))


@functools.cache
def _leverage_limits(dtype: torch.dtype) -> NDArray[np.float64]:
    """Limits of points that come and that go, in turns."""
    limit = largest_leverage(dtype)
    return np.tile([limit, 1 - 1 / limit], MOST_POINTS)


def _join(*parts: Matrix) -> Matrix:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return torch.cat(parts)


@dataclass(slots=True)
class _Changes(Generic[Matrix]):
    """Points that came and went, relative to the memory before the first of them."""

    points: Matrix  # representations, (m, D)
    lowered: Matrix  # the same with the metric applied
    residual: Matrix  # of the points, (m, K)
    cross: Matrix  # inner products of the candidates with the points, (n, m)
    gain: Matrix  # G of CandidateBatch.change, (m, m)
    signs: tuple[int, ...]  # 1 for each point that came, -1 for each that went
