"""A number for each slot, kept by policies that need one: :class:`SlotArray`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from info_replay.host_array import HostArray
from info_replay.writers.slots import Slots

__all__ = ["SlotArray"]


class SlotArray:
    """One number a slot on the host, made when the storage is known.

    Args:
        dtype: of the numbers.
        empty: what a slot has before it is given anything.
    """

    def __init__(self, dtype: DTypeLike, empty: float = 0) -> None:
        self.dtype = dtype
        self.empty = empty
        self._array: HostArray | None = None
        self._shared = False

    def of(self, slots: Slots) -> NDArray[Any]:
        """The numbers, shape ``(capacity,)``; change them in place only."""
        return self._made(slots).array

    def _made(self, slots: Slots) -> HostArray:
        if self._array is None:
            self._array = HostArray(
                np.full(slots.capacity, self.empty, dtype=self.dtype)
            )
            if self._shared:
                self._array.share_memory_()
        return self._array

    def clear(self) -> None:
        """Give every slot what it had at first."""
        if self._array is not None:
            self._array.array[:] = self.empty

    def tensor(self, slots: Slots) -> torch.Tensor:
        """A copy as a tensor, to be saved."""
        return self._made(slots).tensor()

    def assign(self, slots: Slots, tensor: torch.Tensor) -> None:
        """Take numbers that :meth:`tensor` gave."""
        self._made(slots).assign(tensor)

    def share_memory_(self) -> None:
        """Move the numbers to memory that child processes share."""
        self._shared = True
        if self._array is not None:
            self._array.share_memory_()
