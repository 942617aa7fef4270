"""Items that go leave no gaps: others move, and nobody takes one for another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict, TensorDictBase
from torchrl.data import LazyMemmapStorage, LazyTensorStorage, TensorStorage

from info_replay import SelectiveReplayBuffer
from info_replay.writers.regrouping import (
    Places,
    Regrouping,
    RegroupingWriter,
    arrange,
)
from info_replay.storage.slots import Slots

from ..buffer.helpers import complete_state, differences
from .reference import chunkings, examples, kept_ids

STORAGES: dict[str, Callable[[int], Any]] = {
    "tensor": LazyTensorStorage,
    "memmap": LazyMemmapStorage,
}
for_each_storage = pytest.mark.parametrize("storage", STORAGES)


def make_items(count: int, first: int = 0) -> TensorDict:
    """Items with entries of several types, also nested ones."""
    numbers = first + torch.arange(count)
    return TensorDict(
        {
            "id": numbers,
            "next": TensorDict(
                {"state": torch.stack([numbers, -numbers], 1).float()},
                batch_size=[count],
            ),
            "done": numbers % 2 == 0,
        },
        batch_size=[count],
    )


def assert_whole(items: TensorDictBase) -> None:
    """Every entry of an item is its own."""
    expected = torch.stack([make_items(1, int(n))[0] for n in items["id"]])
    assert differences(items, expected) == []


class RandomWriter(RegroupingWriter):
    """Keeps a random part of what there is, as much as fits.

    It also keeps the number of the item in each slot, as policies do.
    """

    def __init__(self, block: int = 4, share: float = 0.7) -> None:
        super().__init__()
        self.block, self.share = block, share
        self.numbers: list[int] = []
        self.draw = np.random.default_rng(0)

    def _blocks(self, count: int) -> list[slice]:
        starts = range(0, count, self.block)
        return [slice(start, min(start + self.block, count)) for start in starts]

    def _decide(self, data: TensorDictBase) -> Regrouping:
        size, count = len(self.slots), len(data)
        stay = np.flatnonzero(self.draw.random(size + count) < self.share)
        if not stay.size:
            stay = np.array([self.draw.integers(size + count)])
        stay = np.sort(self.draw.permutation(stay)[: self.slots.capacity])
        numbers = [*self.numbers, *data["id"].tolist()]

        def commit(sources: Places) -> None:
            points = np.where(sources >= 0, sources, size - 1 - sources)
            self.numbers = [numbers[point] for point in points]

        return Regrouping(stay[stay < size], stay[stay >= size] - size, commit)


# -- where items go -------------------------------------------------------------------


@st.composite
def choices(draw: st.DrawFn) -> tuple[Places, Places]:
    """Slots of items that stay and rows that come in, both in order."""
    kept = draw(st.sets(st.integers(0, 30), max_size=20))
    rows = draw(st.sets(st.integers(0, 30), max_size=20))
    return (
        np.array(sorted(kept), dtype=np.int64),
        np.array(sorted(rows), dtype=np.int64),
    )


@given(choice=choices())
@examples(300)
def test_every_item_gets_one_of_the_first_slots(choice: tuple[Places, Places]) -> None:
    kept, rows = choice
    sources = arrange(kept, rows)
    assert sources.dtype == np.int64
    assert len(sources) == len(kept) + len(rows)
    assert sorted(sources.tolist()) == sorted([*kept.tolist(), *(-1 - rows).tolist()])


@given(choice=choices())
@examples(300)
def test_only_items_beyond_the_new_size_move(choice: tuple[Places, Places]) -> None:
    kept, rows = choice
    sources = arrange(kept, rows)
    size = len(sources)
    for slot in kept[kept < size]:
        assert sources[slot] == slot
    places = np.arange(size)
    moved = np.flatnonzero((sources >= 0) & (sources != places))
    # No arrangement moves fewer: those beyond the end must move, and no others do.
    assert len(moved) == (kept >= size).sum()
    # So nothing is overwritten before it is read.
    assert (sources[moved] >= size).all()


@given(choice=choices())
@examples(100)
def test_rows_and_movers_keep_their_order(choice: tuple[Places, Places]) -> None:
    kept, rows = choice
    sources = arrange(kept, rows)
    new = -1 - sources[sources < 0]
    assert (np.diff(new) > 0).all()
    assert np.array_equal(new, rows)


def test_nothing_at_all_needs_no_slots() -> None:
    nothing = np.array([], dtype=np.int64)
    assert arrange(nothing, nothing).tolist() == []
    assert arrange(np.array([7]), nothing).tolist() == [7]


# -- slots ----------------------------------------------------------------------------


@for_each_storage
def test_moving_copies_whole_items(storage: str) -> None:
    slots = Slots(STORAGES[storage](8))
    slots.write(np.arange(8), np.arange(8), make_items(8))
    before = slots.revision
    slots.move(np.array([7, 4]), np.array([1, 2]))
    assert slots.revision > before
    assert slots.storage[:]["id"].tolist() == [0, 7, 4, 3, 4, 5, 6, 7]
    assert_whole(slots.storage[:])


@for_each_storage
def test_shrinking_gives_up_the_last_slots(storage: str) -> None:
    slots = Slots(STORAGES[storage](8))
    slots.write(np.arange(6), np.arange(6), make_items(6))
    before = slots.revision
    slots.shrink(6)
    slots.shrink(7)  # never grows
    assert (len(slots), slots.revision) == (6, before)
    slots.shrink(2)
    assert slots.revision > before
    assert (len(slots), len(slots.storage[:])) == (2, 2)
    slots.write(np.array([2]), np.array([0]), make_items(1, 50))
    assert slots.storage[:]["id"].tolist() == [0, 1, 50]


# -- writers --------------------------------------------------------------------------


@for_each_storage
@given(data=st.data())
@examples(40)
def test_returned_slots_hold_their_items_at_the_end_of_the_batch(
    storage: str, data: st.DataObject
) -> None:
    count = 60
    capacity = data.draw(st.integers(1, 12))
    writer = RandomWriter(
        block=data.draw(st.integers(1, 9)),
        share=data.draw(st.sampled_from([0.2, 0.6, 1.0])),
    )
    writer.draw = np.random.default_rng(data.draw(st.integers(0, 100)))
    buffer = SelectiveReplayBuffer(
        storage=STORAGES[storage](capacity), writer=writer, batch_size=2
    )
    for batch in make_items(count).split(data.draw(chunkings(count))):
        before = set(kept_ids(buffer))
        slots = buffer.extend(batch.clone())
        kept = slots >= 0
        assert torch.equal(buffer[:]["id"][slots[kept]], batch["id"][kept])
        after = set(kept_ids(buffer))
        assert after - before == set(batch["id"][kept].tolist())
        assert len(after) == len(buffer) <= capacity
        assert kept_ids(buffer) == writer.numbers
        assert_whole(buffer[:])
    assert buffer.write_count == count


def test_generations_move_on_where_an_item_changed_or_went() -> None:
    writer = RandomWriter(block=100)
    buffer = SelectiveReplayBuffer(10, writer=writer, batch_size=2)
    index = torch.arange(10)
    holding: dict[int, int] = {}
    seen = {"same": 0, "moved": 0, "given up": 0}
    for batch in make_items(200).split(5):
        before = buffer.writer.generations_of(index)
        old = dict(holding)
        buffer.extend(batch.clone())
        holding = dict(enumerate(kept_ids(buffer)))
        step = buffer.writer.generations_of(index) - before
        changed = [old.get(slot) != holding.get(slot) for slot in range(10)]
        assert step.tolist() == [int(each) for each in changed]
        seen["same"] += changed.count(False)
        seen["moved"] += sum(
            slot in old and old[slot] != number and number in old.values()
            for slot, number in holding.items()
        )
        seen["given up"] += len(old.keys() - holding.keys())
    assert min(seen.values()) > 5


def test_a_stale_sample_is_told_from_every_later_item() -> None:
    """A pair of slot and generation stands for one item, for ever."""
    buffer = SelectiveReplayBuffer(6, writer=RandomWriter(), batch_size=2)
    meaning: dict[tuple[int, int], int] = {}
    for batch in make_items(300).split(7):
        buffer.extend(batch.clone())
        stamps = buffer.writer.generations_of(torch.arange(len(buffer))).tolist()
        for place, number in enumerate(kept_ids(buffer)):
            assert meaning.setdefault((place, stamps[place]), number) == number
    assert len(meaning) > 100


class Keeper(RegroupingWriter):
    """Does what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: tuple[list[int], list[int]] = ([], [])

    def _decide(self, data: TensorDictBase) -> Regrouping:
        kept, rows = (np.array(places, dtype=np.int64) for places in self.told)
        return Regrouping(kept, rows, lambda sources: None)

    def keep(
        self, buffer: SelectiveReplayBuffer, kept: list[int], rows: list[int]
    ) -> list[int]:
        self.told = kept, rows
        slots: list[int] = buffer.extend(make_items(3, 100)).tolist()
        return slots


