"""Policies that let items go without putting others in their place.

TorchRL's storages have no gaps: their items are in the first slots. So when items go,
others move to where they were; :class:`RegroupingWriter` does that for its policies.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase

from info_replay.writers.base import SelectionWriter

__all__ = ["Places", "Regrouping", "RegroupingWriter", "arrange"]

Places = NDArray[np.int64]


class Regrouping(NamedTuple):
    """What a memory consists of after a batch.

    Attributes:
        kept: slots whose items stay.
        rows: rows of the batch that come in.
        commit: to be called once that is so, with the source of each slot: the slot
            that its item had before, or ``-1 - row`` for a row of the batch.
    """

    kept: Places
    rows: Places
    commit: Callable[[Places], None]


class RegroupingWriter(SelectionWriter):
    """A writer whose memory may become smaller.

    The length of the storage follows. Items stay where they are unless they have to
    close a gap. A sample from a slot that was given up or got another item is
    recognised as stale.
    """

    regroups = True

    def __init__(self) -> None:
        super().__init__("size")  # of the memory as this writer left it

    @abc.abstractmethod
    def _decide(self, data: TensorDictBase) -> Regrouping:
        """Choose what stays and what comes in, without changing anything yet."""

    def _offer(self, data: TensorDictBase) -> Places:
        data = self.slots.admit(data)
        self._adopt_brought()
        self._adopt_foreign()
        blocks = self._blocks(len(data))
        if len(blocks) > 1:
            self._check(data)
        places = np.full(len(data), -1)
        for block in blocks:
            sources = self._offer_part(data[block])
            # Items of earlier parts may have moved or gone again.
            now = np.full(self.slots.capacity + 1, -1)
            old = np.flatnonzero(sources >= 0)
            now[sources[old]] = old
            places = now[places]
            new = np.flatnonzero(sources < 0)
            places[block.start - 1 - sources[new]] = new
        return places

    def _adopt_foreign(self) -> None:
        """Start again with what is there, if somebody else added or removed items."""
        size = len(self.slots)
        if size != self._counters["size"] and self._counters["write_count"]:
            self._forget_statistics()
            if size:
                self._adopt(self.slots.read(slice(0, size)))

    def _offer_part(self, data: TensorDictBase) -> Places:
        """Regroup with a part of a batch; gives the source of each slot."""
        kept, rows, commit = self._decide(data)
        before, size = len(self.slots), len(kept) + len(rows)
        sources = arrange(kept, rows)
        places = np.arange(size)
        moved = np.flatnonzero((sources >= 0) & (sources != places))
        new = np.flatnonzero(sources < 0)
        if moved.size or new.size or size < before:
            self._generations.prepare(self.slots)
            if moved.size:
                self.slots.move(sources[moved], moved)
            if new.size:
                self.slots.write(new, -1 - sources[new], data)
            self.slots.shrink(size)
            changed = np.concatenate([moved, new])
            given_up = np.arange(size, before)
            device = self.slots.device
            self._generations.advance(
                self.slots, torch.from_numpy(np.append(changed, given_up)).to(device)
            )
            self.slots.announce(torch.from_numpy(changed).to(device))
        commit(sources)
        self._counters["size"] = size
        self._counters["reservoir_count"] += len(rows)
        self._counters["write_count"] += len(data)
        self._counters["draw_count"] += len(data)
        return sources


def arrange(kept: Places, rows: Places) -> Places:
    """Give slots without gaps to items that stay and to new ones, moving few.

    Args:
        kept: slots of items that stay, all different.
        rows: rows of a batch that come in.

    Returns:
        The source of each slot: the slot of an item that stays, or ``-1 - row``.

    Example:
        >>> import numpy as np
        >>> arrange(np.array([0, 2, 5]), np.array([7]))
        array([ 0,  5,  2, -8])
    """
    size = len(kept) + len(rows)
    sources = np.full(size, -1)
    staying = kept[kept < size]
    sources[staying] = staying
    free = np.setdiff1d(np.arange(size), staying)
    sources[free] = np.concatenate([np.sort(kept[kept >= size]), -1 - rows])
    return sources
