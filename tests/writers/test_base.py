"""A decision is carried out as it says, or refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict, TensorDictBase
from torchrl.data import LazyMemmapStorage, LazyTensorStorage

from info_replay import Decision, SelectionWriter, SelectiveReplayBuffer
from info_replay.decision import Places
from info_replay.random_stream import generator_of

from .reference import chunkings, examples, kept_ids


def places(*numbers: int) -> Places:
    return np.array(numbers, dtype=np.int64)


def nothing() -> None:
    """Commit nothing."""


def make_items(count: int, first: int = 0) -> TensorDict:
    numbers = first + torch.arange(count)
    return TensorDict(
        {"id": numbers, "twice": 2 * numbers[:, None]}, batch_size=[count]
    )


# -- compacting and following ----------------------------------------------------------


@st.composite
def decisions(draw: st.DrawFn) -> tuple[int, Decision]:
    """The size of a memory, and a decision that may be carried out there."""
    size, count = draw(st.integers(0, 20)), draw(st.integers(1, 20))
    rows = np.array(sorted(draw(st.sets(st.integers(0, count - 1)))), dtype=np.int64)
    if draw(st.booleans()):
        slots = np.full(count, -1)
        order = draw(st.permutations(range(size)))
        used = min(len(rows), draw(st.integers(0, size)))
        new = np.arange(size, size + len(rows) - used)
        slots[rows] = [*order[:used], *new]
        return size, Decision(slots)
    if draw(st.booleans()):  # the last items go
        return size, Decision(np.full(count, -1), size=draw(st.integers(0, size)))
    kept = draw(st.sets(st.integers(0, size - 1))) if size else set()
    return size, Decision.compacting(places(*sorted(kept)), rows, count, nothing)


def carried_out(memory: list[str], batch: list[str], decision: Decision) -> list[str]:
    """What a memory holds after a decision, from what its fields mean."""
    after = memory + [""] * len(batch)
    if decision.moves is not None:
        moved = [memory[source] for source in decision.moves[0]]
        for item, destination in zip(moved, decision.moves[1], strict=True):
            after[destination] = item
    for item, slot in zip(batch, decision.slots, strict=True):
        if slot >= 0:
            after[slot] = item
    used = len(memory) if decision.size is None else decision.size
    while used < len(after) and after[used] and decision.size is None:
        used += 1
    return after[:used]


@given(case=decisions())
@examples(100)
def test_following_tells_where_items_are(case: tuple[int, Decision]) -> None:
    size, decision = case
    memory = [f"old {slot}" for slot in range(size)]
    batch = [f"new {row}" for row in range(len(decision.slots))]
    after = carried_out(memory, batch, decision)
    assert "" not in after
    before = places(-1, *range(size))
    expected = [-1] + [after.index(item) if item in after else -1 for item in memory]
    assert decision.follow(before).tolist() == expected
    for item, slot in zip(batch, decision.slots, strict=True):
        assert slot == (after.index(item) if item in after else -1)


@given(
    kept=st.sets(st.integers(0, 30), max_size=20),
    rows=st.sets(st.integers(0, 30), max_size=20),
)
@examples(100)
def test_compacting_moves_no_more_than_it_must(kept: set[int], rows: set[int]) -> None:
    old, new = places(*sorted(kept)), places(*sorted(rows))
    decision = Decision.compacting(old, new, 31, nothing)
    assert decision.moves is not None
    size = len(kept) + len(rows)
    sources, destinations = decision.moves
    # Those beyond the end move; so nothing is overwritten before it is read.
    assert sources.tolist() == [slot for slot in sorted(kept) if slot >= size]
    assert set(destinations.tolist()) <= set(range(size)) - kept
    assert decision.size == size
    assert np.flatnonzero(decision.slots >= 0).tolist() == new.tolist()
    taken = [*destinations, *decision.slots[new], *old[old < size]]
    assert sorted(taken) == list(range(size))
    assert (np.diff(decision.slots[new]) > 0).all()  # rows keep their order


# -- what is refused -------------------------------------------------------------------

#: With three of five slots in use.
GOOD = {
    "nothing": Decision(places(-1, -1)),
    "free": Decision(places(3, 4)),
    "mixed": Decision(places(1, 3)),
    "in any order": Decision(places(4, 3)),
    "moved into a free slot": Decision(places(0, -1), moves=(places(0), places(3))),
    "compacted": Decision.compacting(places(0, 2), places(1), 2, nothing),
    "the last ones given up": Decision(places(-1, -1), size=1),
    "emptied": Decision.compacting(places(), places(), 2, nothing),
}
#: Those that move or give up slots; of others see tests/buffer/test_bad_input.py.
BAD = {
    "moved and written": (
        Decision(places(1, -1), moves=(places(0), places(1))),
        "slot 1 to several items",
    ),
    "moved into a gap": (
        Decision(places(-1, -1), moves=(places(0), places(4))),
        r"from slot 3 on .* got \[4\]",
    ),
    "moved below": (
        Decision(places(-1, -1), moves=(places(0), places(-1))),
        "moves|slots from 0 to 4",
    ),
    "moved from a slot that is not in use": (
        Decision(places(-1, -1), moves=(places(4), places(0))),
        r"items of the 3 slots in use.* from \[4\] to \[0\]",
    ),
    "written beyond the new size": (
        Decision(places(2, -1), moves=(places(), places()), size=1),
        "slots from 0 to 0, or -1, got 2",
    ),
    "a size below 0": (Decision(places(-1, -1), size=-1), "size"),
}


class Obedient(SelectionWriter):
    """Decides what it is told."""

    compacts = True
    told: Any = Decision(places(0, 1, 2))

    def __init__(self) -> None:
        super().__init__()
        self.marks = self.per_slot("marks", np.int64, empty=-1)

    def decide(self, batch: TensorDictBase) -> Decision:
        decision: Decision = self.told
        return decision


@pytest.fixture
def obedient() -> SelectiveReplayBuffer:
    """Three of five slots hold items 0, 1 and 2."""
    buffer = SelectiveReplayBuffer(5, writer=Obedient(), batch_size=2)
    buffer.extend(make_items(3))
    return buffer


@pytest.mark.parametrize("case", GOOD)
def test_a_decision_is_carried_out(case: str, obedient: SelectiveReplayBuffer) -> None:
    obedient.writer.told = GOOD[case]
    obedient.writer.marks.array[:3] = [0, 1, 2]
    memory = [str(number) for number in kept_ids(obedient)]
    slots = obedient.extend(make_items(2, 10))
    assert slots.tolist() == GOOD[case].slots.tolist()
    expected = carried_out(memory, ["10", "11"], GOOD[case])
    assert [str(number) for number in kept_ids(obedient)] == expected
    assert obedient.write_count == 5
    # Numbers of slots have moved with their items, and those of free slots are empty.
    marks = obedient.writer.marks.array.tolist()
    for slot, item in enumerate(expected):
        if item in memory:
            assert marks[slot] == int(item)
    assert marks[len(expected) :] == [-1] * (5 - len(expected))
    if len(obedient):
        assert torch.equal(obedient[:]["twice"][:, 0], 2 * obedient[:]["id"])


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_decision_is_refused_before_anything_is_written(
    case: str, obedient: SelectiveReplayBuffer
) -> None:
    obedient.writer.told, message = BAD[case]
    revision = obedient.writer.slots.revision
    with pytest.raises(ValueError, match=rf"Obedient.decide\(\).*({message})"):
        obedient.extend(make_items(2, 10))
    assert kept_ids(obedient) == [0, 1, 2]
    assert obedient.writer.slots.revision == revision
    assert obedient.write_count == 3


def test_a_decision_that_keeps_all_leaves_the_storage_alone(
    obedient: SelectiveReplayBuffer,
) -> None:
    obedient.writer.told = Decision.compacting(places(0, 1, 2), places(), 2, nothing)
    revision = obedient.writer.slots.revision
    obedient.extend(make_items(2, 10))
    assert obedient.writer.slots.revision == revision
    assert obedient.writer.generations_of(torch.arange(3)).tolist() == [0, 0, 0]


# -- writers that compact --------------------------------------------------------------


class RandomWriter(SelectionWriter):
    """Keeps a random part of what there is, and the number of the item in each slot."""

    compacts = True

    def __init__(self, block: int = 4, share: float = 0.7) -> None:
        super().__init__()
        self.block, self.share = block, share
        self.numbers = self.per_slot("numbers", np.int64, empty=-1)

    def split(self, count: int) -> list[slice]:
        starts = range(0, count, self.block)
        return [slice(start, min(start + self.block, count)) for start in starts]

    def decide(self, batch: TensorDictBase) -> Decision:
        size, count = len(self.slots), len(batch)
        draw = generator_of(self.seed, 3, self.draw_count)
        stay = np.flatnonzero(draw.random(size + count) < self.share)
        if not stay.size:
            stay = draw.integers(size + count, size=1)
        stay = np.sort(draw.permutation(stay)[: self.slots.capacity])
        kept, rows = stay[stay < size], stay[stay >= size] - size
        numbers = batch["id"].numpy()

        def commit() -> None:
            self.numbers.array[decision.slots[rows]] = numbers[rows]

        decision = Decision.compacting(kept, rows, count, commit)
        return decision


@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
@given(
    capacity=st.integers(1, 12),
    block=st.integers(1, 9),
    share=st.sampled_from([0.2, 0.6, 1.0]),
    seed=st.integers(0, 100),
    sizes=chunkings(60),
)
@examples(10)
def test_returned_slots_hold_their_items_at_the_end_of_the_batch(
    storage: Callable[[int], Any],
    capacity: int,
    block: int,
    share: float,
    seed: int,
    sizes: list[int],
) -> None:
    writer = RandomWriter(block, share)
    writer.seed = seed
    buffer = SelectiveReplayBuffer(
        storage=storage(capacity), writer=writer, batch_size=2
    )
    for batch in make_items(60).split(sizes):
        before = set(kept_ids(buffer))
        slots = buffer.extend(batch.clone())
        kept = slots >= 0
        assert torch.equal(buffer[:]["id"][slots[kept]], batch["id"][kept])
        after = set(kept_ids(buffer))
        assert after - before == set(batch["id"][kept].tolist())
        assert len(after) == len(buffer) <= capacity
        numbers = writer.numbers.array.tolist()
        assert numbers == kept_ids(buffer) + [-1] * (capacity - len(buffer))
        assert torch.equal(buffer[:]["twice"][:, 0], 2 * buffer[:]["id"])
    assert buffer.write_count == 60


def test_a_slot_and_its_generation_stand_for_one_item_for_ever() -> None:
    buffer = SelectiveReplayBuffer(9, writer=RandomWriter(100, 0.6), batch_size=2)
    buffer.writer.seed = 0
    everywhere = torch.arange(9)
    meaning: dict[tuple[int, int], int] = {}
    holding: dict[int, int] = {}
    moved = given_up = 0
    for batch in make_items(300).split(5):
        before, old = buffer.writer.generations_of(everywhere), dict(holding)
        buffer.extend(batch.clone())
        stamps = buffer.writer.generations_of(everywhere)
        holding = dict(enumerate(kept_ids(buffer)))
        # It moves on where an item changed or went, and nowhere else.
        changed = [old.get(slot) != holding.get(slot) for slot in range(9)]
        assert (stamps - before).tolist() == [int(each) for each in changed]
        for slot, number in holding.items():
            assert meaning.setdefault((slot, int(stamps[slot])), number) == number
            moved += number in old.values() and old.get(slot) != number
        given_up += len(old.keys() - holding.keys())
    assert min(len(meaning), moved, given_up) > 5


# -- what a policy may rely on ---------------------------------------------------------


class Recording(Obedient):
    """Notes what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def decide(self, batch: TensorDictBase) -> Decision:
        self.asked.append(("decide", self.draw_count, len(batch)))
        slots = len(self.slots) + np.arange(len(batch))
        slots[slots >= self.slots.capacity] = -1
        return Decision(slots, lambda: self.asked.append(("commit", len(self.slots))))

    def prepare(self, batch: TensorDictBase) -> None:
        self.asked.append("prepare")

    def adopt(self, items: TensorDictBase) -> None:
        self.asked.append(("adopt", items["id"].tolist()))

    def resync(self) -> None:
        self.asked.append("resync")


