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
from info_replay.model.linear_algebra import known_within, plain
from info_replay.model.memory_posterior import MemoryPosterior
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

    # -- on the host ------------------------------------------------------------------

    def score(
        self, criterion: Criterion, leverage: Any, squared_error: Any
    ) -> NDArray[np.float64]:
        """Score items, in the one transfer of a round.

        Args:
            criterion: what to score with.
            leverage: ``v`` of the items, shape ``(n,)``.
            squared_error: ``R`` of the items, shape ``(n,)``.

        Returns:
            Scores, shape ``(n,)``, on the host.

        Raises:
            ValueError: if values of the batch are not finite, not labels or too large.
        """
        points = self.fetch(leverage, squared_error)
        score: Any = criterion if criterion.takes_arrays else criterion.on_host
        scores: NDArray[np.float64] = score(
            *points, noise=self.memory.noise, num_outputs=self.posterior.target_dim
        )
        if scores.shape != points[0].shape:
            raise ValueError(
                f"{criterion!r} must give one score per item, shape "
                f"{points[0].shape}, got {scores.shape}"
            )
        # Most often one number tells: all are finite if the sum of squares is.
        if not math.isfinite(scores.dot(scores)):
            self.check_scores(*points)
            ours = criterion.takes_arrays  # then it is the features
            self.check_scores(scores, criterion=None if ours else criterion)
        return scores

    def fetch(self, *numbers: Any) -> list[NDArray[np.float64]]:
        """Bring numbers to the host; the first transfer of a batch checks it, too.

        Args:
            numbers: tensors of at most one dimension, or arrays.

        Raises:
            ValueError: if values of the batch are not finite, not labels or too large.
        """
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
