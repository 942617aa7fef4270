"""Clustering in the space of features: the memory holds one item of each cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.host_array import HostArray
from info_replay.registry import register_policy
from info_replay.writers.entries import read_features, refuse_infinite
from info_replay.writers.features import FeatureWriter
from info_replay.writers.host import extremes, to_host
from info_replay.writers.regrouping import Places, Regrouping, RegroupingWriter
from info_replay.writers.slot_array import SlotArray

__all__ = ["FeatureClusterWriter"]

Array = NDArray[np.float64]

# Items that are decided together; the result is the same for any number.
_BLOCK = 512


@register_policy("fss-clust")
class FeatureClusterWriter(RegroupingWriter, FeatureWriter):
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

    def __init__(self, *, feature_key: NestedKey = "feature") -> None:
        super().__init__()
        self.feature_key = feature_key
        self._largest_feature = 1e150  # its square is finite, also summed up
        self._radius = HostArray(np.zeros(1))
        self._arrivals = SlotArray(np.int64)  # the number of each slot's item

    @property
    def radius(self) -> float:
        """Distance that an item must have from all others."""
        return float(self._radius.array[0])

    # -- deciding ---------------------------------------------------------------------

    def _blocks(self, count: int) -> list[slice]:
        return [slice(a, min(a + _BLOCK, count)) for a in range(0, count, _BLOCK)]

    def _check(self, data: TensorDictBase) -> None:
        features = self._read(data)
        self._refuse(features, *to_host(*extremes(features)))

    def _read(self, data: TensorDictBase) -> Tensor:
        features = read_features(data, self.feature_key)
        return features.detach().to(self.slots.device)

    def _refuse(self, features: Tensor, low: NDArray[Any], high: NDArray[Any]) -> None:
        if not self._in_range(float(low), float(high)):
            refuse_infinite(features, self.feature_key)
            self._refuse_large(float(max(-low, high)))

    def _decide(self, data: TensorDictBase) -> Regrouping:
        features = self._read(data)
        size, count = len(self.slots), len(features)
        stored = self.slots.leaf(self.feature_key)[:size] if size else features[:0]
        low, high, *parts = to_host(
            *extremes(features),
            distances(features, stored).flatten(),
            distances(features, features).flatten(),
        )
        self._refuse(features, low, high)
        # Points are numbered: first the slots, then the batch.
        table = np.concatenate([part.reshape(count, -1) for part in parts], axis=1)
        first = self._counters["draw_count"]
        arrivals = np.append(
            self._arrivals.of(self.slots)[:size], first + np.arange(count)
        )
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

        def commit(sources: Places) -> None:
            points = np.where(sources >= 0, sources, size - 1 - sources)
            self._arrivals.of(self.slots)[: len(sources)] = arrivals[points]
            self._radius.array[0] = radius
            # Items that came and went again within the batch count as in smaller ones.
            self._counters["reservoir_count"] += entered - int((sources < 0).sum())

        return Regrouping(points[points < size], points[points >= size] - size, commit)

    def _square(self, stored: Tensor, table: Array) -> Array:
        """Distances of all points, stored and new, from each other."""
        size = len(stored)
        (between,) = to_host(distances(stored, stored).flatten())
        above = np.concatenate([between.reshape(size, size), table[:, :size].T], axis=1)
        return np.concatenate([above, table])

    def _adopt(self, data: TensorDictBase) -> None:
        self._check(data)
        self._arrivals.of(self.slots)[: len(data)] = np.arange(len(data))

    # -- emptying, saving and sharing -------------------------------------------------

    def _forget_statistics(self) -> None:
        self._radius.array[:] = 0

    def _policy_state(self) -> dict[str, Any]:
        return {
            "radius": self._radius.tensor(),
            "arrivals": self._arrivals.tensor(self.slots),
        }

    def _load_policy_state(self, state: dict[str, Any]) -> None:
        self._radius.assign(state["radius"])
        self._arrivals.assign(self.slots, state["arrivals"])

    def share_memory_(self) -> FeatureClusterWriter:
        """Move radius and order to shared memory, too."""
        super().share_memory_()
        self._radius.share_memory_()
        self._arrivals.share_memory_()
        return self


def distances(left: Tensor, right: Tensor) -> Tensor:
    """Distance of every left point from every right one, 0 where they are equal."""
    return torch.cdist(
        left.double(), right.double(), compute_mode="donot_use_mm_for_euclid_dist"
    )


def thin_out(table: Array, radius: float, most: int) -> tuple[list[int], float]:
    """Grow a radius until leader clustering leaves few enough points.

    Args:
        table: distances of all points from each other, in order of arrival.
        radius: that was too small; 0 if there has been none.
        most: number of points that may stay.

    Returns:
        The points that stay, and the radius with which they do.

    Example:
        >>> import numpy as np
        >>> points = np.array([0.0, 1.0, 2.0, 6.0])
        >>> thin_out(np.abs(np.subtract.outer(points, points)), 0.0, most=2)
        ([0, 3], 2.0)
    """
    if radius > 0:
        radius = 2 * radius
    else:
        # Points in one place, as features of dead units are, do not count.
        radius = table.min(where=table > 0, initial=np.inf)
        radius = radius if np.isfinite(radius) else 0.0
    while len(leaders := _leaders(table, radius)) > most:
        radius = 2 * radius
    return leaders, float(radius)


def _leaders(table: Array, radius: float) -> list[int]:
    """Points, one after the other, that are farther than a radius from all before."""
    free = np.ones(len(table), dtype=bool)
    leaders = []
    for point in range(len(table)):
        if free[point]:
            leaders.append(point)
            free &= table[point] > radius
    return leaders
