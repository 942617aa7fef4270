"""One batch on its way into the memory: what it brings and where it goes.

:class:`Offer` holds the numbers that a batch is judged by, :class:`Plan` the slots that
its items are given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from info_replay.candidates import CandidateBatch
from info_replay.posterior import BayesianLinearPosterior
from info_replay.statistics import Rows, Statistics
from info_replay.writers.host import extremes, surely_within

__all__ = ["Changes", "Offer", "Plan"]

#: Rows that leave a memory, rows that come, and their slots.
Changes = tuple[Rows | None, Rows, Tensor]


class Offer:
    """Features and targets of a batch, on the posterior's device.

    Args:
        features: as given, shape ``(n, d0)``.
        targets: as given.
        encoded: targets as numbers, shape ``(n, K)``; of labels on the host an array.
        posterior: the model that they are held against.

    Attributes:
        rows: features and targets as the posterior takes them, an array on the host.
        checked: whether the values are known to be fine.
    """

    def __init__(
        self,
        features: Tensor,
        targets: Tensor,
        encoded: Rows,
        posterior: BayesianLinearPosterior,
    ) -> None:
        self.features = features
        self.targets = targets
        self.encoded = encoded
        self.posterior = posterior
        self.rows = posterior.join_native(features, encoded)
        self.checked = False
        self._count = features.shape[0]

    def __len__(self) -> int:
        """Number of items."""
        return self._count

    def candidates(self, plan: Plan | None = None) -> CandidateBatch[Any]:
        """The items, held against the memory as it is, or as a plan will leave it.

        Of arrays where the posterior is on the host, else of tensors.
        """
        statistics = self.posterior.statistics
        if plan is not None:
            statistics = statistics.clone()
            self.apply(plan, statistics)
        return CandidateBatch(statistics, self.rows)

    def apply(self, plan: Plan, statistics: Statistics) -> None:
        """Bring statistics to what a plan writes, which must be something."""
        statistics.replace(*self.changes(plan))

    def changes(self, plan: Plan) -> Changes:
        """What a plan changes."""
        kept = np.flatnonzero(plan.places >= 0)
        device = self.posterior.device
        pick = torch.from_numpy(kept).to(device)
        rows = torch.as_tensor(self.rows).index_select(0, pick)
        return plan.old_rows(), rows, torch.from_numpy(plan.places[kept]).to(device)

    def surely_within(self, largest: float) -> bool:
        """Whether the host knows at once that no number is larger, or not finite."""
        return surely_within(self.rows, largest)

    def surely_labels(self) -> bool:
        """Whether the host knows at once that every target is the label of a class."""
        encoded = self.encoded
        # A label is at most one of the classes; bytes are counted fastest.
        return (
            isinstance(encoded, np.ndarray)
            and encoded.tobytes("A").count(1) == encoded.shape[0]
        )

    def extremes(self) -> list[Tensor | NDArray[Any]]:
        """Smallest and largest feature and target; NaN if there is one among them."""
        return [*extremes(self.features), *extremes(self.targets)]


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
        self.old: list[Any] = []  # matrices of one kind
        self._owner: dict[int, int] = {}

    @classmethod
    def empty(cls, count: int) -> Plan:
        """A plan in which no row has a slot yet."""
        places = np.empty(count, np.int64)
        places.fill(-1)
        return cls(places, 0)

    def old_rows(self) -> Tensor | None:
        """All of ``old`` in one tensor."""
        return torch.cat([*map(torch.as_tensor, self.old)]) if self.old else None

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
