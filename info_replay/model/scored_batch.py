"""A batch held against what a memory knows: :class:`ScoredBatch`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from info_replay.model.candidates import CandidateBatch
from info_replay.model.criteria import Criterion
from info_replay.model.linear_algebra import known_within, plain, row_products
from info_replay.model.memory_posterior import MemoryPosterior
from info_replay.model.standardization import RunningStandardization, Standards
from info_replay.model.statistics import Rows
from info_replay.transfer import extremes, to_host
from info_replay.validation import check_labels, check_range

__all__ = ["Changes", "ScoredBatch"]

#: Rows that leave a memory, rows that come, and the slots of both.
Changes = tuple[Any, Any, NDArray[np.int64]]


class ScoredBatch:
    """Features and targets of a batch, on the posterior's device.

    Args:
        memory: what they are held against.
        features: shape ``(n, d0)``.
        targets: labels ``(n,)`` or ``(n, 1)``, or numbers ``(n,)`` or ``(n, K)``.

    Attributes:
        memory: as given.
        posterior: of the memory; before the first item, a new one.
        rows: features and targets as the posterior takes them, an array on the host.
        count: number of items.

    Raises:
        ValueError: if the shapes are not those of the memory.
    """

    def __init__(
        self, memory: MemoryPosterior, features: Tensor, targets: Tensor
    ) -> None:
        posterior = memory.posterior
        device = memory.slots.device if posterior is None else posterior.device
        self.memory = memory
        self.features = plain(features, device)
        self.targets = plain(targets, device)
        self._encoded: Rows = memory.encode(self.targets)
        shapes = features.shape[1], self._encoded.shape[1]
        if posterior is None or shapes != (posterior.feature_dim, posterior.target_dim):
            posterior = memory.for_shapes(*shapes)
        self.posterior = posterior
        self.rows = self.posterior.statistics.join(self.features, self._encoded)
        self.count = self.features.shape[0]
        self._is_checked = False
        # Of the targets of each item, once they are on the host, and the state after.
        self.standards: Standards | None = None
        self.standardization_state: NDArray[np.float64] | None = None

    def candidates(self, changes: Changes | None = None) -> CandidateBatch[Any]:
        """The items, held against the memory as it is, or as it would be.

        Args:
            changes: what would be different: old rows, new rows and their slots.

        Returns:
            Candidates: arrays where the posterior is on the host, else tensors.
        """
        statistics = self.posterior.statistics
        if changes is not None:
            old, new, slots = changes
            statistics = statistics.clone()
            statistics.replace(old, new, torch.from_numpy(slots).to(statistics.device))
        return CandidateBatch(statistics, self.rows)

    @property
    def num_outputs(self) -> int:
        """Number ``K`` of targets, without the ones of standardization."""
        scaled = self.memory.standardization is not None
        return self.posterior.target_dim - scaled

    # -- on the host ------------------------------------------------------------------

    def errors(self, residuals: Any) -> Any:
        """What :meth:`score` needs of residuals ``(n, K)``.

        Squared errors ``(n,)``, unless targets are standardized: then the residuals,
        because the standards of each item are known on the host.
        """
        if self.memory.standardization is not None:
            return residuals
        return row_products(residuals, residuals)

    def score(
        self,
        criterion: Criterion,
        leverage: NDArray[np.float64],
        errors: NDArray[np.float64],
        first: int = 0,
    ) -> NDArray[np.float64]:
        """Score items whose numbers :meth:`fetch` has brought to the host.

        Args:
            criterion: what to score with.
            leverage: ``v`` of the items, shape ``(n,)``.
            errors: of the items, as :meth:`errors` gives them.
            first: number of the first of these items in the batch.

        Returns:
            Scores, shape ``(n,)``.

        Raises:
            ValueError: if features or the criterion are too much for the arithmetic.
        """
        if errors.ndim == 2:
            assert self.standards is not None
            errors = self.standards.squared_errors(errors, first)
        score: Any = criterion if criterion.takes_arrays else criterion.on_host
        scores: NDArray[np.float64] = score(
            leverage, errors, noise=self.memory.noise, num_outputs=self.num_outputs
        )
        if scores.shape != leverage.shape:
            raise ValueError(
                f"{criterion!r} must give one score per item, shape "
                f"{leverage.shape}, got {scores.shape}"
            )
        # Most often one number tells: all are finite if the sum of squares is.
        if not math.isfinite(scores.dot(scores)):
            self.check_scores(leverage, errors)
            ours = criterion.takes_arrays  # then it is the features
            self.check_scores(scores, criterion=None if ours else criterion)
        return scores

    def score_left_out(
        self,
        criterion: Criterion,
        leverage: NDArray[np.float64],
        errors: NDArray[np.float64],
        least: NDArray[np.float64],
        item: int,
    ) -> NDArray[np.float64]:
        """Score stored points as if each were not in the memory (Sec. 2.4).

        A point of leverage ``v`` and residual ``r``, given a memory with it, has
        ``v / (1 - v)`` and ``r / (1 - v)`` given the rest of the memory.

        Args:
            criterion: what to score with.
            leverage: ``v`` of the points, shape ``(n,)``.
            errors: of the points, as :meth:`errors` gives them.
            least: bound of ``1 - v`` from below, shape ``(n,)``.
            item: of the batch, whose standards count.

        Returns:
            Scores, shape ``(n,)``.
        """
        rest = np.maximum(1 - leverage, least)
        if errors.ndim == 2:
            assert self.standards is not None
            errors = self.standards.of_item(item).squared_errors(errors)
        return self.score(criterion, (leverage / rest).clip(0), errors / rest**2)

    def fetch(self, *numbers: Any) -> list[NDArray[np.float64]]:
        """Bring numbers to the host; the first transfer of a batch checks it, too.

        Args:
            numbers: tensors or arrays.

        Raises:
            ValueError: if values of the batch are not finite, not labels or too large.
        """
        statistics = self.memory.standardization
        if statistics is not None and self.standards is None:
            return self._fetch_standards(statistics, *numbers)
        if self._is_checked or self._known_valid():
            self._is_checked = True
            if type(numbers[0]) is np.ndarray and numbers[0].dtype == np.float64:
                return [*numbers]
            parts = to_host(*numbers)
        else:
            asked = [*extremes(self.features), *extremes(self.targets)]
            parts = to_host(*asked, *numbers)
            self._check(*map(float, parts[:4]))
            del parts[:4]
        return [part.astype(np.float64, copy=False) for part in parts]

    def _fetch_standards(
        self, statistics: RunningStandardization, *numbers: Any
    ) -> list[NDArray[np.float64]]:
        """Bring numbers to the host, and the targets that the standards follow from."""
        asked = [*extremes(self.features), *extremes(self.targets), self.targets]
        parts = to_host(*asked, *numbers)
        self._check(*map(float, parts[:4]))
        targets = parts[4].reshape(self.count, -1).astype(np.float64)
        eps = torch.finfo(self.targets.dtype).eps
        self.standards, self.standardization_state = statistics.walk(targets, eps)
        return [part.astype(np.float64, copy=False) for part in parts[5:]]

    def check(self) -> None:
        """Raise if values of the batch are not finite, not labels or too large."""
        asked = [*extremes(self.features), *extremes(self.targets)]
        self._check(*map(float, to_host(*asked)))

    def check_scores(
        self, *scores: NDArray[np.float64], criterion: Criterion | None = None
    ) -> None:
        """Raise if features, or a criterion, were too much for the arithmetic."""
        for each in scores:
            wrong = np.flatnonzero(~np.isfinite(each))
            if wrong.size and criterion is not None:
                raise ValueError(
                    f"{criterion!r} must give finite scores, got {each[wrong[0]]} for "
                    f"item {wrong[0]}"
                )
            if wrong.size:
                largest = float(self.features.abs().max())
                raise ValueError(
                    f"entry {self.memory.feature_key!r} has values up to {largest:g}, "
                    f"too large to compute with in {self.memory.dtype} at "
                    f"jitter={self.memory.jitter:g}; expected features of the order "
                    "of 1"
                )

    def _known_valid(self) -> bool:
        """Whether the host knows at once that all values can be computed with."""
        memory, encoded = self.memory, self._encoded
        limit = memory.largest_feature
        if memory.num_classes is None:
            return known_within(self.rows, min(limit, memory.largest_target))
        # A label of a class is 1 in one place, any other label nowhere.
        return (
            isinstance(encoded, np.ndarray)
            and known_within(self.rows, limit)
            and np.count_nonzero(encoded) == len(encoded)
        )

    def _check(self, low: float, high: float, lowest: float, highest: float) -> None:
        """Raise if the extremes of features and targets tell of bad input."""
        self._is_checked = True
        memory = self.memory
        limit = memory.largest_feature
        if memory.num_classes is not None and not (
            lowest >= 0 and highest < memory.num_classes
        ):
            (labels,) = to_host(self.targets.flatten())
            check_labels(labels, memory.num_classes, memory.target_key)
        check_range(self.features, memory.feature_key, low, high, largest=limit)
        if memory.num_classes is None:
            key, limit = memory.target_key, memory.largest_target
            check_range(self.targets, key, lowest, highest, largest=limit)
