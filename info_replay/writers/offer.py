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
        targets: as given.
        encoded: targets as numbers, shape ``(n, K)``.
        posterior: the model that they are held against.

    Attributes:
        rows: features and targets as the posterior takes them.
        checked: whether the values are known to be fine.
    """

    def __init__(
        self,
        features: Tensor,
        targets: Tensor,
        encoded: Tensor,
        posterior: BayesianLinearPosterior,
    ) -> None:
        self.features = features
        self.targets = targets
        self.posterior = posterior
        self.rows = posterior.join(features, encoded)
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
        return CandidateBatch(statistics, self.rows)

    def apply(self, plan: Plan, statistics: Statistics) -> None:
        """Bring statistics to what a plan writes, which must be something."""
        kept = np.flatnonzero(plan.places >= 0)
        pick = torch.from_numpy(kept).to(self.rows.device)
        statistics.replace(
            plan.old_rows(),
            self.rows.index_select(0, pick),
            torch.from_numpy(plan.places[kept]).to(self.rows.device),
        )

    def extremes(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Smallest and largest feature and target; NaN if there is one among them."""
        return (*torch.aminmax(self.features), *torch.aminmax(self.targets))


class Plan:
    """Which row of a batch gets which slot, while the batch is decided.

    Args:
        places: the slot of each row, -1 for none.
        written: how many rows have a slot.

    Attributes:
        old: rows of the items whose slots are taken over, as they were before the
            batch.
    """

    def __init__(self, places: NDArray[np.int64], written: int) -> None:
        self.places = places
        self.written = written
        self.old: list[Tensor] = []
        self._owner: dict[int, int] = {}

    @classmethod
    def empty(cls, count: int) -> Plan:
        """A plan in which no row has a slot yet."""
        return cls(np.full(count, -1), 0)

    def old_rows(self) -> Tensor | None:
        """All of ``old`` in one tensor."""
        return torch.cat(self.old) if self.old else None

    def owner(self, slot: int) -> int | None:
        """The row of this batch that took a slot over, if one did."""
        return self._owner.get(slot)

    def put(self, row: int, slot: int) -> None:
        """Give a row a slot that another item held."""
        previous = self.owner(slot)
        if previous is None:
            self.written += 1
        else:
            self.places[previous] = -1
        self._owner[slot] = row
        self.places[row] = slot
