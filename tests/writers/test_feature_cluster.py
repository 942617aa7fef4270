"""FSS-Clust decides as the algorithm written out, item by item."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    PrioritizedSampler,
    RandomSampler,
    SamplerWithoutReplacement,
    TensorStorage,
)

from info_replay import (
    FeatureClusterWriter,
    SelectiveReplayBuffer,
)
from info_replay.writers import feature_cluster
from info_replay.writers.feature_cluster import distances

from .reference import chunkings, examples, kept_ids

Point = tuple[float, ...]
STORAGES: dict[str, Callable[[int], Any]] = {
    "tensor": LazyTensorStorage,
    "memmap": LazyMemmapStorage,
}


def as_stream(points: Sequence[Sequence[float]], first: int = 0) -> TensorDict:
    """Items with these features and numbers from ``first`` on."""
    features = torch.tensor(points, dtype=torch.float64)
    return TensorDict(
        {"id": first + torch.arange(len(points)), "feature": features},
        batch_size=[len(points)],
    )


def on_a_line(*places: float, first: int = 0) -> TensorDict:
    return as_stream([[place] for place in places], first)


def make_points(kind: str, count: int, seed: int, width: int = 2) -> list[list[float]]:
    """Points of which many are near, equal or at the same distance from others."""
    draw = np.random.default_rng(seed)
    if kind == "uniform":
        points = draw.random((count, width))
    elif kind == "clusters":
        centers = 20 * draw.random((6, width))
        points = centers[draw.integers(6, size=count)] + draw.normal(
            size=(count, width)
        )
    elif kind == "copies":
        points = draw.normal(size=(7, width))[draw.integers(7, size=count)]
    elif kind == "grid":  # distances that tie with the radius
        points = draw.integers(5, size=(count, width)).astype(float)
    else:  # ever farther apart, so that the radius doubles again and again
        points = draw.normal(size=(count, width)) * 1.2 ** np.arange(count)[:, None]
    return [[float(number) for number in point] for point in points]


KINDS = ("uniform", "clusters", "copies", "grid", "growing")


def make_buffer(capacity: int, **options: Any) -> SelectiveReplayBuffer:
    storage = options.pop("storage", None)
    return SelectiveReplayBuffer(
        None if storage else capacity,
        storage=storage,
        writer=FeatureClusterWriter(),
        batch_size=options.pop("batch_size", 4),
        generator=torch.Generator().manual_seed(0),
        **options,
    )


# -- the algorithm, written out -------------------------------------------------------


class Reference:
    """FSS-Clust, one item at a time: points with their numbers, oldest first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.radius = 0.0
        self.memory: list[tuple[int, Point]] = []
        self.entered = 0
        self.clusterings = 0

    def offer(self, number: int, point: Sequence[float]) -> None:
        for _, other in self.memory:
            if math.dist(point, other) <= self.radius:
                return
        self.memory.append((number, tuple(point)))
        self.entered += 1
        if len(self.memory) > self.capacity:
            self.cluster()

    def cluster(self) -> None:
        self.clusterings += 1
        if self.radius == 0:
            apart = [
                math.dist(one, other)
                for (_, one), (_, other) in itertools.combinations(self.memory, 2)
            ]
            self.radius = min((d for d in apart if d > 0), default=0.0)
        else:
            self.radius *= 2
        while True:
            stay: list[tuple[int, Point]] = []
            for number, point in self.memory:
                if all(math.dist(point, other) > self.radius for _, other in stay):
                    stay.append((number, point))
            if len(stay) <= self.capacity:
                self.memory = stay
                return
            self.radius *= 2

    def rewrite(self, number: int, point: Sequence[float]) -> None:
        self.memory = [
            (each, tuple(point) if each == number else old) for each, old in self.memory
        ]

    @property
    def ids(self) -> set[int]:
        return {number for number, _ in self.memory}


def assert_agrees(
    buffer: SelectiveReplayBuffer,
    reference: Reference,
    batch: TensorDict,
    slots: torch.Tensor,
) -> None:
    """Memory, radius, counts and returned slots are those of the algorithm."""
    memory = {
        int(number): tuple(point.tolist())
        for number, point in zip(buffer[:]["id"], buffer[:]["feature"], strict=True)
    }
    assert memory == dict(reference.memory)
    assert len(buffer) == len(reference.memory)
    assert buffer.writer.radius == pytest.approx(reference.radius, rel=1e-12)
    assert buffer.reservoir_count == reference.entered
    for number, slot in zip(batch["id"].tolist(), slots.tolist(), strict=True):
        assert (slot >= 0) == (number in reference.ids)
        assert slot < 0 or int(buffer[slot]["id"]) == number