@pytest.fixture
def keeper() -> SelectiveReplayBuffer:
    buffer = SelectiveReplayBuffer(
        storage=TensorStorage(make_items(6)), writer=Keeper(), batch_size=2
    )
    assert kept_ids(buffer) == list(range(6))
    return buffer


def test_slots_can_be_given_up_without_anything_new(
    keeper: SelectiveReplayBuffer,
) -> None:
    assert keeper.writer.keep(keeper, [0, 1, 2], []) == [-1, -1, -1]
    assert kept_ids(keeper) == [0, 1, 2]
    stamps = keeper.writer.generations_of(torch.arange(6)).tolist()
    assert stamps == [0, 0, 0, 1, 1, 1]


def test_gaps_are_closed_by_the_last_items(keeper: SelectiveReplayBuffer) -> None:
    assert keeper.writer.keep(keeper, [1, 3, 5], []) == [-1, -1, -1]
    assert kept_ids(keeper) == [3, 1, 5]
    assert keeper.writer.keep(keeper, [1], [0, 2]) == [0, -1, 2]
    assert kept_ids(keeper) == [100, 1, 102]


def test_a_batch_that_changes_nothing_leaves_all_but_the_counts(
    keeper: SelectiveReplayBuffer,
) -> None:
    revision = keeper.writer.slots.revision
    before = complete_state(keeper)
    keeper.writer.keep(keeper, [0, 1, 2, 3, 4, 5], [])
    after = complete_state(keeper)
    assert keeper.writer.slots.revision == revision
    assert keeper.write_count == 3
    assert differences(before["memory"], after["memory"]) == []
    assert after["_writer"]["generations"] is None


def test_all_may_be_replaced_at_once(keeper: SelectiveReplayBuffer) -> None:
    assert keeper.writer.keep(keeper, [], [0, 1, 2]) == [0, 1, 2]
    assert kept_ids(keeper) == [100, 101, 102]
    assert_whole(keeper[:])
    assert keeper.reservoir_count == 6 + 3
