"""Items are stored as they are, whatever they are made of."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torchrl.data import LazyMemmapStorage, LazyTensorStorage

from info_replay import SelectiveReplayBuffer, make_replay_buffer

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
    """Offer values in three batches; gives those that were kept, and checks them."""
    buffer = make_replay_buffer("rs", storage=storage(4))
    kept = torch.full((4,), -1)
    for rows in torch.arange(len(values)).split(3):
        items = TensorDict({"x": values[rows]}, batch_size=[len(rows)])
        slots = buffer.extend(items)
        kept[slots[slots >= 0]] = rows[slots >= 0]
    stored: torch.Tensor = buffer[:]["x"]
    assert torch.equal(stored, values[kept])
    return stored


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
def test_items_of_every_type_are_stored(dtype: torch.dtype, storage: type) -> None:
    torch.manual_seed(0)
    if dtype.is_complex and storage is LazyMemmapStorage:
        pytest.skip("tensordict does not map complex numbers")
    values = (5 * torch.rand(9, 2, 3)).to(dtype)
    assert store(values, storage).dtype == dtype


def test_items_with_gradients_are_stored_without() -> None:
    values = torch.rand(9, 2, requires_grad=True)
    assert not store(values * 2).requires_grad


def test_views_that_are_still_to_be_resolved_are_stored() -> None:
    values = torch.rand(9, 2, dtype=torch.complex64).conj().imag
    assert values.is_neg()
    store(values)


@pytest.mark.parametrize("writes", ["batch", "features"])
def test_autograd_notices_that_what_it_needs_was_overwritten(writes: str) -> None:
    buffer = make_replay_buffer("infors", 4, num_classes=2)
    items = TensorDict(
        {"feature": torch.rand(4, 2), "target": torch.tensor([0, 1, 0, 1])},
        batch_size=[4],
    )
    buffer.extend(items)
    weights = torch.ones(2, requires_grad=True)
    loss = (buffer[:]["feature"] * weights).sum()
    if writes == "batch":
        while (buffer.extend(items) < 0).all():
            items = items.clone()
            items["feature"] = torch.rand(4, 2)
    else:
        items["index"] = torch.arange(4)
        buffer.update_features(items)
    with pytest.raises(RuntimeError, match="inplace operation"):
        loss.backward()


# -- generations -----------------------------------------------------------------------


@pytest.fixture
def buffer() -> SelectiveReplayBuffer:
    """Three of four slots, the first of them written twice."""
    buffer = make_replay_buffer("rs", 4)
    buffer.extend(TensorDict({"x": torch.arange(3)}, batch_size=[3]))
    buffer.writer._generations.advance(buffer.writer.slots, torch.tensor([0]))
    return buffer


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
    buffer: SelectiveReplayBuffer, index: int | torch.Tensor, expected: object
) -> None:
    found = buffer.writer.generations_of(index)
    assert found.dtype == torch.int64
    assert found.tolist() == expected


def test_what_is_told_of_generations_does_not_change(
    buffer: SelectiveReplayBuffer,
) -> None:
    told = buffer.writer.generations_of(torch.arange(3))
    buffer.writer._generations.advance(buffer.writer.slots, torch.tensor([2]))
    assert told.tolist() == [1, 0, 0]