@pytest.mark.parametrize("kind", KINDS)
@given(
    capacity=st.integers(1, 20),
    width=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
    sizes=chunkings(60),
)
@examples(15)
def test_every_decision_is_that_of_the_algorithm(
    kind: str, capacity: int, width: int, seed: int, sizes: list[int]
) -> None:
    buffer, reference = make_buffer(capacity), Reference(capacity)
    points = make_points(kind, 60, seed, width)
    for batch in as_stream(points).split(sizes):
        slots = buffer.extend(batch.clone())
        for number in batch["id"].tolist():
            reference.offer(number, points[number])
        assert_agrees(buffer, reference, batch, slots)


@pytest.mark.parametrize("batch_size", [1, 7, 30])
@pytest.mark.parametrize("capacity", [2, 12])
@pytest.mark.parametrize(
    ("kind", "seed"), [("uniform", 0), ("clusters", 1), ("grid", 2)]
)
def test_every_decision_is_that_of_the_algorithm_with_features_that_change(
    kind: str, capacity: int, batch_size: int, seed: int
) -> None:
    """Written-back features count, those of samples that are stale by then do not."""
    buffer, reference = make_buffer(capacity), Reference(capacity)
    points = make_points(kind, 60, seed)
    draw = np.random.default_rng(seed)
    for batch in as_stream(points).split(batch_size):
        sample = buffer.sample() if len(buffer) else None
        slots = buffer.extend(batch.clone())
        for number in batch["id"].tolist():
            reference.offer(number, points[number])
        assert_agrees(buffer, reference, batch, slots)
        if sample is None:
            continue
        stayed = sample["index_generation"] == buffer.writer.generations_of(
            sample["index"]
        )
        sample["feature"] = sample["feature"] + torch.from_numpy(
            draw.integers(-1, 2, size=sample["feature"].shape)
        )
        buffer.update_tensordict_priority(sample)
        for number, feature, live in zip(
            sample["id"].tolist(), sample["feature"].tolist(), stayed, strict=True
        ):
            if live:
                assert number in reference.ids
                reference.rewrite(number, feature)
        nothing = batch[:0]
        assert_agrees(buffer, reference, nothing, slots[:0])


def test_the_comparison_covers_what_it_should() -> None:
    """Memories that overflow several times, shrink and go on growing."""
    reference = Reference(12)
    sizes = []
    for number, point in enumerate(make_points("growing", 80, 0)):
        reference.offer(number, point)
        sizes.append(len(reference.memory))
    assert reference.clusterings > 2
    steps = np.diff(sizes)
    assert steps.min() < -1
    assert (steps[steps.argmin() :] == 1).any()


@pytest.mark.parametrize("kind", KINDS)
@given(
    block=st.integers(1, 30),
    capacity=st.integers(1, 20),
    seed=st.integers(0, 100),
    sizes=chunkings(60),
)
@examples(8)
def test_neither_batches_nor_blocks_matter(
    kind: str, block: int, capacity: int, seed: int, sizes: list[int]
) -> None:
    points = make_points(kind, 60, seed)
    one, whole = make_buffer(capacity), make_buffer(capacity)
    whole.extend(as_stream(points))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature_cluster, "_BLOCK", block)
        for batch in as_stream(points).split(sizes):
            slots = one.extend(batch.clone())
            kept = slots >= 0
            assert torch.equal(one[:]["id"][slots[kept]], batch["id"][kept])
    assert sorted(kept_ids(one)) == sorted(kept_ids(whole))
    assert one.writer.radius == whole.writer.radius
    assert one.reservoir_count == whole.reservoir_count


def test_items_are_clustered_in_the_order_of_their_arrival_wherever_they_are() -> None:
    buffer = make_buffer(3)
    buffer.extend(on_a_line(0, 1, 5))
    buffer.extend(on_a_line(9, first=3))
    assert kept_ids(buffer) == [0, 3, 2]  # 9 has the slot of 1
    # The radius becomes 4, with which 5 and 9 cannot both stay; 5 is older.
    buffer.extend(on_a_line(13, first=4))
    assert buffer.writer.radius == 4.0
    assert kept_ids(buffer) == [0, 4, 2]


def test_stored_points_that_become_one_do_not_count_as_the_smallest_distance() -> None:
    buffer = make_buffer(3)
    buffer.extend(on_a_line(0, 1, 5))
    sample = buffer[:].clone()
    sample["index"] = torch.arange(3)
    sample["feature"] = torch.tensor([[5.0], [5.0], [5.0]], dtype=torch.float64)
    buffer.update_features(sample)
    buffer.extend(on_a_line(7, first=3))
    assert buffer.writer.radius == 2.0
    assert kept_ids(buffer) == [0]


