"""How a stream is cut into batches leaves no trace, for RS, WRS, CBRS and InfoRS."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from info_replay import (
    MIC,
    ClassBalancedReservoirWriter,
    EntropyReduction,
    InfoReservoirWriter,
    InformationGain,
    SelectiveReplayBuffer,
    WeightedReservoirWriter,
    make_replay_buffer,
)

from .reference import chunkings, examples, extend_all, kept_ids, make_stream

Make = Callable[[int, int], SelectiveReplayBuffer]


def policy(name: str, **options: Any) -> Make:
    def make(capacity: int, seed: int) -> SelectiveReplayBuffer:
        generator = torch.Generator().manual_seed(seed)
        return make_replay_buffer(name, capacity, generator=generator, **options)

    return make


CLASSES = 4

POLICIES: dict[str, Make] = {
    "RS": policy("rs"),
    "WRS": policy("wrs"),
    "CBRS": policy("cbrs", num_classes=CLASSES),
    "InfoRS": policy("infors", num_classes=CLASSES),
    "InfoRS, fading, strict": policy(
        "infors", num_classes=CLASSES, decay=0.95, gamma=0.3, criterion=MIC(eta=3.0)
    ),
    "InfoRS, IG, lenient": policy(
        "infors", num_classes=CLASSES, gamma=-0.3, criterion=InformationGain()
    ),
    "InfoRS, ER": policy(
        "infors", num_classes=CLASSES, decay=0.9, criterion=EntropyReduction()
    ),
}


def with_logits(stream: TensorDict) -> TensorDict:
    return stream.set("logits", 2 * stream["feature"][:, :3])


def counts(buffer: SelectiveReplayBuffer) -> dict[str, Any]:
    """The memory and all whole numbers that go with it."""
    writer = buffer.writer
    values: dict[str, Any] = {
        "memory": kept_ids(buffer),
        "write_count": buffer.write_count,
        "reservoir_count": buffer.reservoir_count,
    }
    if isinstance(writer, ClassBalancedReservoirWriter):
        values["stream_counts"] = writer.stream_counts.tolist()
        values["memory_counts"] = writer.memory_counts.tolist()
    return values


def sums(buffer: SelectiveReplayBuffer) -> list[float]:
    """What is summed over the stream: moments or weights."""
    writer = buffer.writer
    if isinstance(writer, InfoReservoirWriter):
        moments = writer.moments
        return [moments.weight, moments.mean, moments.deviation]
    if isinstance(writer, WeightedReservoirWriter):
        return [writer.total_weight]
    return []


def check_same(first: SelectiveReplayBuffer, second: SelectiveReplayBuffer) -> None:
    assert counts(first) == counts(second)
    assert sums(first) == pytest.approx(sums(second), rel=1e-9, abs=1e-9)


def last_holders(slots: Sequence[int], capacity: int) -> list[int]:
    """The last item that was given each slot, as ``extend`` told."""
    holders = {slot: item for item, slot in enumerate(slots) if slot >= 0}
    return [holders[slot] for slot in range(capacity) if slot in holders]


@pytest.mark.parametrize("name", POLICIES)
@given(
    capacity=st.integers(1, 30),
    count=st.integers(1, 70),
    feature_dim=st.integers(3, 20),
    distinct=st.sampled_from([None, None, 5]),
    seed=st.integers(0, 2**62),
    data=st.data(),
)
@examples(5)
def test_chunks_of_any_size_are_as_items_one_by_one(
    name, capacity, count, feature_dim, distinct, seed, data
):
    stream = with_logits(
        make_stream(
            data.draw(st.integers(0, 2**32)),
            count,
            feature_dim=feature_dim,
            num_classes=CLASSES,
            distinct=distinct,
        )
    )
    chunked, single = (POLICIES[name](capacity, seed) for _ in range(2))
    slots = extend_all(chunked, stream, data.draw(chunkings(count)))
    one_by_one = [single.add(item) for item in stream.unbind(0)]
    check_same(chunked, single)
    assert last_holders(slots, capacity) == kept_ids(chunked)
    assert last_holders(one_by_one, capacity) == kept_ids(single)


@pytest.mark.parametrize("name", ["RS", "WRS", "CBRS", "InfoRS"])
@pytest.mark.parametrize("feature_dim", [5, 410], ids=["primal", "kernel"])
def test_a_batch_larger_than_any_block_is_as_small_ones(name, feature_dim):
    stream = with_logits(
        make_stream(0, 900, feature_dim=feature_dim, num_classes=CLASSES)
    )
    at_once, in_parts = (POLICIES[name](270, 1) for _ in range(2))
    slots = extend_all(at_once, stream, [900])
    extend_all(in_parts, stream, [150] * 6)
    check_same(at_once, in_parts)
    assert last_holders(slots, 270) == kept_ids(at_once)
    assert sum(item >= 270 for item in kept_ids(at_once)) > 30


@pytest.mark.parametrize("name", ["RS", "WRS", "CBRS", "InfoRS"])
def test_seeds_decide(name):
    stream = with_logits(make_stream(3, 200, num_classes=CLASSES))
    first, second, other = (POLICIES[name](15, seed) for seed in (1, 1, 2))
    for buffer in (first, second, other):
        buffer.extend(stream.clone())
    assert kept_ids(first) == kept_ids(second)
    assert kept_ids(first) != kept_ids(other)


@pytest.mark.parametrize("name", ["RS", "WRS", "CBRS", "InfoRS"])
def test_sampling_in_between_leaves_no_trace(name):
    stream = with_logits(make_stream(4, 100, num_classes=CLASSES))
    sampled, left_alone = (POLICIES[name](15, 7) for _ in range(2))
    for part in stream.split(20):
        sampled.extend(part)
        sampled.sample(8)
        left_alone.extend(part.clone())
    check_same(sampled, left_alone)
