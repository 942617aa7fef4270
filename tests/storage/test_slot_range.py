"""The last slots of a storage look like slots of their own, numbered from 0."""

from __future__ import annotations

import numpy as np
import torch
from torchrl.data import LazyTensorStorage

from info_replay.storage.slot_range import SlotRange
from info_replay.storage.slots import Slots

from .helpers import assert_whole, fill, ids, make_items


def test_it_is_empty_until_the_slots_before_it_are_in_use() -> None:
    for count, size in ((1, 0), (3, 0), (4, 1), (8, 5)):
        part = SlotRange(fill(LazyTensorStorage(8), count), 3)
        assert (len(part), part.capacity) == (size, 5)
    assert len(SlotRange(Slots(LazyTensorStorage(8)), 3)) == 0


def test_items_are_read_by_their_number_in_the_range() -> None:
    part = SlotRange(fill(LazyTensorStorage(8), 7), 3)
    assert ids(part) == [3, 4, 5, 6]
    assert part.read(slice(1, None, 2))["id"].tolist() == [4, 6]
    assert part.read(slice(0, 99))["id"].tolist() == [3, 4, 5, 6]
    assert part.read(torch.tensor([2, 0]))["id"].tolist() == [5, 3]
    assert part.leaf("id").tolist()[:4] == [3, 4, 5, 6]
    assert part.leaf(("next", "state")).shape == (5, 2)
    assert_whole(part.read(slice(0, 4)))


def test_a_slice_is_a_view_and_so_is_a_leaf() -> None:
    whole = fill(LazyTensorStorage(8), 7)
    part = SlotRange(whole, 3)
    part.leaf("id")[1] = 40
    part.read(slice(2, 3))["id"].fill_(50)
    assert ids(whole) == [0, 1, 2, 3, 40, 50, 6]


def test_generations_are_those_of_the_slots_behind_it() -> None:
    whole = fill(LazyTensorStorage(8), 7)
    whole.write(np.array([4, 1]), np.array([0, 1]), make_items(2))
    part = SlotRange(whole, 3)
    assert part.generations_of(torch.arange(-1, 5)).tolist() == [-1, 0, 1, 0, 0, -1]
    assert part.generations_of(1).item() == 1
    # They are saved, restored and advanced with those of all slots.
    assert part.save_generations() is None
    part.load_generations(torch.zeros(8, dtype=torch.int64))
    part.empty()
    assert part.generations_of(torch.arange(5)).tolist() == [0, 1, 0, 0, -1]


def test_generations_of_items_that_the_storage_brought_along() -> None:
    storage = LazyTensorStorage(8)
    storage.set(range(7), make_items(7))
    part = SlotRange(Slots(storage), 3)
    assert part.generations_of(torch.arange(-1, 5)).tolist() == [-1, 0, 0, 0, 0, -1]


def test_the_revision_is_that_of_all_slots() -> None:
    whole = fill(LazyTensorStorage(8), 7)
    part = SlotRange(whole, 3)
    before = part.revision
    whole.write(np.array([0]), np.array([0]), make_items(1))
    assert part.revision == whole.revision > before
