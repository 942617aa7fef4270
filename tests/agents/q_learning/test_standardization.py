"""Running statistics are those of everything so far, however it came."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tensordict import TensorDict
from torch import Tensor
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from agents.q_learning import RunningStandardization
from info_replay import InfoReservoirReplayBuffer
from tests.writers.reference import chunkings, examples

Buffer = TensorDictReplayBuffer
ROOM = 200


def make_buffer(kind: str = "torchrl") -> Buffer:
    if kind == "torchrl":
        return TensorDictReplayBuffer(
            storage=LazyTensorStorage(ROOM), transform=RunningStandardization()
        )
    return InfoReservoirReplayBuffer(ROOM, transform=RunningStandardization())


both_buffers = pytest.mark.parametrize("kind", ["torchrl", "infors"])


def statistics(buffer: Buffer) -> RunningStandardization:
    return next(
        part for part in buffer.transform if isinstance(part, RunningStandardization)
    )


def items(targets: NDArray[Any] | Tensor) -> TensorDict:
    target = torch.as_tensor(targets)
    feature = torch.ones(len(target), 2)
    return TensorDict(feature=feature, target=target, batch_size=[len(target)])


def numbers(seed: int, count: int, width: int = 3) -> NDArray[np.float32]:
    """Columns of all sizes."""
    random = np.random.default_rng(seed)
    scale, shift = 10.0 ** random.uniform(-2, 2, (2, width))
    return (shift + scale * random.normal(size=(count, width))).astype(np.float32)


@given(seed=st.integers(0, 2**32), count=st.integers(2, 60), data=st.data())
@examples(30)
def test_every_batch_is_standardized_by_all_so_far(
    seed: int, count: int, data: st.DataObject
) -> None:
    values = numbers(seed, count)
    buffer, stop = make_buffer(), 0
    for size in data.draw(chunkings(count)):
        start, stop = stop, stop + size
        buffer.extend(items(values[start:stop]))
        seen = values[:stop].astype(np.float64)
        deviation = seen.std(0)
        expected = (seen[start:] - seen.mean(0)) / np.where(deviation, deviation, 1)
        found = buffer[start:stop]["target"]
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    # How the numbers came in batches left no trace.
    held = statistics(buffer)
    assert held.count == count
    np.testing.assert_allclose(held.mean, seen.mean(0), rtol=1e-9)
    np.testing.assert_allclose(
        (held.squares / held.count).sqrt(), seen.std(0), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("constant", [0.0, 1.0, -0.1, 1e4])
def test_what_has_not_varied_is_0(constant: float) -> None:
    buffer = make_buffer()
    for size in (1, 3, 7):
        varying = torch.arange(size, dtype=torch.float32)
        column = torch.full((size,), constant)
        buffer.extend(items(torch.stack([column, varying], 1)))
    assert (buffer[:]["target"][:, 0] == 0).all()
    assert (buffer[:]["target"][1:, 1] != 0).any()


def test_a_constant_that_changes_counts_from_then_on() -> None:
    buffer = make_buffer()
    buffer.extend(items(torch.zeros(3, 1)))
    buffer.extend(items(torch.ones(1, 1)))
    # Mean 1/4, deviation sqrt(3)/4.
    assert buffer[:]["target"].flatten().tolist() == pytest.approx([0, 0, 0, 3**0.5])


def test_one_item_is_as_a_batch_of_one() -> None:
    values = numbers(0, 8)
    batches, single = make_buffer(), make_buffer()
    for row in values:
        batches.extend(items(row[None]))
        single.add(items(row[None])[0])
    assert single[:]["target"].equal(batches[:]["target"])


def test_a_sample_is_left_as_it_is() -> None:
    buffer = make_buffer()
    buffer.extend(items(numbers(0, 20)))
    before = statistics(buffer).state_dict()
    sample = buffer.sample(30)
    assert sample["target"].equal(buffer[:]["target"][sample["index"].flatten()])
    after = statistics(buffer).state_dict()
    assert all(after[name].equal(value) for name, value in before.items())


@pytest.mark.parametrize("first", [0, 10], ids=["at once", "later"])
def test_what_is_refused_leaves_no_trace(first: int) -> None:
    values = numbers(0, 20)
    spoilt, clean = make_buffer("infors"), make_buffer("infors")
    for buffer in (spoilt, clean) if first else ():
        buffer.extend(items(values[:first]))
    for wrong in (np.nan, np.inf, -np.inf):
        for rows in (slice(None), slice(1)):  # all are wrong, or one among good ones
            bad = 100 + numbers(1, 4)
            bad[rows] = wrong
            with pytest.raises(ValueError, match="'target' must be finite"):
                spoilt.extend(items(bad))
    for buffer in (spoilt, clean):
        buffer.extend(items(values[first:]))
    assert spoilt[:]["target"].equal(clean[:]["target"])


@pytest.mark.parametrize("width", [1, 2, 4])
def test_targets_of_another_width_are_refused_and_leave_no_trace(width: int) -> None:
    values, buffer = numbers(0, 20), make_buffer("infors")
    buffer.extend(items(values[:10]))
    before = statistics(buffer).state_dict()
    with pytest.raises(ValueError, match=f"must be 3 wide, got {width}"):
        buffer.extend(items(np.ones((5, width), np.float32)))
    after = statistics(buffer).state_dict()
    assert all(after[name].equal(value) for name, value in before.items())
    buffer.extend(items(values[10:]))


# -- saving ---------------------------------------------------------------------------


def save_and_load(how: str, saved: Buffer, into: Buffer, folder: Path) -> None:
    if how == "state_dict":
        into.load_state_dict(saved.state_dict())
    else:
        saved.dumps(folder / "saved")
        into.loads(folder / "saved")


both_ways = pytest.mark.parametrize("how", ["state_dict", "dumps"])


@both_buffers
@both_ways
def test_saved_statistics_continue_bit_for_bit(
    how: str, kind: str, tmp_path: Path
) -> None:
    values = numbers(5, 60)
    whole, parts, restored = (make_buffer(kind) for _ in range(3))
    for buffer in (whole, parts):
        buffer.extend(items(values[:20]))
        buffer.extend(items(values[20:33]))
    save_and_load(how, parts, restored, tmp_path)
    for buffer in (whole, restored):
        buffer.extend(items(values[33:40]))
        buffer.extend(items(values[40:]))
    assert len(whole) == 60
    assert restored[:]["target"].equal(whole[:]["target"])
    for name, value in statistics(whole).state_dict().items():
        assert statistics(restored).state_dict()[name].equal(value)


@both_buffers
def test_statistics_of_another_width_give_way(kind: str) -> None:
    saved, other = make_buffer(kind), make_buffer(kind)
    saved.extend(items(numbers(0, 20)))
    statistics(other).load_state_dict(
        statistics(make_filled(kind, width=5)).state_dict()
    )
    statistics(other).load_state_dict(statistics(saved).state_dict())
    assert statistics(other).mean.equal(statistics(saved).mean)


def make_filled(kind: str, width: int) -> Buffer:
    buffer = make_buffer(kind)
    buffer.extend(items(numbers(1, 9, width)))
    return buffer


def test_a_loaded_state_shares_nothing_with_the_saved_one() -> None:
    one, two = make_filled("infors", 3), make_buffer("infors")
    two.load_state_dict(one.state_dict())
    before = statistics(one).mean.clone()
    two.extend(items(numbers(3, 10)))
    assert statistics(one).mean.equal(before)


def test_statistics_without_frames_can_be_saved_too() -> None:
    used = make_filled("torchrl", 3)
    statistics(used).load_state_dict(RunningStandardization().state_dict())
    assert statistics(used).count == 0
    values = numbers(4, 10)
    fresh = make_buffer()
    fresh.extend(items(values))
    used.extend(items(values))
    assert used[9:19]["target"].equal(fresh[:]["target"])
