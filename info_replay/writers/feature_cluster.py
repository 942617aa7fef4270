"""Clustering in the space of features: the memory holds one item of each cluster."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.decision import Decision
from info_replay.model.linear_algebra import plain
from info_replay.registry import register_policy
from info_replay.transfer import extremes, to_host
from info_replay.validation import check_range, read_features
from info_replay.writers.base import SelectionWriter

__all__ = ["FeatureClusterWriter"]

Array = NDArray[np.float64]

# Items that are decided together; the result is the same for any number.
_BLOCK = 512


@register_policy("fss-clust")
class FeatureClusterWriter(SelectionWriter):
    """Keeps items that are far from each other: FSS-Clust (Aljundi et al., 2019).

    An item is stored if the distance of its features from those of every stored item
    is above a radius, which is 0 at first. When there is one item too many, the radius
    becomes the smallest distance between two of them, then twice what it was, until
    leader clustering makes them fit: in the order of their arrival, an item stays if
    it is farther than the radius from all that stay already. So the memory may become
    smaller, and items may move to other slots.

    Features of stored items should be written back after replay, so that all are of
    the same network.

    Args:
        feature_key: entry that holds the features, shape ``(n, d)``.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> writer = FeatureClusterWriter()
        >>> buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(3), writer=writer)
        >>> places = torch.tensor([0.0, 1.0, 1.0, 5.0, 9.0, 10.0])
        >>> buffer.extend(TensorDict({"feature": places[:, None]}, batch_size=[6]))
        tensor([ 0, -1, -1,  1,  2, -1])
        >>> buffer[:]["feature"].flatten(), writer.radius
        (tensor([0., 5., 9.]), 1.0)
    """

    compacts = True
    largest_feature = 1e150  # sums of squares are finite

    def __init__(self, *, feature_key: NestedKey = "feature") -> None:
        super().__init__()
        self.feature_key: NestedKey = feature_key
        self._radius = self.number("radius")
        self._arrivals = self.per_slot("arrivals", np.int64, empty=-1)

    @property
    def radius(self) -> float:
        """Distance that an item must have from all others."""
        return float(self._radius.value)

    # -- deciding ---------------------------------------------------------------------

    def split(self, count: int) -> list[slice]:
        """Blocks of items whose distances are computed together."""
        return [slice(a, min(a + _BLOCK, count)) for a in range(0, count, _BLOCK)]

    def check(self, batch: TensorDictBase) -> None:
        """Refuse features that cannot be computed with."""
        features = self._read(batch)
        self._check_range(features, *to_host(*extremes(features)))

    def _read(self, batch: TensorDictBase) -> Tensor:
        features = read_features(batch, self.feature_key)
        return plain(features, self.slots.device)

    def _check_range(self, features: Tensor, low: Array, high: Array) -> None:
        limits, largest = (float(low), float(high)), self.largest_feature
        check_range(features, self.feature_key, *limits, largest=largest)

    def decide(self, batch: TensorDictBase) -> Decision:
        """Give slots to the items of a batch; see :meth:`SelectionWriter.decide`."""
        features = self._read(batch)
        size, count = len(self.slots), len(features)
        stored = self.slots.leaf(self.feature_key)[:size] if size else features[:0]
        low, high, *parts = to_host(
            *extremes(features),
            distances(features, stored).flatten(),
            distances(features, features).flatten(),
        )
        self._check_range(features, low, high)
        # Points are numbered: first the slots, then the batch.
        table = np.concatenate([part.reshape(count, -1) for part in parts], axis=1)
        new_arrivals = self.draw_count + np.arange(count)
        arrivals = np.append(self._arrivals.array[:size], new_arrivals)
        radius, present, square = self.radius, list(range(size)), None
        nearest = table[:, present].min(axis=1, initial=np.inf)
        start = entered = 0
        while (far := np.flatnonzero(nearest[start:] > radius)).size:
            row = start + int(far[0])
            start = row + 1
            entered += 1
            present.append(size + row)
            nearest = np.minimum(nearest, table[:, size + row])
            if len(present) > self.slots.capacity:
                if square is None:
                    square = self._square(stored, table)
                present.sort(key=arrivals.__getitem__)
                chosen, radius = thin_out(
                    square[np.ix_(present, present)], radius, self.slots.capacity
                )
                present = [present[place] for place in chosen]
                nearest = table[:, present].min(axis=1)
        points = np.sort(np.array(present, dtype=np.int64))
        rows = points[points >= size] - size

        def commit() -> None:
            self._arrivals.array[decision.slots[rows]] = new_arrivals[rows]
            self._radius.value = radius
            # Also items that left again within the batch, as in smaller batches.
            self.reservoir_count += entered

        decision = Decision.compacting(points[points < size], rows, count, commit)
        return decision

    def _square(self, stored: Tensor, table: Array) -> Array:
        """Distances of all points, stored and new, from each other."""
        size = len(stored)
        (between,) = to_host(distances(stored, stored).flatten())
        above = np.concatenate([between.reshape(size, size), table[:, :size].T], axis=1)
        return np.concatenate([above, table])

    def adopt(self, items: TensorDictBase) -> None:
        """Let items that the storage brought along have arrived in their order."""
        self.check(items)
        self._arrivals.array[: len(items)] = np.arange(len(items))

    def resync(self) -> None:
        """Start again with what is there, if somebody else added or removed items."""
        size = len(self.slots)
        if size != np.count_nonzero(self._arrivals.array >= 0):
            self.clear_state()
            if size:
                self.adopt(self.slots.read(slice(0, size)))


def distances(left: Tensor, right: Tensor) -> Tensor:
    """Distance of every left point from every right one, 0 where they are equal."""
    return torch.cdist(
        left.double(), right.double(), compute_mode="donot_use_mm_for_euclid_dist"
    )


def thin_out(table: Array, radius: float, most: int) -> tuple[list[int], float]:
    """Grow a radius until leader clustering of ``(n, n)`` distances leaves few points.

    Returns the points that stay and the new radius. A radius of 0 is replaced by the
    smallest distance, any other one is doubled.

    Example:
        >>> import numpy as np
        >>> points = np.array([0.0, 1.0, 2.0, 6.0])
        >>> thin_out(np.abs(np.subtract.outer(points, points)), 0.0, most=2)
        ([0, 3], 2.0)
    """
    if radius > 0:
        radius = 2 * radius
    else:
        # Points in one place, such as features of dead units, do not count.
        radius = table.min(where=table > 0, initial=np.inf)
        radius = radius if np.isfinite(radius) else 0.0
    while len(leaders := _leaders(table, radius)) > most:
        radius = 2 * radius
    return leaders, float(radius)


def _leaders(table: Array, radius: float) -> list[int]:
    """Points that are farther than a radius from all leaders before them."""
    free = np.ones(len(table), dtype=bool)
    leaders = []
    for point in range(len(table)):
        if free[point]:
            leaders.append(point)
            free &= table[point] > radius
    return leaders