def test_what_is_committed_has_been_written_and_the_first_items_are_announced() -> None:
    writer = Recording()
    buffer = SelectiveReplayBuffer(3, writer=writer)
    buffer.extend(make_items(2))
    buffer.add(make_items(1)[0])
    buffer.extend(make_items(4))
    first = [("decide", 0, 2), ("commit", 2), "prepare"]
    rest = [("decide", 2, 1), ("commit", 3), ("decide", 3, 4), ("commit", 3)]
    assert writer.asked == first + rest


def test_items_of_others_are_adopted_once_and_later_writes_are_noticed() -> None:
    storage = LazyTensorStorage(3)
    storage.set(range(2), make_items(2))
    writer = Recording()
    buffer = SelectiveReplayBuffer(storage=storage, writer=writer)
    assert (buffer.reservoir_count, writer.draw_count, buffer.write_count) == (2, 2, 0)
    buffer.extend(make_items(1, 5))
    assert writer.asked[0] == ("adopt", [0, 1])
    writer.asked.clear()
    storage.set(0, make_items(1, 9)[0])
    buffer.extend(make_items(1, 6))
    assert writer.asked[0] == "resync"
    assert kept_ids(buffer) == [9, 1, 5]


class Following(Recording):
    """Keeps features, and does not follow new ones."""

    feature_key = "twice"

    def refresh(self, slots: Any, features: Any) -> bool:
        self.asked.append("refresh")
        return False

    def resync_features(self) -> None:
        self.asked.append("resync_features")


