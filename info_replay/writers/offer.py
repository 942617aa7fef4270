"""One batch on its way into the memory: what it brings and where it goes.

:class:`Offer` holds the numbers that a batch is judged by, :class:`Plan` the slots that
its items are given.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from info_replay.candidates import CandidateBatch
from info_replay.posterior import BayesianLinearPosterior
from info_replay.statistics import Statistics

__all__ = ["Offer", "Plan"]


class Offer:
    """Features and targets of a batch, on the posterior's device.

    Args:
        features: as given, shape ``(n, d0)``.
        targets: encoded as numbers, shape ``(n, K)``.
        posterior: the model that they are held against.

    Attributes:
        rows: normalised features, shape ``(n, d)``.
        checked: whether the values are known to be fine.
    """

    def __init__(
        self, features: Tensor, targets: Tensor, posterior: BayesianLinearPosterior
    ) -> None:
        self.features = features
        self.targets = targets
        self.posterior = posterior
        self.rows = posterior.normalise(features)
        self.checked = False

    def __len__(self) -> int:
        """Number of items."""
        return len(self.features)

    def candidates(self, plan: Plan | None = None) -> CandidateBatch:
        """The items, held against the memory as it is, or as a plan will leave it."""
        statistics = self.posterior.statistics
        if plan is not None:
            statistics = statistics.clone()
            self.apply(plan, statistics)
        return CandidateBatch(statistics, self.rows, self.targets)

    def apply(self, plan: Plan, statistics: Statistics) -> int:
        """Bring statistics to what a plan writes.

        Returns:
            The number of rows that it writes.
        """
        kept = np.flatnonzero(plan.places >= 0)
        if kept.size:
            pick = torch.from_numpy(kept).to(self.rows.device)
            statistics.replace(
                plan.old_rows(),
                (self.rows.index_select(0, pick), self.targets.index_select(0, pick)),
                torch.from_numpy(plan.places[kept]).to(self.rows.device),
            )
        return len(kept)

    def checksums(self) -> Tensor:
        """The largest absolute value of a feature, and the sum of the targets.

        NaN, infinity and values too large to compute with show in the first, NaN,
        infinity and labels outside the classes in the second.
        """
        largest = torch.linalg.vector_norm(self.features, torch.inf)
        return torch.stack([largest.double(), self.targets.sum().double()])


class Plan:
    """Which row of a batch gets which slot, while the batch is decided.

    Args:
        places: the slot of each row, -1 for none.

    Attributes:
        old: normalised features and targets of the items whose slots are taken over,
            as they were before the batch.
    """

    def __init__(self, places: NDArray[np.int64]) -> None:
        self.places = places
        self.old: list[tuple[Tensor, Tensor]] = []
        self._owner: dict[int, int] = {}

    @classmethod
    def empty(cls, count: int) -> Plan:
        """A plan in which no row has a slot yet."""
        return cls(np.full(count, -1, dtype=np.int64))

    def old_rows(self) -> tuple[Tensor, Tensor] | None:
        """All of ``old`` in one pair of tensors."""
        if not self.old:
            return None
        rows, targets = zip(*self.old, strict=True)
        return torch.cat(rows), torch.cat(targets)

    def owner(self, slot: int) -> int | None:
        """The row of this batch that took a slot over, if one did."""
        return self._owner.get(slot)

    def put(self, row: int, slot: int) -> None:
        """Give a row a slot that another item held."""
        previous = self.owner(slot)
        if previous is not None:
            self.places[previous] = -1
        self._owner[slot] = row
        self.places[row] = slot
