"""A slot and its generation stand for one item, whoever wrote it."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
import torch
from torchrl.data import LazyTensorStorage

from info_replay.storage import generations
from info_replay.storage.slots import Slots

from .helpers import STORAGES, fill, for_each_storage, make_items

HOST = torch.device("cpu")


def make_slots() -> Slots:
    """Three of four slots, the first of them written twice."""
    slots = fill(LazyTensorStorage(4), 3)
    slots.write(np.array([0]), np.array([0]), make_items(1, 10))
    return slots


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (0, 1),
        (-1, -1),
        (3, -1),
        (4, -1),
        (torch.tensor(2), 0),
        (torch.tensor([[0, -1], [3, 9]]), [[1, -1], [-1, -1]]),
        (torch.arange(8)[::2], [1, 0, -1, -1]),
        (torch.tensor([1, 0], dtype=torch.int32), [0, 1]),
        (torch.tensor([], dtype=torch.long), []),
        (torch.tensor([2**62, -(2**62)]), [-1, -1]),
    ],
    ids=str,
)
def test_slots_that_there_are_not_have_no_generation(
    index: int | torch.Tensor, expected: object
) -> None:
    found = make_slots().generations_of(index)
    assert found.dtype == torch.int64
    assert found.tolist() == expected


def test_what_is_told_of_generations_does_not_change() -> None:
    slots = make_slots()
    told = slots.generations_of(torch.arange(3))
    slots.write(np.array([2]), np.array([0]), make_items(1))
    assert told.tolist() == [1, 0, 0]


def test_slices_of_steps_are_refused() -> None:
    with pytest.raises(TypeError, match="store whole sequences as items instead"):
        make_slots().generations_of((torch.tensor([0]), torch.tensor([0])))


@for_each_storage
def test_every_write_but_that_of_an_entry_is_a_generation(storage: str) -> None:
    slots = fill(STORAGES[storage](6), 5)
    everywhere = torch.arange(6)
    slots.write_leaf("id", np.array([1]), torch.tensor([7]))
    assert slots.generations_of(everywhere).tolist() == [0, 0, 0, 0, 0, -1]
    slots.move(np.array([4]), np.array([1]))
    slots.shrink(3)
    assert slots.generations_of(everywhere).tolist() == [0, 1, 0, 1, 1, -1]
    slots.empty()
    assert slots.generations_of(everywhere).tolist() == [1, 2, 1, 2, 2, -1]


def test_items_that_a_storage_brings_along_count_as_written_once() -> None:
    storage = LazyTensorStorage(6)
    storage.set(range(4), make_items(4))
    slots = Slots(storage)
    assert not slots.has_generations
    assert slots.generations_of(torch.arange(-1, 6)).tolist() == [
        -1,
        0,
        0,
        0,
        0,
        -1,
        -1,
    ]
    slots.write(np.array([1]), np.array([0]), make_items(1))
    assert slots.has_generations
    assert slots.generations_of(torch.arange(-1, 6)).tolist() == [
        -1,
        0,
        1,
        0,
        0,
        -1,
        -1,
    ]


def test_those_that_torchrl_made_for_a_part_of_the_storage_are_continued() -> None:
    slots = fill(LazyTensorStorage(4), 2)
    setattr(slots.storage, generations.ATTRIBUTE, torch.tensor([5, 1]))
    slots.write(np.array([1, 2]), np.array([0, 1]), make_items(2))
    assert slots.generations_of(torch.arange(4)).tolist() == [5, 2, 0, -1]


def test_a_copy_is_restored() -> None:
    slots, other = make_slots(), fill(LazyTensorStorage(4), 4)
    saved = slots.save_generations()
    slots.write(np.array([1]), np.array([0]), make_items(1))
    assert saved is not None
    assert saved.tolist() == [1, 0, 0, -1]
    empty = Slots(LazyTensorStorage(4))
    # In slots that were written since, a number that no sample can have.
    for each, expected in (
        (slots, [2, 2, 1, -1]),
        (other, [1, 1, 1, 1]),
        (empty, [1, 0, 0, -1]),
    ):
        each.load_generations(saved)
        assert each.generations_of(torch.arange(4)).tolist() == expected
    other.load_generations(None)
    assert other.generations_of(torch.arange(4)).tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("restored", [False, True])
def test_processes_share_them_also_those_that_are_still_to_come(
    restored: bool,
) -> None:
    storage = LazyTensorStorage(4)
    slots = Slots(storage)
    slots.share_memory_()
    if restored:
        generations.restore(storage, torch.zeros(4, dtype=torch.int64), HOST)
        storage.set(range(4), make_items(4))
    else:
        storage.set(range(3), make_items(3))
        generations.ensure(storage, HOST, 3)
    before = slots.generations_of(torch.arange(4))
    child = multiprocessing.get_context("fork").Process(
        target=generations.advance_all, args=(storage, HOST, 4)
    )
    child.start()
    child.join()
    expected = torch.where(before >= 0, before + 1, before)
    assert slots.generations_of(torch.arange(4)).tolist() == expected.tolist()