def test_features_alone_are_told_from_other_writes() -> None:
    writer = Following()
    buffer = SelectiveReplayBuffer(3, writer=writer)
    buffer.extend(make_items(3))
    sample = TensorDict(
        {"index": torch.arange(2), "twice": torch.zeros(2, 1).long()}, batch_size=[2]
    )

    def asked_after(*changes: Callable[[], object]) -> Any:
        for change in changes:
            change()
        writer.asked.clear()
        writer.catch_up()
        return writer.asked

    def write_back() -> None:
        buffer.update_features(sample)

    def replace() -> None:
        buffer[0] = make_items(1, 9)[0]

    assert asked_after(write_back) == ["resync_features"]
    assert asked_after() == []
    assert asked_after(write_back, write_back) == ["resync_features"]
    assert asked_after(replace) == ["resync"]
    assert asked_after(write_back, replace) == ["resync"]
    assert asked_after(replace, write_back) == ["resync"]


def test_random_numbers_are_those_of_the_items_to_come() -> None:
    writer = Recording()
    writer.seed = 3
    SelectiveReplayBuffer(9, writer=writer)
    first = writer.uniforms(5).copy()
    assert np.array_equal(writer.uniforms(5), first)
    writer.extend(make_items(2))
    assert np.array_equal(writer.uniforms(3), first[2:])


def test_a_writer_without_features_takes_none_back() -> None:
    buffer = SelectiveReplayBuffer(3, writer=Recording())
    buffer.extend(make_items(2))
    with pytest.raises(AttributeError, match="Recording does not keep features"):
        buffer.update_features(make_items(2))


def test_a_writer_without_a_storage_says_so() -> None:
    with pytest.raises(RuntimeError, match="Recording has no storage yet"):
        Recording().extend(make_items(2))
    with pytest.raises(AttributeError, match="'Recording' has no attribute 'other'"):
        Recording().other  # noqa: B018
