"""Reservoir sampling: every item of the stream is kept with the same probability."""

from __future__ import annotations

import numpy as np
from tensordict import TensorDictBase

from info_replay.decision import Decision, keep_last
from info_replay.registry import register_policy
from info_replay.writers.base import SelectionWriter

__all__ = ["ReservoirWriter"]


@register_policy("rs")
class ReservoirWriter(SelectionWriter):
    """Keeps a uniform sample of the stream (Appendix, Alg. "Reservoir Sampling").

    The ``n``-th item replaces a random slot with probability ``M / n``. The count moves
    on within a batch, so the sample is uniform whatever the batch size.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> buffer = TensorDictReplayBuffer(
        ...     storage=LazyTensorStorage(3), writer=ReservoirWriter(), batch_size=2
        ... )
        >>> items = TensorDict({"x": torch.arange(1000)}, batch_size=[1000])
        >>> slots = buffer.extend(items)
        >>> slots.shape, int((slots >= 0).sum()), buffer.write_count
        (torch.Size([1000]), 3, 1000)
    """

    def check(self, batch: TensorDictBase) -> None:
        """Nothing: any item will do."""

    def decide(self, batch: TensorDictBase) -> Decision:
        """Give slots to the items of a batch; see :meth:`SelectionWriter.decide`."""
        count = len(batch)
        size, capacity = len(self.slots), self.slots.capacity
        order = np.arange(count)
        numbers = self.reservoir_count + 1 + order
        draws = self.uniforms(count)[:, 0]
        slots = np.where(
            order < capacity - size, size + order, (draws * numbers).astype(np.int64)
        )
        slots[slots >= capacity] = -1

        def commit() -> None:
            self.reservoir_count += count

        return Decision(keep_last(slots), commit)
