"""The most recent items and selected older ones: :class:`HybridWriter`."""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor

from info_replay.decision import Decision, Places
from info_replay.storage.slot_range import SlotRange
from info_replay.storage.slots import Slots
from info_replay.validation import check_count
from info_replay.writers.base import SelectionWriter

__all__ = ["HybridWriter"]


class HybridWriter(SelectionWriter):
    """Keeps the most recent items, and of older ones what a policy selects.

    The first slots of the storage are a ring with the last items that were offered. An
    item that leaves the ring is offered to the policy, which manages all other slots.
    So no item is stored twice, and a uniform sample of the storage has fresh items and
    selected ones. An item is offered as the storage holds it by then, with features
    that replay has refreshed. Bad items are refused when they come, not when they leave
    the ring.

    To a prioritized sampler an item that moves on is a new one: it gets the largest
    priority so far.

    Args:
        selection: what selects among the items that leave the ring; any writer whose
            memory does not shrink.
        recent: number of slots of the ring, or its share of the capacity if that is a
            float, between 0 and 1.

    Attributes:
        selection: as given; its slots are numbered from the end of the ring.
        recent: as given.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> from info_replay import ReservoirWriter
        >>> writer = HybridWriter(ReservoirWriter(), recent=2)
        >>> buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(6), writer=writer)
        >>> items = TensorDict({"x": torch.arange(100)}, batch_size=[100])
        >>> slots = buffer.extend(items)
        >>> slots[-2:], buffer[:2]["x"]
        (tensor([0, 1]), tensor([98, 99]))
        >>> bool((buffer[2:]["x"] < 98).all())  # a uniform sample of the older ones
        True
        >>> buffer.write_count, writer.reservoir_count
        (100, 98)
    """

    def __init__(self, selection: SelectionWriter, recent: int | float) -> None:
        super().__init__()
        if not isinstance(selection, SelectionWriter):
            raise TypeError(
                "selection must be a SelectionWriter such as ReservoirWriter(), got "
                f"{selection!r}"
            )
        if selection.compacts or isinstance(selection, HybridWriter):
            raise ValueError(
                "selection must be a writer that gives up no slots and has no ring of "
                f"its own, got a {type(selection).__name__}"
            )
        if not isinstance(recent, float):
            check_count("recent", recent)
        elif not 0 < recent < 1:
            raise ValueError(
                "recent must be a number of slots or a share of the capacity, a float "
                f"between 0 and 1, got {recent!r}"
            )
        self.selection = self.declare("selection", selection)
        self.recent = recent
        self.feature_key = selection.feature_key
        self.largest_feature = selection.largest_feature
        # The slot of the ring that is written next.
        self._position = self.counter("position")

    @property
    def policy(self) -> SelectionWriter:
        """The writer that selects among the items that leave the ring."""
        return self.selection

    # -- the slots --------------------------------------------------------------------

    def manage(self, slots: Slots) -> None:
        """Divide slots into the ring, which comes first, and those of the policy."""
        selected = SlotRange(slots, self._size_of_ring(slots.capacity))
        super().manage(slots)
        self.selection.manage(selected)

    def _size_of_ring(self, capacity: int) -> int:
        if capacity < 2:
            raise ValueError(
                f"a ring and a selection need a capacity of at least 2, got {capacity}"
            )
        if isinstance(self.recent, float):
            size = max(1, min(round(self.recent * capacity), capacity - 1))
        else:
            size = self.recent
        if size >= capacity:
            raise ValueError(
                "recent must leave slots for the selection: with capacity "
                f"{capacity} it must be less than {capacity}, got {self.recent!r}"
            )
        return size

    @property
    def ring_size(self) -> int:
        """Number of slots of the ring; those of the policy come after it."""
        return self.slots.capacity - self.selection.slots.capacity

    def check_saved(self, state: Any) -> None:
        """Raise ``ValueError`` if saved state does not fit; changes nothing."""
        super().check_saved(state)
        if int(state["position"]) >= self.ring_size:
            raise ValueError(
                f"expected a position in a ring of {self.ring_size} slots, got "
                f"{int(state['position'])}"
            )

    def check_stored(self, items: TensorDictBase) -> None:
        """Raise ``ValueError`` if saved items cannot be computed with."""
        self.selection.check_stored(items)

    # -- deciding ---------------------------------------------------------------------

    def split(self, count: int) -> list[slice]:
        """Parts whose leaving items the policy decides about together."""
        room = max(0, self.ring_size - len(self.slots))
        if count <= room:
            return [slice(0, count)]
        inner = self.selection.split(count - room)
        cuts = [0, *(room + part.start for part in inner[1:]), count]
        return [slice(a, b) for a, b in itertools.pairwise(cuts)]

    def check(self, batch: TensorDictBase) -> None:
        """Refuse what the policy would refuse later."""
        self.selection.check(batch)

    def decide(self, batch: TensorDictBase) -> Decision:
        """Give slots to the items of a batch; see :meth:`SelectionWriter.decide`."""
        self.check(batch)
        selection, ring, count = self.selection, self.ring_size, len(batch)
        held = min(len(self.slots), ring)
        position = held if held < ring else self._position.value
        oldest = position if held == ring else 0
        slots = np.full(count, -1)
        moves = None
        inner, leaving = None, max(0, held + count - ring)
        if leaving:
            old = min(leaving, held)
            new = leaving - old
            inner = selection.decide(self._leaving(oldest, old, batch, new))
            selection.check_decision(inner, leaving)
            after = np.where(inner.slots >= 0, ring + inner.slots, -1)
            slots[:new] = after[old:]
            moving = np.flatnonzero(after[:old] >= 0)
            moves = (oldest + moving) % ring, after[moving]
        stay = min(count, ring)
        slots[count - stay :] = (position + np.arange(count - stay, count)) % ring

        def commit() -> None:
            if inner is not None:
                selection.carried_out(inner, leaving)
            self._position.value = (position + count) % ring

        return Decision(slots, commit, moves)

    def _leaving(
        self, oldest: int, count: int, batch: TensorDictBase, new: int
    ) -> TensorDictBase:
        """Items of the ring from the oldest on, then the first of the batch."""
        if not count:
            return batch[:new]
        slots, ring = self.slots, self.ring_size
        where: slice | Tensor = slice(oldest, oldest + count)  # a view, not a copy
        if oldest + count > ring:
            places = (oldest + np.arange(count)) % ring
            where = torch.from_numpy(places).to(slots.device)
        items = slots.read(where)
        if not new:
            return items
        keys = list(slots.leaves)
        rest = batch[:new].select(*keys).to(slots.device)
        return torch.cat([items.select(*keys), rest])

    # -- the rest of the contract -----------------------------------------------------

    def prepare(self, batch: TensorDictBase) -> None:
        """Let the policy prepare: the memory may be shared before items reach it."""
        self.selection.prepare(batch)

    def adopt(self, items: TensorDictBase) -> None:
        """Let the policy adopt what is behind the ring."""
        self.selection.check(items[: self.ring_size])
        self.selection.catch_up()
        self.selection.prepare(items)

    def computing(self) -> AbstractContextManager[None]:
        """The context in which the policy decides."""
        return self.selection.computing()

    def resync(self) -> None:
        """Let the policy look at what others wrote."""
        self.selection.catch_up()

    def mark_in_step(self) -> None:
        """Note, if the policy does, that it knows the stored items."""
        self.selection.mark_in_step()
        if self.selection.revision == self.slots.revision:
            super().mark_in_step()

    def refresh(self, slots: Places, features: Tensor) -> bool:
        """Let the policy follow new features of its own items."""
        selected = np.flatnonzero(slots >= self.ring_size)
        if not selected.size:
            return True
        pick = torch.from_numpy(selected).to(features.device)
        places = slots[selected] - self.ring_size
        return self.selection.refresh(places, features.index_select(0, pick))

    # -- counts and draws -------------------------------------------------------------

    @property
    def reservoir_count(self) -> int:
        """The reservoir count of the policy."""
        return self.selection.reservoir_count

    @reservoir_count.setter
    def reservoir_count(self, value: int) -> None:
        self.selection.reservoir_count = value

    @property
    def seed(self) -> int:
        """The seed of the policy; the ring draws nothing."""
        return self.selection.seed

    @seed.setter
    def seed(self, value: int) -> None:
        self.selection.seed = value

    def seed_from(self, generator: torch.Generator) -> None:
        """Seed the policy; the ring draws nothing."""
        self.selection.seed_from(generator)
