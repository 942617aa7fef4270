"""Class-balanced reservoir sampling: every class has an equal share of the memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey

from info_replay.decision import Decision
from info_replay.registry import register_policy
from info_replay.transfer import to_host
from info_replay.validation import check_count, check_labels, read_labels
from info_replay.writers.base import SelectionWriter

__all__ = ["ClassBalancedReservoirWriter"]


@register_policy("cbrs")
class ClassBalancedReservoirWriter(SelectionWriter):
    """Keeps a uniform sample of each class, of equal size (Appendix, Alg. "CBRS").

    While there is room every item is stored. Then an item of a class that has never
    been the largest takes a random slot of the largest class, so a class that appears
    late grows at once; an item of any other class enters a reservoir sample of its own
    class.

    The pseudocode of the paper uses one counter for two things. Here, as in the article
    that it cites (Chrysakis and Moens, 2020), there are two, the items of a class in
    the memory and in the stream, and a class that has been the largest stays *full*:
    without that rule, classes of almost equal size would take slots from each other
    with every item, and the memory would hold recent items only.

    Args:
        num_classes: number of classes.
        target_key: entry that holds the labels, whole numbers of shape ``(n,)``.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> buffer = TensorDictReplayBuffer(
        ...     storage=LazyTensorStorage(12), writer=ClassBalancedReservoirWriter(3)
        ... )
        >>> labels = torch.tensor([0] * 900 + [1] * 90 + [2] * 10)
        >>> _ = buffer.extend(TensorDict({"target": labels}, batch_size=[1000]))
        >>> buffer[:]["target"].bincount()
        tensor([4, 4, 4])
    """

    def __init__(self, num_classes: int, *, target_key: NestedKey = "target") -> None:
        super().__init__()
        check_count("num_classes", num_classes)
        self.num_classes = num_classes
        self.target_key = target_key
        # Items of each class in the stream, and whether it has been the largest.
        self._classes = self.array("classes", (2, num_classes), np.int64, low=0)
        # Class of each slot, and place of the slot in the list of its class.
        self._labels = self.per_slot(
            "labels", np.int64, empty=-1, low=-1, high=num_classes - 1
        )
        self._places = self.per_slot("places", np.int64, empty=-1, low=-1)
        # The slots of each class, and the storage's revision that they belong to.
        self._lists: tuple[int, list[list[int]]] | None = None

    @property
    def stream_counts(self) -> NDArray[np.int64]:
        """Items of each class that were offered."""
        return self._classes.array[0].copy()

    @property
    def memory_counts(self) -> NDArray[np.int64]:
        """Items of each class in the memory."""
        return np.array([*map(len, self._slot_lists())], dtype=np.int64)

    def _slot_lists(self) -> list[list[int]]:
        """The slots of each class, in the same order after a restart."""
        if self._lists is None or self._lists[0] != self.revision:
            lists: list[list[int]] = [[] for _ in range(self.num_classes)]
            labels, places = self._labels.array, self._places.array
            used = np.flatnonzero(labels >= 0)
            for slot in used[np.lexsort((places[used], labels[used]))]:
                lists[labels[slot]].append(int(slot))
            self._lists = self.revision, lists
        return self._lists[1]

    def _read(self, batch: TensorDictBase) -> NDArray[np.int64]:
        """Labels of a batch, checked."""
        labels = to_host(read_labels(batch, self.target_key))[0].astype(np.int64)
        check_labels(labels, self.num_classes, self.target_key)
        return labels

    def check(self, batch: TensorDictBase) -> None:
        """Refuse labels outside the classes."""
        self._read(batch)

    def decide(self, batch: TensorDictBase) -> Decision:
        """Give slots to the items of a batch; see :meth:`SelectionWriter.decide`."""
        count = len(batch)
        labels = self._read(batch)
        plan = _Plan(self._slot_lists(), *self._classes.array.copy())
        # The plan changes the lists in place; they are derived again if it is dropped.
        self._lists = None
        draws = self.uniforms(count)
        size, capacity = len(self.slots), self.slots.capacity
        filled = min(count, capacity - size)
        if filled:
            plan.fill(labels[:filled], size)
            if size + filled == capacity:
                plan.update_full()
        start = filled
        while start < count:
            # Items of full classes change no slot's class: a run is decided at once.
            newcomers = np.flatnonzero(~plan.full[labels[start:]].astype(bool))
            stop = start + int(newcomers[0]) if newcomers.size else count
            plan.sample_within(labels[start:stop], draws[start:stop, 0], start)
            if stop < count:
                plan.take_over(int(labels[stop]), draws[stop, 0], stop)
            start = stop + 1
        slots = np.full(count, -1, dtype=np.int64)
        for slot, row in plan.owner.items():
            slots[row] = slot

        def commit() -> None:
            self._remember(plan)
            self.reservoir_count += count

        return Decision(slots, commit)

    def adopt(self, items: TensorDictBase) -> None:
        """Count the classes of items that the storage brought along."""
        labels, classes = self._read(items), self._classes.array
        plan = _Plan([[] for _ in range(self.num_classes)], *np.zeros_like(classes))
        plan.fill(labels, 0)
        if len(labels) == self.slots.capacity:
            plan.update_full()
        self._remember(plan)

    def _remember(self, plan: _Plan) -> None:
        self._classes.array[:] = plan.stream, plan.full
        labels, places = self._labels.array, self._places.array
        for slot, (label, place) in plan.moved.items():
            labels[slot], places[slot] = label, place
        self._lists = self.slots.revision, plan.lists

    def restore_state(self, state: dict[str, Any]) -> None:
        """Continue from saved state; the lists are derived again."""
        super().restore_state(state)
        self._lists = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the lists out: they are derived."""
        return {**super().__getstate__(), "_lists": None}


