"""Items are stored as they are, whatever they are made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    TensorDictReplayBuffer,
    TensorStorage,
)

from info_replay.decision import keep_last, last_rows
from info_replay.storage.entries import check_schema
from info_replay.storage.slots import Slots

from .helpers import STORAGES, assert_whole, fill, for_each_storage, ids, make_items

TYPES = [
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
]


def store(values: torch.Tensor, storage: type = LazyTensorStorage) -> torch.Tensor:
    """Write some rows side by side, then some here and there; gives what is stored."""
    slots = Slots(storage(5))
    items = TensorDict({"x": values}, batch_size=[len(values)])
    slots.write(np.arange(4), np.arange(4), slots.admit(items[:4]))
    slots.write(np.array([4, 1]), np.array([5, 8]), slots.admit(items))
    stored: torch.Tensor = slots.read(slice(0, 5))["x"]
    assert torch.equal(stored, values[[0, 8, 2, 3, 5]])
    return stored


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_items_of_every_type_are_stored(dtype: torch.dtype) -> None:
    values = (5 * torch.rand(9, 2, 3)).to(dtype)
    assert store(values).dtype == dtype
    if not dtype.is_complex:  # which tensordict does not map
        assert store(values, LazyMemmapStorage).dtype == dtype


def test_items_with_gradients_are_stored_without() -> None:
    values = torch.rand(9, 2, requires_grad=True)
    assert not store(values * 2).requires_grad


def test_views_that_are_still_to_be_resolved_are_stored() -> None:
    values = torch.rand(9, 2, dtype=torch.complex64).conj().imag
    assert values.is_neg()
    store(values)


@pytest.mark.parametrize("how", ["write", "write_leaf", "move"])
def test_autograd_notices_that_what_it_needs_was_overwritten(how: str) -> None:
    slots = Slots(LazyTensorStorage(4))
    items = TensorDict({"x": torch.rand(4, 2)}, batch_size=[4])
    places = np.arange(4)
    slots.write(places, places, items)
    weights = torch.ones(2, requires_grad=True)
    loss = (slots.read(slice(0, 4))["x"] * weights).sum()
    if how == "write":
        slots.write(places[1:3], places[:2], items)
    elif how == "write_leaf":
        slots.write_leaf("x", places, items["x"])
    else:
        slots.move(places[:1], places[3:])
    with pytest.raises(RuntimeError, match="inplace operation"):
        loss.backward()


def test_a_view_of_the_memory_is_read_before_it_is_written() -> None:
    slots = fill(LazyTensorStorage(5), 5)
    view = slots.read(slice(0, 4))["id"]
    slots.write_leaf("id", np.arange(1, 5), view)
    assert ids(slots) == [0, 0, 1, 2, 3]


@for_each_storage
def test_moving_copies_whole_items(storage: str) -> None:
    slots = fill(STORAGES[storage](8), 6)
    before = slots.revision
    slots.move(np.array([], dtype=np.int64), np.array([], dtype=np.int64))
    assert slots.revision == before
    slots.move(np.array([5, 4]), np.array([1, 6]))
    assert slots.revision > before
    assert ids(slots) == [0, 5, 2, 3, 4, 5, 4]  # one more slot is in use
    assert_whole(slots.read(slice(0, 7)))


@for_each_storage
def test_shrinking_gives_up_the_last_slots(storage: str) -> None:
    slots = fill(STORAGES[storage](8), 6)
    before = slots.revision
    slots.shrink(6)
    slots.shrink(7)  # never grows
    assert (len(slots), slots.revision) == (6, before)
    slots.shrink(2)
    assert slots.revision > before
    assert len(slots) == len(slots.storage) == 2
    slots.write(np.array([2]), np.array([0]), make_items(1, 50))
    assert ids(slots) == [0, 1, 50]


def test_the_revision_moves_with_every_write_whoever_wrote() -> None:
    storage = LazyTensorStorage(6)
    slots, other = fill(storage, 4), Slots(storage)
    items, place = make_items(1, 9), np.array([2])
    seen = [slots.revision]
    for write in (
        lambda: slots.write(place, np.array([0]), items),
        lambda: slots.write_leaf("id", place, torch.tensor([7])),
        lambda: other.write(place, np.array([0]), items),
        lambda: storage.set(3, items[0]),
        lambda: TensorDictReplayBuffer(storage=storage).extend(items),
    ):
        write()
        seen.append(slots.revision)
        assert slots.revision == seen[-1]  # asking changes nothing
    assert seen == sorted(set(seen))


# -- which item holds a slot -----------------------------------------------------------


@given(places=st.lists(st.integers(-1, 12), min_size=1, max_size=40))
def test_the_last_item_that_was_given_a_slot_has_it(places: list[int]) -> None:
    array = np.array(places)
    expected = [
        slot if slot not in places[row + 1 :] else -1 for row, slot in enumerate(places)
    ]
    assert keep_last(array).tolist() == expected
    rows = [row for row, slot in enumerate(expected) if slot >= 0]
    assert last_rows(array).tolist() == rows
    assert array.tolist() == places


# -- what an item is -------------------------------------------------------------------


def test_a_schema_names_shape_and_type_of_each_entry() -> None:
    assert Slots(LazyTensorStorage(3)).schema() == {}
    schema = fill(LazyTensorStorage(3), 2).schema()
    assert schema == {"id": "int64[]", "next.state": "float32[2]", "done": "bool[]"}
    check_schema(schema, schema)
    check_schema({}, schema)
    check_schema(schema, {})
    for other, message in (
        ({**schema, "id": "int32[]"}, r"'id' as int32\[\] into one .* as int64\[\]"),
        ({**schema, "new": "bool[]"}, r"'new' as bool\[\] into .* as nothing"),
        ({"id": "int64[]"}, "'done' as nothing into"),
    ):
        with pytest.raises(ValueError, match=message):
            check_schema(other, schema)


def test_storages_without_slots_of_single_items_are_refused() -> None:
    with pytest.raises(TypeError, match="LazyMemmapStorage, got ListStorage"):
        Slots(ListStorage(3))
    with pytest.raises(ValueError, match="ndim=1, got ndim=2"):
        Slots(LazyTensorStorage(3, ndim=2))
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        Slots(LazyTensorStorage(0))
    with pytest.raises(TypeError, match="this storage holds a Tensor"):
        Slots(TensorStorage(torch.zeros(3, 2)))
