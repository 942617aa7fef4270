"""What InfoRS and InfoGS share: a posterior that is kept in step with the memory.

:class:`InformationWriter` reads features and targets from a batch, scores them, takes
refreshed features back after replay, and notices when somebody else wrote to the
storage.
"""

from __future__ import annotations

import abc
import contextlib
import itertools
import math
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.candidates import row_products
from info_replay.criteria import MIC, Criterion
from info_replay.linear_algebra import plain
from info_replay.moments import RunningMoments
from info_replay.posterior import BayesianLinearPosterior
from info_replay.settings import check_count, check_finite, check_positive
from info_replay.threads import ONE_BLAS_THREAD
from info_replay.writers.base import Commit, Decision
from info_replay.writers.entries import (
    read_features,
    read_labels,
    read_regression_targets,
    refuse_infinite,
    refuse_labels,
)
from info_replay.writers.features import FeatureWriter
from info_replay.writers.host import to_host
from info_replay.writers.knowledge import Knowledge
from info_replay.writers.offer import Offer, Plan

__all__ = ["InformationWriter"]

# Items that are stored together while the memory fills: their mutual products are
# factorised, which must not grow with the batch.
_FILL_BLOCK = 256
# Features of up to this width are computed with on one thread.
_NARROW = 1024
# What is not finite is computed with before it is seen and refused: one transfer tells.
_QUIET = np.errstate(all="ignore")


