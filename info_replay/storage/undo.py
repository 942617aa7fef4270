"""Taking back what a refused batch has written already: :class:`SlotUndo`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from info_replay.storage import generations
from info_replay.storage.slots import Slots

__all__ = ["SlotUndo"]


class SlotUndo:
    """What slots held before the first of several writes.

    Samplers are told of the writes when all of them are done: see :meth:`finish`.

    Args:
        slots: that are about to be written to; they report to this object until
            :meth:`finish` or :meth:`take_back`.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._size = len(slots)
        self._initialized = slots.storage.initialized
        self._had_generations = slots.has_generations
        if self._had_generations:
            generations.ensure(slots.storage, slots.device, len(slots))
        self._saved: list[tuple[Tensor, dict[Any, Tensor]]] = []
        self._generations: list[tuple[Tensor, Tensor]] = []
        self._written: list[Tensor] = []
        slots.undo = self

    def remember(self, places: NDArray[np.int64]) -> None:
        """Keep what slots hold that are about to be written."""
        self.remember_generations(places)
        old = places[places < self._size]
        if old.size:
            index = torch.from_numpy(old).to(self._slots.device)
            leaves = self._slots.leaves
            rows = {key: leaf[index] for key, leaf in leaves.items()}
            self._saved.append((index, rows))

    def remember_generations(self, places: NDArray[np.int64]) -> None:
        """Keep the generations of slots that are about to be written or given up."""
        held = generations.stamps(self._slots.storage)
        if self._had_generations and held is not None:
            index = torch.from_numpy(places).to(held.device)
            self._generations.append((index, held[index]))

    def tell_later(self, index: Tensor) -> None:
        """Note slots that samplers must be told of."""
        self._written.append(index)

    def finish(self) -> None:
        """Keep what was written, and tell samplers of it."""
        self._slots.undo = None
        for index in self._written:
            self._slots.tell(index)

    def take_back(self) -> None:
        """Give all slots what they held, as if nothing had been written."""
        slots, storage = self._slots, self._slots.storage
        slots.undo = None
        for index, rows in reversed(self._saved):
            leaves = slots.leaves
            for key, row in rows.items():
                leaves[key][index] = row
        storage._len = self._size
        held = generations.stamps(storage)
        for index, before in reversed(self._generations):
            held[index] = before  # type: ignore[index]
        if not self._had_generations:
            generations.forget(storage)
        if not self._initialized and storage.initialized:
            slots.give_up_room()
        slots.note_own_write()
