"""The most recent items, and selected ones of before: :class:`HybridWriter`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import Storage

from info_replay.settings import check_count
from info_replay.writers.base import SelectionWriter
from info_replay.writers.slots import Slots
from info_replay.writers.window import Window, WindowGenerations

__all__ = ["HybridWriter"]


class HybridWriter(SelectionWriter):
    """Keeps the most recent items, and of older ones what a policy selects.

    The first slots of the storage are a ring with the last items that were offered. An
    item that leaves the ring is offered to the policy, which manages all other slots.
    So no item is stored twice, and a uniform sample of the storage has fresh items and
    selected ones. An item is offered as the storage holds it by then, with features
    that replay has refreshed. Bad items are refused when they come, not when they leave
    the ring.

    To a prioritised sampler an item that moves on is a new one: it gets the largest
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
        super().__init__("position")  # the slot of the ring that is written next
        if not isinstance(selection, SelectionWriter):
            raise TypeError(
                "selection must be a SelectionWriter such as ReservoirWriter(), got "
                f"{selection!r}"
            )
        if selection.regroups or isinstance(selection, HybridWriter):
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
        self.selection = selection
        self.recent = recent
        self._window: Window | None = None

    @property
    def policy(self) -> SelectionWriter:
        """The writer that selects among the items that leave the ring."""
        return self.selection

    # -- the slots --------------------------------------------------------------------

    def register_storage(self, storage: Storage) -> None:
        """Take a storage; of items that it holds, the first are the ring.

        Args:
            storage: a one-dimensional tensor storage of more slots than ``recent``.
        """
        if self._slots is not None and self._slots.storage is storage:
            return
        slots = Slots(storage)
        window = Window(slots, self._ring_size(slots.capacity))
        if self._shared:
            window.share_memory_()
        self._slots, self._storage, self._window = slots, storage, window
        self.selection._generations = WindowGenerations(self._generations, window)
        self.selection._take(window)
        if len(slots) and not self._counters["write_count"]:
            self._counters["brought"] = min(len(slots), window.first)

    def _ring_size(self, capacity: int) -> int:
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
    def window(self) -> Window:
        """The slots of the policy; the ring is before them."""
        _ = self.slots  # which says what is missing
        assert self._window is not None
        return self._window

    # -- offering ---------------------------------------------------------------------

    def _decide(self, data: TensorDictBase) -> Any:
        """What the policy does with items that leave the ring, in its own slots."""
        return self.selection._decide(data)

    def _adopt_brought(self) -> None:
        brought = self._counters["brought"]
        if brought:
            self.selection._check(self.slots.read(slice(0, brought)))
        self.selection._adopt_brought()
        if brought:
            self._counters["brought"] = 0

    def _offer(self, data: TensorDictBase) -> NDArray[np.int64]:
        data = self.slots.admit(data)
        self._adopt_brought()
        self.selection._check(data)
        ring, count = self.window.first, len(data)
        places = np.full(count, -1)
        is_first = self._generations.stamps is None
        # What may still fail comes first, so that the ring has not moved then.
        held = min(len(self.slots), ring)
        position = held if held < ring else self._counters["position"]
        oldest = position if held == ring else 0
        leaving = max(0, held + count - ring)
        if leaving:
            old = min(leaving, held)
            new = leaving - old
            items = self._leaving(oldest, old, data, new)
            fates = self.selection._offer_admitted(items)[old:]
            places[:new] = np.where(fates >= 0, ring + fates, -1)
        stay = min(count, ring)
        staying = data if stay == count else data[count - stay :]
        slots = (position + np.arange(count - stay, count)) % ring
        self._generations.prepare(self.slots)
        with self.window.overlook():
            index = self.slots.write(slots, np.arange(stay), staying)
        self._generations.advance(self.slots, index)
        self.slots.announce(index)
        places[count - stay :] = slots
        self._counters["position"] = (position + count) % ring
        self._counters["write_count"] += count
        if is_first:
            # Processes may share the memory long before the policy gets an item.
            self.selection._prepare(data)
        return places

    def _leaving(
        self, oldest: int, count: int, data: TensorDictBase, new: int
    ) -> TensorDictBase:
        """Items of the ring from the oldest on, followed by the first of the batch.

        Nothing is copied if they are side by side; the policy copies what it keeps.
        """
        if not count:
            return data[:new]
        slots, ring = self.slots, self.window.first
        where: slice | Tensor = slice(oldest, oldest + count)
        if oldest + count > ring:
            places = (oldest + np.arange(count)) % ring
            where = torch.from_numpy(places).to(slots.device)
        items = slots.read(where)
        if not new:
            return items
        keys = list(slots.leaves)
        rest = data[:new].select(*keys).to(slots.device)
        return torch.cat([items.select(*keys), rest])

    # -- writing back -----------------------------------------------------------------

    def update_features(self, data: TensorDictBase) -> None:
        """Write features back to the slots that they were sampled from.

        Args:
            data: a sample with its ``"index"`` and new features.

        Raises:
            AttributeError: if the policy does not look at features.
            KeyError, TypeError, ValueError, IndexError: if the sample is not what it
                should be; nothing is changed.
        """
        selection, window = self.selection, self.window
        if not selection.keeps_features:
            raise AttributeError(f"{type(selection).__name__} does not keep features")
        if data.batch_dims and not len(data):
            return
        places, features = selection._read_sample(
            data, self.slots, len(self.slots), self._generations
        )
        in_ring = places < window.first
        (recent, fresh), (selected, others) = (
            _pick(places, features, rows) for rows in (in_ring, ~in_ring)
        )
        if len(recent):
            with window.overlook():
                self.slots.write_leaf(selection.feature_key, recent, fresh)
        if len(selected):
            selection._write_back(selected - window.first, others, len(window))

    # -- counts and draws -------------------------------------------------------------

    @property
    def reservoir_count(self) -> int:
        """That of the policy."""
        return self.selection.reservoir_count

    @property
    def seed(self) -> int:
        """That of the policy; the ring draws nothing."""
        return self.selection.seed

    @seed.setter
    def seed(self, value: int) -> None:
        self.selection.seed = value

    @property
    def _rng(self) -> torch.Generator | None:
        return None

    @_rng.setter
    def _rng(self, generator: torch.Generator | None) -> None:
        self.selection._rng = generator

    # -- emptying, saving and sharing -------------------------------------------------

    def _empty(self, empty_write_count: bool = True) -> None:
        super()._empty(empty_write_count)
        self._counters["position"] = 0
        self.selection._empty(empty_write_count)

    def _policy_state(self) -> dict[str, Any]:
        return self.selection.state_dict()

    def _load_policy_state(self, state: dict[str, Any]) -> None:
        self.selection.load_state_dict(state)

    def _policy_settings(self) -> dict[str, Any]:
        return {"recent": self.window.first}

    def check_state(self, state_dict: dict[str, Any]) -> None:
        """Refuse a saved state that does not fit; see :class:`SelectionWriter`.

        Args:
            state_dict: from :meth:`state_dict`.
        """
        super().check_state(state_dict)
        self.selection.check_state(state_dict.get("policy", {}))

    def share_memory_(self) -> HybridWriter:
        """Move what the policy keeps to shared memory, too."""
        super().share_memory_()
        self.selection.share_memory_()
        if self._window is not None:
            self._window.share_memory_()
        return self


def _pick(
    places: NDArray[np.int64], features: Tensor, rows: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], Tensor]:
    """Some of the slots and their features; a copy unless it is all."""
    if not rows.all():
        pick = torch.from_numpy(np.flatnonzero(rows)).to(features.device)
        features = features.index_select(0, pick)
    return places[rows], features
