"""What InfoRS and InfoGS share: a posterior that is kept in step with the memory.

:class:`InformationWriter` reads features and targets from a batch, scores them, takes
refreshed features back after replay, and notices when somebody else wrote to the
storage.
"""

from __future__ import annotations

import abc
import itertools
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.criteria import MIC, Criterion
from info_replay.moments import RunningMoments
from info_replay.posterior import BayesianLinearPosterior
from info_replay.settings import check_finite, check_num_classes, check_positive
from info_replay.writers.base import Commit, Decision, SelectionWriter
from info_replay.writers.entries import (
    read_features,
    read_labels,
    read_regression_targets,
    refuse_infinite,
    refuse_labels,
)
from info_replay.writers.host import to_host
from info_replay.writers.knowledge import Knowledge
from info_replay.writers.offer import Offer, Plan
from info_replay.writers.sample import Sample
from info_replay.writers.slots import keep_last

__all__ = ["InformationWriter", "tolerance"]

# Items that are stored together while the memory fills: their mutual products are
# factorised, which must not grow with the batch.
_FILL_BLOCK = 256


class InformationWriter(SelectionWriter):
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
            check_num_classes(num_classes)
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
        device = self.slots.device
        features = features.detach().to(device)
        encoded = self._knowledge.encode(targets.detach().to(device))
        posterior = self._knowledge.posterior
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
        return Offer(features, encoded, posterior)

    def _fetch(
        self, offer: Offer, data: TensorDictBase, *scores: Tensor
    ) -> list[NDArray[np.float64]]:
        """Bring scores to the host, in the one transfer of a round.

        The first transfer of a batch carries its checksums, too, so that bad input is
        refused before anything is changed.
        """
        checksums = [] if offer.checked else [offer.checksums()]
        packed = to_host(torch.cat([*checksums, *(s.double() for s in scores)]))
        if not offer.checked:
            self._refuse(offer, data, packed)
            packed = packed[2:]
            offer.checked = True
        elif not np.isfinite(packed).all():
            self._refuse_large(float(offer.features.abs().max()))
        parts, start = [], 0
        for score in scores:
            parts.append(packed[start : start + len(score)])
            start += len(score)
        return parts

    def _refuse(self, offer: Offer, data: TensorDictBase, packed: NDArray[Any]) -> None:
        """Raise if what came back from the device tells of bad input."""
        (largest, target_total), scores = packed[:2], packed[2:]
        labels_fine = self.num_classes is None or target_total == len(offer)
        if (
            largest <= self._largest_feature
            and math.isfinite(target_total)
            and labels_fine
            and np.isfinite(scores).all()
        ):
            return
        if self.num_classes is not None:
            labels = to_host(read_labels(data, self.target_key))
            refuse_labels(labels, self.num_classes, self.target_key)
        refuse_infinite(offer.features, self.feature_key)
        refuse_infinite(offer.targets, self.target_key)
        self._refuse_large(largest)

    @property
    def _largest_feature(self) -> float:
        """Beyond this, the jitter would be lost in rounding beside a squared norm."""
        return math.sqrt(0.01 * self.jitter / torch.finfo(self.dtype).eps)

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
        filled = min(count, self.slots.capacity - len(self.slots))
        size = self._block_size() or count
        cuts = [
            *range(0, filled, _FILL_BLOCK),
            *range(filled, count, size),
            count,
        ]
        return [slice(a, b) for a, b in itertools.pairwise(cuts)]

    def _check(self, data: TensorDictBase) -> None:
        offer = self._read(data)
        self._refuse(offer, data, to_host(offer.checksums()))

    def _decide(self, data: TensorDictBase) -> Decision:
        _ = self.posterior
        offer = self._read(data)
        full = len(self.slots) == self.slots.capacity
        plan, commit = (self._select if full else self._fill)(offer, data)

        def commit_all() -> None:
            commit()
            self._knowledge.learn(self.slots, offer, plan)

        return plan.places, commit_all

    def _fill(self, offer: Offer, data: TensorDictBase) -> tuple[Plan, Commit]:
        """Store all items of a batch for which there is room."""
        plan = Plan(len(self.slots) + np.arange(len(offer)))
        scores = self._score_in_sequence(offer, data)

        def commit() -> None:
            self._add_to_moments(scores)
            self._counters["reservoir_count"] += len(offer)

        return plan, commit

    def _score_in_sequence(
        self, offer: Offer, data: TensorDictBase
    ) -> list[NDArray[np.float64]]:
        """What the moments are of, for items of which each is stored."""
        leverage, residual = offer.candidates().in_sequence()
        error = torch.linalg.vecdot(residual, residual)
        outputs = residual.shape[1]
        return self._fetch(
            offer,
            data,
            *(
                criterion(leverage, error, noise=self.noise, num_outputs=outputs)
                for _, criterion in self._moments()
            ),
        )

    def _add_to_moments(self, scores: list[NDArray[np.float64]]) -> None:
        for (moments, _), values in zip(self._moments(), scores, strict=True):
            moments.update(values)

    def _adopt(self, data: TensorDictBase) -> None:
        self._check(data)
        for start in range(0, len(data), _FILL_BLOCK):
            block = slice(start, min(start + _FILL_BLOCK, len(data)))
            offer = self._read(data[block])
            self._add_to_moments(self._score_in_sequence(offer, data[block]))
            offer.posterior.statistics.replace(None, (offer.rows, offer.targets), block)
            self._knowledge.keep(offer.posterior)
        self._knowledge.mark_in_step(self.slots)

    # -- for the user -----------------------------------------------------------------

    @property
    def posterior(self) -> BayesianLinearPosterior | None:
        """What the memory knows, in step with it; ``None`` before the first item."""
        self._adopt_brought()
        self._knowledge.catch_up(self.slots)
        return self._knowledge.posterior

    def score(self, data: TensorDictBase) -> Tensor:
        """The criterion of items against the memory as it is; changes nothing.

        Args:
            data: a batch with features and targets.

        Returns:
            Scores, shape ``(n,)``.
        """
        _ = self.posterior
        offer = self._read(data)
        batch = offer.candidates()
        scores = self.criterion(
            batch.leverage,
            batch.squared_error,
            noise=self.noise,
            num_outputs=offer.posterior.target_dim,
        )
        self._fetch(offer, data, scores)
        return scores

    def update_features(self, data: TensorDictBase) -> None:
        """Write features back to the slots that they were sampled from.

        A slot that holds another item by now is left alone; of a slot that was sampled
        several times the last row counts.

        Args:
            data: a sample with its ``"index"`` and new features.

        Raises:
            KeyError, TypeError, ValueError, IndexError: if the sample is not what it
                should be; nothing is changed.
        """
        if data.batch_dims and not len(data):
            return
        sample = Sample(data, self.feature_key, self.slots)
        packed = to_host(sample.pack(self._generations.stamps))
        places = keep_last(sample.live_slots(packed))
        features = sample.features
        if not packed[0] <= self._largest_feature:
            refuse_infinite(features, self.feature_key)
            self._refuse_large(packed[0])
        rows = np.flatnonzero(places >= 0)
        if not rows.size:
            return
        device = self.slots.device
        index = torch.from_numpy(places[rows]).to(device)
        if len(rows) < len(features):
            features = features.index_select(0, torch.from_numpy(rows).to(device))
        self._knowledge.write_back(self.slots, index, features)

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


def tolerance(threshold: ArrayLike, dtype: torch.dtype) -> NDArray[np.float64]:
    """How far rounding may push a score below a threshold that it ties with.

    A score that equals the threshold passes (the paper's ``>=``). Streams with repeated
    items have such ties, and they must not be decided by the order of summation.
    """
    scale: NDArray[np.float64] = 1 + np.abs(np.asarray(threshold))
    return math.sqrt(torch.finfo(dtype).eps) * scale