class InformationWriter(FeatureWriter):
    """A writer that scores items with a criterion given what the memory knows.

    Args:
        criterion: what to score with.
        gamma: ``gamma_i``, how many deviations above the running mean of the scores
            the threshold lies.
        noise: ``sigma`` of the Bayesian model.
        jitter: ``c`` of the Bayesian model.
        num_classes: targets are labels of that many classes; ``None`` for regression
            targets of shape ``(n,)`` or ``(n, K)``.
        feature_key: entry that holds the features, shape ``(n, d0)``.
        target_key: entry that holds the targets.
        decay: of the running moments; see :class:`RunningMoments`.
        dtype: floating type of the statistics.
    """

    def __init__(
        self,
        *,
        criterion: Criterion | None = None,
        gamma: float = 0.0,
        noise: float = 0.3,
        jitter: float = 0.1,
        num_classes: int | None = None,
        feature_key: NestedKey = "feature",
        target_key: NestedKey = "target",
        decay: float | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        criterion = MIC() if criterion is None else criterion
        if not isinstance(criterion, Criterion):
            raise TypeError(
                f"criterion must be a Criterion such as MIC(), got {criterion!r}"
            )
        check_finite("gamma", gamma)
        check_positive("noise", noise)
        check_positive("jitter", jitter)
        if num_classes is not None:
            check_count("num_classes", num_classes)
        if dtype not in (torch.float32, torch.float64):
            raise TypeError(f"dtype must be torch.float32 or float64, got {dtype}")
        self.criterion = criterion
        self.gamma = gamma
        self.noise = noise
        self.jitter = jitter
        self.num_classes = num_classes
        self.feature_key = feature_key
        self.target_key = target_key
        self.dtype = dtype
        self.moments = RunningMoments(decay)
        # Beyond this, the jitter would be lost in rounding beside a squared norm.
        self._largest_feature = math.sqrt(0.01 * jitter / torch.finfo(dtype).eps)
        # Beyond this, sums of squared errors would not be finite.
        self._largest_target = 1e-4 * math.sqrt(torch.finfo(dtype).max)
        self._knowledge = Knowledge(
            feature_key,
            target_key,
            num_classes=num_classes,
            noise=noise,
            jitter=jitter,
            dtype=dtype,
        )

    # -- reading ----------------------------------------------------------------------

    def _read(self, data: TensorDictBase) -> Offer:
        """Features and targets of a batch; checks all that needs no transfer."""
        features = read_features(data, self.feature_key)
        if self.num_classes is None:
            targets = read_regression_targets(data, self.target_key)
        else:
            targets = read_labels(data, self.target_key)
        posterior = self._knowledge.posterior
        device = self.slots.device if posterior is None else posterior.device
        features, targets = plain(features, device), plain(targets, device)
        encoded = self._knowledge.encode(targets)
        if posterior is None:
            posterior = self._knowledge.make_posterior(
                self.slots, features.shape[1], encoded.shape[1]
            )
        elif features.shape[1] != posterior.feature_dim:
            raise ValueError(
                f"entry {self.feature_key!r} must be {posterior.feature_dim} wide, got "
                f"{features.shape[1]}"
            )
        elif encoded.shape[1] != posterior.target_dim:
            raise ValueError(
                f"entry {self.target_key!r} must have {posterior.target_dim} outputs, "
                f"got {encoded.shape[1]}"
            )
        return Offer(features, targets, encoded, posterior)

    def _fetch(
        self, offer: Offer, data: TensorDictBase, *scores: Tensor | NDArray[Any]
    ) -> list[NDArray[np.float64]]:
        """Bring scores to the host, in the one transfer of a round.

        The first transfer of a batch carries its extremes, too, so that bad input is
        refused before anything is changed.
        """
        if offer.checked or self._surely_fine(offer):
            parts = to_host(*scores)
        else:
            extremes = offer.extremes()
            parts = to_host(*extremes, *scores)
            self._refuse(offer, data, parts[: len(extremes)])
            del parts[: len(extremes)]
        offer.checked = True
        if self.dtype == torch.float64:
            return parts
        return [part.astype(np.float64, copy=False) for part in parts]

    def _fetch_points(
        self, offer: Offer, data: TensorDictBase, leverage: Any, residual: Any
    ) -> list[NDArray[np.float64]]:
        """Bring leverages and squared errors of points to the host."""
        return self._fetch(offer, data, leverage, row_products(residual, residual))

    def _score_on_host(
        self, criterion: Criterion, offer: Offer, points: list[NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Score what :meth:`_fetch_points` brought."""
        outputs = offer.posterior.target_dim
        scores = criterion.on_host(*points, noise=self.noise, num_outputs=outputs)
        self._refuse_scores(offer, scores)
        return scores

    def _refuse_scores(self, offer: Offer, *scores: NDArray[np.float64]) -> None:
        """Raise if features were too much for the arithmetic."""
        for score in scores:
            # Most often one number tells: all are finite if the sum of squares is.
            if not math.isfinite(score.dot(score)) and not np.isfinite(score).all():
                self._refuse_large(float(offer.features.abs().max()))

    def _surely_fine(self, offer: Offer) -> bool:
        """Whether the host knows at once that a batch is no bad input."""
        if self.num_classes is None:
            return offer.surely_within(min(self._largest_feature, self._largest_target))
        return offer.surely_within(self._largest_feature) and offer.surely_labels()

    def _refuse(
        self, offer: Offer, data: TensorDictBase, extremes: list[NDArray[Any]]
    ) -> None:
        """Raise if the extremes of a batch tell of bad input."""
        low, high, low_target, high_target = map(float, extremes)
        if self.num_classes is None:
            largest = max(-low_target, high_target)
            targets_fine = largest <= self._largest_target
        else:
            targets_fine = low_target >= 0 and high_target < self.num_classes
        if targets_fine and self._in_range(low, high):
            return
        if self.num_classes is not None:
            (labels,) = to_host(read_labels(data, self.target_key))
            refuse_labels(labels, self.num_classes, self.target_key)
        refuse_infinite(offer.features, self.feature_key)
        if self.num_classes is None:
            refuse_infinite(offer.targets, self.target_key)
            if not targets_fine:
                raise ValueError(
                    f"entry {self.target_key!r} has values up to "
                    f"{max(-low_target, high_target):g}, too large to compute with in "
                    f"{self.dtype}; expected targets of the order of 1"
                )
        self._refuse_large(max(-low, high))

    def _refuse_large(self, largest: float) -> None:
        raise ValueError(
            f"entry {self.feature_key!r} has values up to {largest:g}, too large to "
            f"compute with in {self.dtype} at jitter={self.jitter:g}; expected "
            "features of the order of 1"
        )

    # -- deciding ---------------------------------------------------------------------

    @abc.abstractmethod
    def _select(self, offer: Offer, data: TensorDictBase) -> tuple[Plan, Commit]:
        """Choose among items that meet a full memory."""

    def _block_size(self) -> int | None:
        """Most items that :meth:`_select` should get at once."""
        return None

    def _moments(self) -> list[tuple[RunningMoments, Criterion]]:
        """The moments that the policy keeps and what they are of."""
        return [(self.moments, self.criterion)]

    def _blocks(self, count: int) -> list[slice]:
        slots = self.slots
        filled = min(count, slots.capacity - len(slots))
        size = self._block_size() or count
        if not filled and count <= size:
            return [slice(0, count)]
        cuts = [
            *range(0, filled, _FILL_BLOCK),
            *range(filled, count, size),
            count,
        ]
        return [slice(a, b) for a, b in itertools.pairwise(cuts)]

    def _check(self, data: TensorDictBase) -> None:
        offer = self._read(data)
        self._refuse(offer, data, to_host(*offer.extremes()))

    def _prepare(self, data: TensorDictBase) -> None:
        if self._knowledge.posterior is None:
            self._knowledge.keep(self._read(data[:1]).posterior)

    @_QUIET
    def _decide(self, data: TensorDictBase) -> Decision:
        slots = self.slots
        size = len(slots)
        with self._threads():
            self._knowledge.catch_up(slots, size)
            offer = self._read(data)
            full = size == slots.capacity
            plan, commit = (self._select if full else self._fill)(offer, data)

        def commit_all() -> None:
            commit()
            self._knowledge.learn(slots, offer, plan)

        # A copy: the plan is asked again when the statistics follow.
        return plan.places.copy(), commit_all

    def _threads(self) -> AbstractContextManager[None]:
        """Around linear algebra; features known to be wide are worth all threads."""
        posterior = self._knowledge.posterior
        narrow = posterior is None or posterior.feature_dim <= _NARROW
        return ONE_BLAS_THREAD if narrow else contextlib.nullcontext()

    def _fill(self, offer: Offer, data: TensorDictBase) -> tuple[Plan, Commit]:
        """Store all items of a batch for which there is room."""
        plan = Plan(len(self.slots) + np.arange(len(offer)), len(offer))
        scores = self._score_in_sequence(offer, data)

        def commit() -> None:
            self._add_to_moments(scores)
            self._counters["reservoir_count"] += len(offer)

        return plan, commit

    def _score_in_sequence(
        self, offer: Offer, data: TensorDictBase
    ) -> list[NDArray[np.float64]]:
        """What the moments are of, for items of which each is stored."""
        points = self._fetch_points(offer, data, *offer.candidates().in_sequence())
        return [
            self._score_on_host(criterion, offer, points)
            for _, criterion in self._moments()
        ]

    def _add_to_moments(self, scores: list[NDArray[np.float64]]) -> None:
        for (moments, _), values in zip(self._moments(), scores, strict=True):
            moments.update(values)

    def _adopt(self, data: TensorDictBase) -> None:
        self._check(data)
        with self._threads():
            for start in range(0, len(data), _FILL_BLOCK):
                block = slice(start, min(start + _FILL_BLOCK, len(data)))
                offer = self._read(data[block])
                self._add_to_moments(self._score_in_sequence(offer, data[block]))
                offer.posterior.statistics.replace(None, offer.rows, block)
                self._knowledge.keep(offer.posterior)
        self._knowledge.mark_in_step(self.slots)

    # -- for the user -----------------------------------------------------------------

    @property
    def posterior(self) -> BayesianLinearPosterior | None:
        """What the memory knows, in step with it; ``None`` before the first item."""
        self._adopt_brought()
        with self._threads():
            self._knowledge.catch_up(self.slots, len(self.slots))
        return self._knowledge.posterior

    @_QUIET
    def score(self, data: TensorDictBase) -> Tensor:
        """The criterion of items against the memory as it is; changes nothing.

        Args:
            data: a batch with features and targets.

        Returns:
            Scores, shape ``(n,)``.
        """
        _ = self.posterior
        offer = self._read(data)
        with self._threads():
            batch = offer.candidates()
        scores = self.criterion(
            torch.as_tensor(batch.leverage),
            torch.as_tensor(batch.squared_error),
            noise=self.noise,
            num_outputs=offer.posterior.target_dim,
        )
        self._fetch(offer, data, scores)
        return scores

    def _write_back(
        self, places: NDArray[np.int64], features: Tensor, size: int
    ) -> None:
        self._knowledge.write_back(self.slots, places, features, size)

    # -- emptying, saving and sharing -------------------------------------------------

    def _forget_statistics(self) -> None:
        self.moments.clear()
        self._knowledge.clear()

    def _policy_state(self) -> dict[str, Any]:
        return {
            "moments": self.moments.state_dict(),
            "knowledge": self._knowledge.state_dict(self.slots),
        }

    def _load_policy_state(self, state: dict[str, Any]) -> None:
        self.moments.load_state_dict(state["moments"])
        self._knowledge.load_state_dict(self.slots, state["knowledge"])

    def _policy_settings(self) -> dict[str, Any]:
        posterior = self._knowledge.posterior
        return {
            "num_classes": -1 if self.num_classes is None else self.num_classes,
            "feature_dim": None if posterior is None else posterior.feature_dim,
            "target_dim": None if posterior is None else posterior.target_dim,
        }

    def share_memory_(self) -> InformationWriter:
        """Move moments and posterior to shared memory, too."""
        super().share_memory_()
        self.moments.share_memory_()
        self._knowledge.share_memory_()
        return self
