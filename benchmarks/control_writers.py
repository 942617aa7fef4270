"""Memories that a sceptic asks for, as writers: how much of a gain is selection?

* :class:`ThinnedReservoirWriter`: RS of a random part of the stream, as large as what
  InfoRS lets pass;
* :class:`TerminalKeepingReservoirWriter`: RS that never gives up a terminal transition
  for another one.
"""

from __future__ import annotations

import numpy as np
from tensordict import TensorDictBase

from info_replay import Decision, SelectionWriter, keep_last


class ThinnedReservoirWriter(SelectionWriter):
    """Reservoir sampling of items that pass a coin toss once the memory is full.

    Args:
        share: probability to pass.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        if not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, got {share!r}")
        self.share = share

    def decide(self, batch: TensorDictBase) -> Decision:
        size, capacity = len(self.slots), self.slots.capacity
        draws = self.uniforms(len(batch))
        fills = np.arange(len(batch)) < capacity - size
        passed = fills | (draws[:, 1] < self.share)
        counts = self.reservoir_count + passed.cumsum()
        drawn = (draws[:, 0] * counts).astype(np.int64)
        places = np.where(passed & (drawn < capacity), drawn, -1)
        places[fills] = size + np.arange(fills.sum())

        def commit() -> None:
            self.reservoir_count = int(counts[-1])

        return Decision(keep_last(places), commit)


class TerminalKeepingReservoirWriter(SelectionWriter):
    """Reservoir sampling in which terminal transitions always enter and stay.

    A terminal transition takes a random slot that holds none, or any slot if all do;
    another one takes a random slot that holds no terminal transition if reservoir
    sampling lets it in.
    """

    def split(self, count: int) -> list[slice]:
        return [slice(row, row + 1) for row in range(count)]

    def decide(self, batch: TensorDictBase) -> Decision:
        size, capacity = len(self.slots), self.slots.capacity
        chance, place = self.uniforms(1)[0, :2]
        seen = self.reservoir_count + 1
        terminal = bool(batch["next", "terminated"].any())
        slot = -1
        if size < capacity:
            slot = size
        elif terminal or chance * seen < capacity:
            held = self.slots.leaf(("next", "terminated"))[:size].flatten().cpu()
            others = np.flatnonzero(~held.numpy())
            if others.size:
                slot = int(others[int(place * others.size)])
            elif terminal:
                slot = int(place * capacity)

        def commit() -> None:
            self.reservoir_count = seen

        return Decision(np.array([slot]), commit)
