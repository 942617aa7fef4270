"""Groups of items by where their features are: :class:`FeatureClusters`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from info_replay.late_array import LateArray
from info_replay.model.linear_algebra import row_products
from info_replay.shared_state import SharedNumber
from info_replay.transfer import to_host
from info_replay.validation import told

__all__ = ["Clustering", "FeatureClusters", "regroup"]

Places = NDArray[np.int64]

# Clusters are found anew after so many items, or after as many as there are slots if
# that is more.
_PERIOD = 1024
# Steps of k-means; most centers are final after fewer.
_STEPS = 10


class FeatureClusters:
    """Tells items apart by the nearest of a few centers (k-means).

    From time to time the centers are found anew among the items in memory: k-means from
    a start of distant items (k-means++, Arthur and Vassilvitskii, 2007). So clusters
    follow features that are learned, and one begins where items of a new kind are.

    Args:
        count: number of clusters.

    Attributes:
        count: as given.

    Example:
        >>> clusters = FeatureClusters(2)
        >>> stored = np.array([[0.0, 0.0], [8.0, 8.0], [0.0, 1.0], [8.0, 9.0]])
        >>> found = clusters.find(4, stored, np.array([0.1, 0.7]))
        >>> found.held
        array([0, 1, 0, 1])
        >>> found.labels(np.array([[7.0, 7.0]]))
        array([1])
        >>> clusters.now = found
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._centers = LateArray(np.float64)
        # Number of the item with which they were found last, -1 for never.
        self._item = SharedNumber(empty=-1, low=-1)

    @staticmethod
    def period(capacity: int) -> int:
        """Clusters are found anew with the items whose number is a multiple of this."""
        return max(_PERIOD, capacity)

    def are_due(self, item: int, capacity: int) -> bool:
        """Whether they are to be found anew when an item comes."""
        period = self.period(capacity)
        return not self.found or self._item.value // period < item // period

    def find(self, item: int, rows: Any, draws: NDArray[np.float64]) -> Clustering:
        """Find clusters; nothing is changed.

        Args:
            item: number of the one that comes.
            rows: features of what is in each slot, shape ``(M, d)``.
            draws: random numbers in [0, 1), shape ``(K,)``.

        Returns:
            The clusters, to become :attr:`now` once the item is decided about.
        """
        stored = torch.as_tensor(rows).double()
        places = _distant(stored, draws)
        for _ in range(_STEPS):
            places = _means(stored, _nearest(stored, places), places)
        centers, held = to_host(places, _nearest(stored, places))
        return Clustering(centers, item, held.astype(np.int64, copy=False))

    @property
    def found(self) -> bool:
        """Whether there are clusters."""
        return bool(self._item.value >= 0)

    @property
    def now(self) -> Clustering:
        """The clusters that were found last.

        Raises:
            RuntimeError: if none were found, or by another process without sharing.
        """
        centers = self._centers.array
        if centers is None or not self.found:
            raise RuntimeError("no clusters were found in this process or shared")
        return Clustering(centers.copy(), self._item.value)

    @now.setter
    def now(self, value: Clustering) -> None:
        self._centers.put(value.centers)
        self._item.value = value.item

    # -- state ------------------------------------------------------------------------

    def prepare(self, width: int) -> None:
        """Make room for features of so many numbers, if there is none."""
        self._centers.prepare((self.count, width))

    def clear(self) -> None:
        """Forget the clusters."""
        self._centers.clear()
        self._item.clear()

    def state_dict(self) -> dict[str, Any]:
        """The state as plain values."""
        return {"centers": self._centers.state_dict(), "item": self._item.value}

    def check_state(self, state_dict: dict[str, Any]) -> None:
        """Raise ``ValueError`` if a :meth:`state_dict` does not fit."""
        if not isinstance(state_dict, dict) or state_dict.keys() != {"centers", "item"}:
            raise ValueError(f"expected 'centers' and 'item', got {told(state_dict)}")
        centers, item = state_dict["centers"], state_dict["item"]
        self._centers.check_state(centers)
        if centers is not None and (centers.ndim != 2 or len(centers) != self.count):
            raise ValueError(f"expected {self.count} centers, got {told(centers)}")
        most = -1 if centers is None else 2**62
        if type(item) is not int or not -1 <= item <= most:
            raise ValueError(f"expected a number from -1 to {most}, got {told(item)}")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`."""
        self._centers.load_state_dict(state_dict["centers"])
        self._item.value = state_dict["item"]

    def share_memory_(self) -> None:
        """Move the state, now or when there is any, to memory of all processes."""
        self._centers.share_memory_()
        self._item.share_memory_()


class Clustering(NamedTuple):
    """Centers, and what follows from them.

    Attributes:
        centers: shape ``(K, d)``.
        item: number of the item with which they were found.
        held: cluster of what was in each slot then; not remembered.
    """

    centers: NDArray[np.float64]
    item: int
    held: Places = np.zeros(0, dtype=np.int64)

    def labels(self, rows: Any) -> Places:
        """The cluster of each of some features ``(n, d)``."""
        features = torch.as_tensor(rows).double()
        centers = torch.from_numpy(self.centers).to(features.device)
        (labels,) = to_host(_nearest(features, centers))
        return labels.astype(np.int64, copy=False)


def regroup(numbers: Places, before: Places, after: Places) -> Places:
    """Items of each group when stored ones go to other groups.

    What is stored stands for all items that came with its group, or for all items if no
    item of its groups was counted. The sum stays.

    Args:
        numbers: items of each group so far.
        before: group of what is in each slot until now.
        after: group of what is in each slot from now on.
    """
    sizes = np.bincount(before, minlength=len(numbers))
    shares = (numbers / np.maximum(sizes, 1))[before]
    if not shares.any():
        shares[:] = 1
    sums = np.bincount(after, shares, len(numbers)).cumsum()
    # Rounded together, so that nothing is lost: also not groups of which nothing is
    # stored. Halves are rounded down, whatever the rounding of the sums.
    total = int(numbers.sum())
    sums *= total / sums[-1]
    return np.diff(np.floor(sums + 0.5 - 1e-12 * total), prepend=0).astype(np.int64)


def _distant(rows: Tensor, draws: NDArray[np.float64]) -> Tensor:
    """As many rows as there are draws, each far from those before it, by chance.

    A row is drawn with a probability that goes with its squared distance from the
    nearest of those before it.
    """
    found: list[Tensor] = []
    squares = torch.ones(len(rows), dtype=rows.dtype, device=rows.device)
    for draw in draws.tolist():
        sums = squares.cumsum(0)
        place = torch.searchsorted(sums, draw * sums[-1:], right=True)
        found.append(rows.index_select(0, place.clamp(max=len(rows) - 1)))
        apart = rows - found[-1]
        distances = row_products(apart, apart)
        squares = distances if len(found) == 1 else squares.minimum(distances)
    return torch.cat(found)


def _nearest(rows: Tensor, centers: Tensor) -> Tensor:
    """The nearest center of each row, shape ``(n,)``, the first of equally near ones.

    Rounding, which is another in larger batches, must not decide between these. Seen
    from the mean of the centers it is as small as can be.
    """
    origin = centers.mean(0)
    rows, centers = rows - origin, centers - origin
    sizes, norms = row_products(rows, rows), row_products(centers, centers)
    distances = sizes[:, None] - 2 * rows @ centers.T + norms
    slack = torch.finfo(rows.dtype).eps ** 0.5 * (sizes + norms.max())
    near = distances <= (distances.amin(1) + slack)[:, None]
    return near.int().argmax(1)


def _means(rows: Tensor, labels: Tensor, centers: Tensor) -> Tensor:
    """The mean of the rows of each cluster ``(K, d)``; one of none stays."""
    numbers = torch.arange(len(centers), device=rows.device)
    members = (labels[:, None] == numbers).to(rows.dtype)
    counts = members.sum(0)[:, None]
    return torch.where(counts > 0, members.T @ rows / counts.clamp(min=1), centers)