@dataclass
class _Plan:
    """The state of the policy while one batch is decided."""

    lists: list[list[int]]  # slots of each class
    stream: NDArray[np.int64]  # items of each class in the stream
    full: NDArray[np.int64]  # 1 for classes that have been the largest
    # The row of the batch, and the class and place in its list, of changed slots.
    owner: dict[int, int] = field(default_factory=dict)
    moved: dict[int, tuple[int, int]] = field(default_factory=dict)

    def _append(self, label: int, slot: int) -> None:
        self.moved[slot] = (label, len(self.lists[label]))
        self.lists[label].append(slot)

    def fill(self, labels: NDArray[np.int64], size: int) -> None:
        """Store items in free slots."""
        self.stream += np.bincount(labels, minlength=len(self.stream))
        for row, label in enumerate(labels.tolist()):
            self._append(label, size + row)
            self.owner[size + row] = row

    def update_full(self) -> None:
        """Note which classes are the largest now."""
        sizes = [*map(len, self.lists)]
        largest = max(sizes)
        for label, size in enumerate(sizes):
            if size == largest:
                self.full[label] = 1

    def sample_within(
        self, labels: NDArray[np.int64], draws: NDArray[np.float64], start: int
    ) -> None:
        """Reservoir sampling within each of several full classes."""
        if not labels.size:
            return
        numbers = self.stream[labels] + _ranks(labels)
        chosen = (draws * numbers).astype(np.int64)
        sizes = np.array([*map(len, self.lists)])
        for row in np.flatnonzero(chosen < sizes[labels]).tolist():
            self.owner[self.lists[labels[row]][chosen[row]]] = start + row
        self.stream += np.bincount(labels, minlength=len(self.stream))

    def take_over(self, label: int, draw: float, row: int) -> None:
        """Give an item of a growing class a random slot of the largest one."""
        sizes = [*map(len, self.lists)]
        largest = sizes.index(max(sizes))
        slots = self.lists[largest]
        place = int(draw * len(slots))
        slot = slots[place]
        # The last of the list takes the place: removal takes constant time.
        slots[place] = slots[-1]
        self.moved[slots[place]] = (largest, place)
        slots.pop()
        self._append(label, slot)
        self.owner[slot] = row
        self.stream[label] += 1
        self.update_full()


def _ranks(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number ``(n,)`` of each item among those of its class: 1, 2, ..."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    lengths = np.diff(np.concatenate([starts, [labels.size]]))
    ranks = np.empty_like(labels)
    ranks[order] = np.arange(labels.size) - np.repeat(starts, lengths) + 1
    return ranks
