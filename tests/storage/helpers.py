"""Items with entries of several types, and slots that hold some of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import LazyMemmapStorage, LazyTensorStorage

from info_replay.storage.slots import Slots

STORAGES: dict[str, Callable[[int], Any]] = {
    "tensor": LazyTensorStorage,
    "memmap": LazyMemmapStorage,
}
for_each_storage = pytest.mark.parametrize("storage", STORAGES)


def make_items(count: int, first: int = 0) -> TensorDict:
    """Numbered items with entries of several types, also nested ones."""
    numbers = first + torch.arange(count)
    state = torch.stack([numbers, -numbers], 1).float()
    return TensorDict(
        {
            "id": numbers,
            "next": TensorDict({"state": state}, batch_size=[count]),
            "done": numbers % 2 == 0,
        },
        batch_size=[count],
    )


def assert_whole(items: TensorDictBase) -> None:
    """Every entry of an item is its own."""
    expected = torch.stack([make_items(1, int(number))[0] for number in items["id"]])
    assert bool((items == expected).all())


def fill(storage: Any, count: int) -> Slots:
    """Slots of which the first hold items 0, 1, ..."""
    slots = Slots(storage)
    slots.write(np.arange(count), np.arange(count), make_items(count))
    return slots


def ids(slots: Slots) -> list[int]:
    """Numbers of the stored items."""
    numbers: list[int] = slots.read(slice(0, len(slots)))["id"].tolist()
    return numbers
