"""The last slots of a storage, for a writer of their own: :class:`SlotRange`."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.storage.slots import Slots

__all__ = ["SlotRange"]


class SlotRange(Slots):
    """The slots from ``first`` on, numbered from 0; only ``whole`` is written to."""

    def __init__(self, whole: Slots, first: int) -> None:
        super().__init__(whole.storage)
        self.whole = whole
        self.first = first
        self.capacity = whole.capacity - first

    def __len__(self) -> int:
        """Number of slots in use."""
        return max(0, super().__len__() - self.first)

    def look(self) -> int:
        """That of all slots; see :meth:`Slots.look`."""
        return self.whole.look()

    def leaf(self, key: NestedKey) -> Tensor:
        """A view of one of the stored tensors; see :meth:`Slots.leaf`."""
        return super().leaf(key)[self.first :]

    def read(self, where: slice | Tensor) -> TensorDictBase:
        """The items of some slots in use; of a slice, a view."""
        if isinstance(where, slice):
            start, stop, step = where.indices(len(self))
            return super().read(slice(self.first + start, self.first + stop, step))
        return super().read(where + self.first)

    def generations_of(self, index: int | Tensor) -> Tensor:
        """How often slots were rewritten; see :meth:`Slots.generations_of`."""
        slots = torch.as_tensor(index)
        inside = torch.where(slots >= 0, slots + self.first, -1)
        return self.whole.generations_of(inside)

    def save_generations(self) -> Tensor | None:
        """Nothing: those of all slots are saved together."""
        return None

    def load_generations(self, saved: Tensor | None) -> None:
        """Nothing: those of all slots are restored together."""

    def empty(self) -> None:
        """Nothing: all slots are emptied together."""