def test_a_memory_of_one_slot() -> None:
    buffer = make_buffer(1)
    assert buffer.extend(on_a_line(0, 3, 4, 10)).tolist() == [0, -1, -1, -1]
    assert buffer.writer.radius == 12.0
    assert buffer.extend(on_a_line(13, first=4)).tolist() == [-1]
    assert buffer.writer.radius == 24.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_features_of_any_precision_are_compared_in_double(dtype: torch.dtype) -> None:
    points = make_points("uniform", 60, 0)
    stream = as_stream(points)
    stream["feature"] = stream["feature"].to(dtype)
    buffer, reference = make_buffer(8), Reference(8)
    for batch in stream.split(7):
        buffer.extend(batch.clone())
        for number, point in zip(batch["id"], batch["feature"].double(), strict=True):
            reference.offer(int(number), point.tolist())
    assert set(kept_ids(buffer)) == reference.ids
    assert buffer.writer.radius == pytest.approx(reference.radius, rel=1e-12)
    assert buffer[:]["feature"].dtype == dtype


# -- clustering -----------------------------------------------------------------------


def test_distances_are_those_of_pairs_and_exactly_0_of_equal_points() -> None:
    points = torch.randn(30, 40, generator=torch.Generator().manual_seed(0))
    table = distances(points + 1e4, points + 1e4)
    assert table.diagonal().eq(0).all()
    assert torch.equal(table, table.T)
    pairs = (points + 1e4).double().tolist()
    expected = [[math.dist(a, b) for b in pairs] for a in pairs]
    np.testing.assert_allclose(table.numpy(), expected, rtol=1e-12)
    # As they are part by part: a pair has the same distance in any batch.
    assert torch.equal(
        distances((points + 1e4)[3:9], (points + 1e4)[20:]), table[3:9, 20:]
    )


# -- samples and the memory that shrinks ----------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
def test_a_sample_from_before_a_clustering_reaches_only_what_stayed(
    storage: str,
) -> None:
    buffer = make_buffer(6, storage=STORAGES[storage](6))
    buffer.extend(on_a_line(0, 0.5, 1, 1.5, 16, 24))
    index = torch.arange(6)
    sample = buffer[index].clone()
    sample["index"] = index
    sample["index_generation"] = buffer.writer.generations_of(index)
    buffer.extend(on_a_line(2, first=6))  # the radius becomes 0.5: 0, 1, 2, 16 and 24
    assert buffer.writer.radius == 0.5
    # Of 6 slots, 0, 2 and 4 keep their items, 1 and 3 get others, 5 is given up.
    assert kept_ids(buffer) == [0, 5, 2, 6, 4]
    expected = buffer[:]["feature"].clone()
    sample["feature"] = sample["feature"] + 100
    buffer.update_tensordict_priority(sample)
    expected[[0, 2, 4]] += 100
    assert torch.equal(buffer[:]["feature"], expected)
    # The item that moved is not lost: a sample of its new slot reaches it.
    again = buffer[torch.tensor([1])].clone()
    again["index"] = torch.tensor([1])
    again["index_generation"] = buffer.writer.generations_of(again["index"])
    again["feature"] = again["feature"] - 7
    buffer.update_features(again)
    assert buffer[1]["feature"].tolist() == [17.0]
    # Nor does a slot that is taken up again belong to the old sample.
    buffer.extend(on_a_line(-50, first=7))
    assert int(buffer[5]["id"]) == 7
    buffer.update_features(sample)
    assert buffer[5]["feature"].tolist() == [-50.0]


def test_a_slot_that_is_out_of_use_takes_no_features() -> None:
    buffer = make_buffer(6)
    buffer.extend(on_a_line(0, 0.5, 1, 1.5, 16, 24))
    buffer.extend(on_a_line(2, first=6))
    assert len(buffer) == 5
    revision = buffer.writer.slots.revision
    for extra in ({}, {"index_generation": buffer.writer.generations_of(5)[None]}):
        sample = on_a_line(0).set("index", torch.tensor([5])).update(extra)
        with pytest.raises(IndexError, match="from 0 to 4, got 5 for item 0"):
            buffer.update_features(sample)
    assert buffer.writer.slots.revision == revision


