"""How often each slot was written: :class:`Generations`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from info_replay.linear_algebra import on_host
from info_replay.writers.slots import Slots

__all__ = ["Generations"]


class Generations:
    """One stamp a slot, by which a sample can be told from a later item in its slot."""

    def __init__(self) -> None:
        self._stamps: Tensor | None = None
        self._shared = False

    @property
    def stamps(self) -> Tensor | None:
        """Shape ``(capacity,)``, -1 for a slot that never was written.

        ``None`` before the first write.
        """
        return self._stamps

    def prepare(self, slots: Slots) -> Tensor:
        """The stamps; of items that a storage brought along, which count as written.

        Args:
            slots: of the storage, before it is written to.

        Returns:
            The stamps.
        """
        if self._stamps is None:
            stamps = torch.full(
                (slots.capacity,), -1, dtype=torch.int64, device=slots.device
            )
            stamps[: len(slots)] = 0
            self._keep(stamps)
        assert self._stamps is not None
        return self._stamps

    def _keep(self, stamps: Tensor) -> None:
        self._stamps = stamps.share_memory_() if self._shared else stamps

    def advance(self, slots: Slots, index: Tensor | None = None) -> None:
        """Note that slots were written, or that all were emptied.

        Args:
            slots: of the storage.
            index: the slots that were written, all different.
        """
        stamps = self.prepare(slots)
        if index is None:
            # They move on, so that a sample from before is recognised as stale.
            stamps += (stamps >= 0).long()
        else:
            stamps.index_add_(0, index, torch.ones_like(index))

    def of(self, slots: Slots, index: int | Tensor) -> Tensor:
        """The stamps of some slots, on the device of the index; -1 has stamp -1."""
        places = torch.as_tensor(index, dtype=torch.long)
        stamps = self.stamps
        if stamps is None:
            brought = (places >= 0) & (places < len(slots))
            return brought.long() - 1
        if on_host(places) and on_host(stamps):
            # Every sample asks, and seldom about a slot that there is not.
            array, held = places.numpy(), stamps.numpy()
            found = np.asarray(held.take(array, mode="clip"))
            # Seen as unsigned, a negative number is a large one.
            outside = array.view(np.uint64) >= slots.capacity
            if outside.any():
                found[outside] = -1
            return torch.from_numpy(found)
        there = places.to(stamps.device)
        known = stamps[there.clamp(0, slots.capacity - 1)]
        valid = (there >= 0) & (there < slots.capacity)
        return torch.where(valid, known, -1).to(places.device)

    def state(self) -> Tensor | None:
        """A copy of the stamps."""
        return None if self._stamps is None else self._stamps.clone()

    def load_state(self, slots: Slots, state: Tensor | None) -> None:
        """Continue from a :meth:`state`."""
        if state is None:
            self._stamps = None
        elif self._stamps is None:
            self._keep(state.to(slots.device).clone())
        else:
            self._stamps.copy_(state)

    def share_memory_(self) -> None:
        """Move the stamps to memory that child processes share."""
        self._shared = True
        if self._stamps is not None:
            self._stamps.share_memory_()
