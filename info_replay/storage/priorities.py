"""Priorities of items, before TorchRL's samplers get them, which check nothing."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from info_replay.storage.slots import Slots

__all__ = ["check_priorities", "kept_rows", "live_rows"]


def check_priorities(priorities: Tensor | None, key: Any) -> None:
    """Refuse priorities that are negative or not finite; none at all is fine."""
    if priorities is None:
        return
    wrong = torch.nonzero(~(priorities.isfinite() & (priorities >= 0)).reshape(-1))
    if len(wrong):
        place = int(wrong[0])
        raise ValueError(
            f"entry {key!r} must hold priorities of at least 0, got "
            f"{priorities.reshape(-1)[place].item()} for item {place}"
        )


def live_rows(data: TensorDictBase, slots: Slots) -> TensorDictBase:
    """The rows of a sample whose items are still in their slots.

    Raises:
        IndexError: if a slot was not in use when the sample was drawn.
    """
    index, drawn = data.get("index", None), data.get("index_generation", None)
    if data.batch_dims and not len(data):
        return data
    if index is None or drawn is None or not data.batch_dims:
        if index is not None:
            kept_rows(index, len(slots))
        return data
    rows = index.reshape(len(data), -1)[:, 0]
    live = slots.generations_of(rows) == drawn.reshape(len(data), -1)[:, 0]
    inside = (rows >= 0) & (rows < slots.capacity)
    kept_rows(rows[live | ~inside], len(slots))
    return data if bool(live.all()) else data[live]


def kept_rows(index: Tensor, size: int) -> Tensor | None:
    """Which of some slots are not -1; ``None`` if all are that.

    Raises:
        IndexError: if a slot is neither that nor in use.
    """
    if not index.numel():
        return None
    if int(index.min()) < -1 or int(index.max()) >= size:
        wrong = index[(index < -1) | (index >= size)].reshape(-1)
        raise IndexError(
            f"entry 'index' must hold slots from 0 to {size - 1}, got {int(wrong[0])}"
        )
    kept = index >= 0
    return None if bool(kept.all()) else kept