@pytest.mark.parametrize("sampler", [RandomSampler, SamplerWithoutReplacement])
def test_samplers_follow_a_memory_that_shrinks(sampler: Any) -> None:
    buffer = make_buffer(10, sampler=sampler(), batch_size=3)
    points = make_points("growing", 60, 0)
    sizes = []
    for batch in as_stream(points).split(3):
        buffer.extend(batch.clone())
        sizes.append(len(buffer))
        for _ in range(2):
            sample = buffer.sample(min(3, len(buffer)))
            assert int(sample["index"].max()) < len(buffer)
            expected = [points[number] for number in sample["id"].tolist()]
            assert sample["feature"].tolist() == expected
    assert min(np.diff(sizes)) < 0


@pytest.mark.parametrize("prefetch", [None, 2])
def test_sampling_without_replacement_visits_what_is_left_once(
    prefetch: int | None,
) -> None:
    buffer = make_buffer(
        6, sampler=SamplerWithoutReplacement(), batch_size=1, prefetch=prefetch
    )
    buffer.extend(on_a_line(0, 0.5, 1, 1.5, 16, 24))
    if prefetch is None:
        buffer.sample()
    buffer.extend(on_a_line(2, first=6))
    visited = [int(buffer.sample()["index"]) for _ in range(5)]
    assert sorted(visited) == [0, 1, 2, 3, 4]


def test_priorities_are_refused_when_the_buffer_is_built() -> None:
    sampler = PrioritizedSampler(6, alpha=0.7, beta=0.9)
    with pytest.raises(ValueError, match="FeatureClusterWriter.*PrioritizedS.*Random"):
        make_buffer(6, sampler=sampler)


# -- storages that bring items, emptying ----------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_memory_that_came_along_is_the_beginning_of_the_stream(kind: str) -> None:
    points = make_points(kind, 60, 1)
    stream = as_stream(points)
    # Items in one place are kept apart only if a storage brings them.
    first = {tuple(point): number for number, point in enumerate(points[:8])}
    rows = torch.tensor(sorted(first.values()))
    preloaded = make_buffer(8, storage=TensorStorage(stream[rows].clone()))
    grown = make_buffer(len(rows))
    grown.extend(stream[rows].clone())
    for batch in stream[8:].split(7):
        slots = preloaded.extend(batch.clone())
        assert torch.equal(slots, grown.extend(batch.clone()))
    assert kept_ids(preloaded) == kept_ids(grown)
    assert preloaded.writer.radius == grown.writer.radius


# -- bad input ------------------------------------------------------------------------


def spoiled(value: float, row: int) -> TensorDict:
    batch = as_stream(make_points("uniform", 12, 5))
    batch["feature"][row, 1] = value
    return batch


BAD = {
    "nan": (spoiled(math.nan, 3), "'feature' must be finite, got nan for item 3"),
    "inf": (spoiled(math.inf, 11), "must be finite, got inf for item 11"),
    "huge": (spoiled(-1e200, 11), r"up to 1e\+200, too large"),
}


@pytest.mark.parametrize("block", [5, 512])
@pytest.mark.parametrize("offered", [0, 40])
@pytest.mark.parametrize("case", BAD)
def test_bad_items_of_a_block_refuse_the_whole_batch(
    case: str, offered: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_cluster, "_BLOCK", block)
    batch, message = BAD[case]
    buffer = make_buffer(8)
    if offered:
        buffer.extend(as_stream(make_points("clusters", offered, 6)))
    before = (kept_ids(buffer), buffer.writer.radius, buffer.reservoir_count)
    with pytest.raises(ValueError, match=message):
        buffer.extend(batch.clone())
    assert (kept_ids(buffer), buffer.writer.radius, buffer.reservoir_count) == before
    assert buffer.write_count == offered


def test_features_need_not_be_of_any_size_but_computable() -> None:
    buffer = make_buffer(2)
    buffer.extend(as_stream([[1e150, 0.0], [-1e150, 1e150], [0.0, -1e150]]))
    assert math.isfinite(buffer.writer.radius)
    buffer.empty()
    buffer.extend(as_stream([[1e-150, 0.0], [0.0, 0.0], [0.0, 3e-150], [1.0, 1.0]]))
    assert len(buffer) <= 2
    assert 0 < buffer.writer.radius < 1


@pytest.mark.parametrize("left", [0, 4])
def test_items_that_others_add_or_remove_are_noticed(left: int) -> None:
    buffer = make_buffer(6)
    buffer.extend(as_stream(make_points("growing", 40, 0)))
    buffer.storage._len = left
    if left:
        buffer.storage.set(torch.arange(left), as_stream(make_points("grid", left, 1)))
    for batch in as_stream(make_points("clusters", 40, 2)).split(8):
        slots = buffer.extend(batch)
        kept = slots >= 0
        assert buffer[:]["id"][slots[kept]].equal(batch["id"][kept])
        assert len(buffer) <= 6
