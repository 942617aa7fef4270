"""InfoRS: reservoir sampling among the informative items (Alg. 1)."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchrl.data import LazyMemmapStorage, LazyTensorStorage

from info_replay import (
    Criterion,
    InfoReservoirWriter,
    ReservoirWriter,
    SelectiveReplayBuffer,
    make_replay_buffer,
)
from info_replay.model import memory_posterior
from tests.model.helpers import assert_no_drift
from tests.reference import Memory

from .information import CRITERIA, Case
from .reference import (
    as_items,
    chunkings,
    examples,
    extend_all,
    kept_ids,
    make_buffer,
    make_stream,
)


@given(
    case=st.builds(
        Case,
        capacity=st.integers(1, 30),
        criterion=st.sampled_from(CRITERIA),
        gamma=st.sampled_from([-0.3, 0.0, 0.3, 1.0]),
        decay=st.sampled_from([None, 0.9, 0.99]),
        noise=st.sampled_from([0.3, 1.0]),
        jitter=st.sampled_from([0.1, 2.0]),
        num_classes=st.sampled_from([None, 1, 2, 5]),
        seed=st.integers(0, 2**62),
    ),
    count=st.integers(1, 120),
    feature_dim=st.integers(1, 30),
    num_outputs=st.integers(1, 3),
    distinct=st.sampled_from([None, None, 1, 7]),
    scale=st.sampled_from([0.1, 1.0, 10.0]),
    data=st.data(),
)
@examples(100)
def test_every_decision_is_that_of_algorithm_1(
    case: Case,
    count: int,
    feature_dim: int,
    num_outputs: int,
    distinct: int | None,
    scale: float,
    data: st.DataObject,
) -> None:
    stream = make_stream(
        data.draw(st.integers(0, 2**32)),
        count,
        feature_dim=feature_dim,
        num_classes=case.num_classes,
        num_outputs=num_outputs,
        distinct=distinct,
        scale=scale,
    )
    case.check(stream, data.draw(chunkings(count)))


@pytest.mark.parametrize("num_classes", [None, 5], ids=["regression", "classes"])
@pytest.mark.parametrize(
    ("form", "capacity", "feature_dim"), [("primal", 40, 6), ("kernel", 12, 30)]
)
def test_a_long_stream_at_once_in_both_forms(
    form: str, capacity: int, feature_dim: int, num_classes: int | None
) -> None:
    stream = make_stream(
        1, 1200, feature_dim=feature_dim, num_classes=num_classes, num_outputs=2
    )
    case = Case(capacity, gamma=0.3, decay=0.99, num_classes=num_classes)
    buffer, run = case.check(stream, [1200])
    assert buffer.posterior is not None
    assert buffer.posterior.form == form
    # All outcomes occur: refused by the threshold, by the reservoir, and kept.
    assert 100 < run.reservoir_count < 1100
    kept = sum(slot >= 0 for slot in run.slots[capacity:])
    assert 20 < kept < run.reservoir_count - capacity


@pytest.mark.parametrize("sizes", [[1] * 100, [100]], ids=["singly", "at once"])
@pytest.mark.parametrize(("capacity", "feature_dim"), [(1, 23), (5, 20), (30, 5)])
def test_large_features_cost_hardly_any_precision(
    capacity: int, feature_dim: int, sizes: list[int]
) -> None:
    stream = make_stream(1, 100, feature_dim=feature_dim, scale=30.0)
    Case(capacity, gamma=-0.3).check(stream, sizes, tolerance=1e-8)


@pytest.mark.parametrize("sizes", [[1100], [100, 500, 500]], ids=str)
def test_filling_and_selecting_in_blocks_makes_no_difference(sizes: list[int]) -> None:
    stream = make_stream(2, 1100, feature_dim=5, num_classes=5)
    _, run = Case(300, num_classes=5).check(stream, sizes)
    assert sum(slot >= 0 for slot in run.slots[300:]) > 100
    assert run.reservoir_count < 1000


def test_blocks_make_no_difference_in_the_kernel_form() -> None:
    stream = make_stream(3, 900, feature_dim=410, num_classes=4)
    at_once, in_parts = (Case(270, num_classes=4).buffer() for _ in range(2))
    extend_all(at_once, stream, [900])
    extend_all(in_parts, stream, [150] * 6)
    assert kept_ids(at_once) == kept_ids(in_parts)
    assert at_once.reservoir_count == in_parts.reservoir_count
    assert at_once.moments.state == pytest.approx(in_parts.moments.state, rel=1e-9)
    assert sum(item >= 270 for item in kept_ids(at_once)) > 30


@pytest.mark.parametrize("criterion", CRITERIA, ids=lambda pair: repr(pair[0]))
@pytest.mark.parametrize("gamma", [-0.3, 1.0])
def test_every_criterion_and_threshold_selects(criterion: Any, gamma: float) -> None:
    case = Case(8, criterion=criterion, gamma=gamma)
    _, run = case.check(make_stream(4, 120, num_outputs=2), [50, 50, 20])
    assert 8 < run.reservoir_count < 120


@pytest.mark.parametrize("decay", [None, 0.9])
@pytest.mark.parametrize("distinct", [1, 5])
def test_repeated_items_are_decided_alike(distinct: int, decay: float | None) -> None:
    stream = make_stream(5, 160, distinct=distinct)
    Case(4, decay=decay).check(stream, [32] * 5)


def test_a_threshold_out_of_reach_stores_what_fills_the_memory() -> None:
    buffer = Case(10, gamma=1e6).buffer()
    slots = buffer.extend(make_stream(6, 200))
    assert slots.tolist() == [*range(10), *[-1] * 190]
    assert (buffer.reservoir_count, buffer.write_count) == (10, 200)
    assert buffer.moments.weight == 200  # of all offered items


def test_without_a_threshold_it_is_reservoir_sampling() -> None:
    stream = make_stream(7, 500)
    informed, plain = Case(10, gamma=-1e6).buffer(), make_buffer(ReservoirWriter(), 10)
    sizes = [100] * 5
    assert extend_all(informed, stream, sizes) == extend_all(plain, stream, sizes)
    assert informed.reservoir_count == 500


def test_the_score_that_equals_the_mean_passes() -> None:
    # With a memory of copies, each copy scores what the last one did.
    item = make_stream(10, 1)
    buffer = Case(2, decay=0.5).buffer()
    for _ in range(100):
        buffer.extend(item.clone())
    before = buffer.reservoir_count
    for _ in range(20):
        buffer.extend(item.clone())
    assert buffer.reservoir_count == before + 20


def test_repetitions_stay_out_and_what_is_new_comes_in() -> None:
    old, new = make_stream(11, 2, feature_dim=3).split(1)
    buffer = Case(5).buffer()
    buffer.extend(torch.cat([old] * 100))
    assert buffer.reservoir_count == 5
    buffer.extend(new)
    assert buffer.reservoir_count == 6


class _OwnCriterion(Criterion):
    """As a user writes one: with methods that tensors have and arrays do not."""

    def __call__(self, leverage: Tensor, squared_error: Tensor, **_: object) -> Tensor:
        return leverage.log1p() + squared_error.clamp(max=1)


def test_a_criterion_of_the_user_gets_tensors() -> None:
    stream = make_stream(1, 40)
    writer = InfoReservoirWriter(criterion=_OwnCriterion())
    make_buffer(writer, 8).extend(stream)
    scores = writer.score(stream)
    assert scores.shape == (40,)
    assert scores.isfinite().all()


# -- what the memory knows -------------------------------------------------------------

CLASSES = 3
#: Slots and features of memories of the primal and the kernel form, and of a small one
#: that starts again with every batch that it stores.
SHAPES = {"primal": (48, 5), "kernel": (12, 40), "small": (48, 40)}
for_each_shape = pytest.mark.parametrize("shape", SHAPES)
for_each_policy = pytest.mark.parametrize("policy", ["infors", "infogs"])


def make_memory(
    shape: str, policy: str = "infors", **options: Any
) -> SelectiveReplayBuffer:
    """A memory that has been full for a while."""
    capacity, width = SHAPES[shape]
    if "storage" not in options:
        options["capacity"] = capacity
    buffer = make_replay_buffer(
        policy, num_classes=CLASSES, batch_size=capacity, gamma=-0.3, **options
    )
    buffer.writer.seed = 0
    buffer.extend(items(60, width))
    return buffer


def items(count: int, width: int, seed: int = 0) -> TensorDict:
    return make_stream(seed, count, feature_dim=width, num_classes=CLASSES)


def write_back(buffer: SelectiveReplayBuffer, count: int) -> None:
    """Give the first slots new features."""
    sample = buffer[:count].clone()
    sample["index"] = torch.arange(count)
    sample["feature"] = 1.1 * sample["feature"]
    buffer.update_features(sample)


def assert_in_step(buffer: SelectiveReplayBuffer) -> None:
    """The posterior is that of what is stored."""
    stored = as_items(buffer[:].detach(), CLASSES)
    memory = Memory(stored.features, stored.targets)
    probe = items(5, stored.features.shape[1], seed=9)["feature"].double()
    posterior = buffer.posterior
    assert posterior is not None
    found = posterior.leverage(probe)
    np.testing.assert_allclose(found, memory.leverages(probe.numpy()), rtol=1e-9)
    means = np.array([memory.predict(point)[0] for point in probe.numpy()])
    np.testing.assert_allclose(posterior.predict(probe)[0], means, atol=1e-9)


@for_each_shape
@for_each_policy
@pytest.mark.parametrize("asked", [True, False])
def test_it_follows_batches_and_write_backs_in_any_order(
    policy: str, shape: str, asked: bool
) -> None:
    buffer = make_memory(shape, policy)
    for seed in range(1, 7):
        write_back(buffer, 3 if seed % 2 else len(buffer))
        for _ in range(seed % 3):
            buffer.extend(items(20, SHAPES[shape][1], seed))
            if asked:
                assert_in_step(buffer)
    assert_in_step(buffer)


@for_each_shape
@pytest.mark.parametrize("how", ["entry replaced", "item", "in place"])
def test_what_others_change_is_noticed(how: str, shape: str) -> None:
    buffer = make_memory(shape)
    assert_in_step(buffer)
    if how == "entry replaced":
        zeros = torch.zeros(buffer.capacity, dtype=torch.long)
        buffer.storage._storage["target"] = zeros
    elif how == "item":
        buffer[3] = items(1, SHAPES[shape][1], seed=8)[0]
    else:  # nobody can tell, until the next features come
        buffer[:]["feature"].mul_(2)
        write_back(buffer, buffer.capacity)
    assert_in_step(buffer)
    buffer.extend(items(20, SHAPES[shape][1], seed=7))
    assert_in_step(buffer)


@for_each_policy
def test_what_extend_returns_belongs_to_the_caller(policy: str) -> None:
    buffer = make_memory("primal", policy)
    for seed in range(4):
        buffer.extend(items(40, 5, seed)).clamp_(min=0)
        assert_in_step(buffer)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("width", [10, 12])
def test_a_memory_restored_to_empty_takes_items_of_another_shape(
    outputs: int, width: int
) -> None:
    buffer = make_replay_buffer("infors", 16)
    empty = buffer.state_dict()
    buffer.extend(make_stream(0, 24, feature_dim=10, num_outputs=2))
    # A storage keeps the shape of its first item: a new one, the same writer.
    buffer.load_state_dict(empty)
    buffer.storage._storage = None
    buffer.storage.initialized = False
    stream = make_stream(1, 60, feature_dim=width, num_outputs=outputs)
    buffer.extend(stream[:30])
    write_back(buffer, 16)
    buffer.extend(stream[30:])
    content = buffer[:]
    assert buffer.posterior is not None
    statistics = buffer.writer.standardization
    targets = content["target"].reshape(len(content), -1).double()
    targets = (targets - torch.from_numpy(statistics.mean)) / torch.from_numpy(
        statistics.deviation
    )
    assert_no_drift(buffer.posterior, content["feature"], targets)


@for_each_policy
@pytest.mark.parametrize("kind", ["batches", "storage", "parameters"])
def test_tensors_that_are_more_than_tensors_decide_alike(
    policy: str, kind: str, tmp_path: Path
) -> None:
    mapped = LazyMemmapStorage if kind == "storage" else LazyTensorStorage
    plain = make_memory("kernel", policy)
    other = make_memory("kernel", policy, storage=mapped(12))
    stream = items(200, 40, seed=1)
    special = stream.clone()
    if kind == "batches":
        special.memmap_(tmp_path / "stream")
    elif kind == "parameters":
        feature = torch.nn.Parameter(special["feature"], requires_grad=False)
        special["feature"] = feature
    for ordinary, batch in zip(stream.split(16), special.split(16), strict=True):
        assert torch.equal(other.extend(batch), plain.extend(ordinary))
    assert_in_step(other)
    # As fast as with plain tensors, too.
    assert isinstance(other.writer.memory.rows([0, 1]), np.ndarray)


def test_stored_features_may_require_gradients() -> None:
    buffer = make_memory("primal")
    content = buffer.storage._storage
    content["feature"] = content["feature"].clone().requires_grad_()
    assert_in_step(buffer)
    content["feature"] = content["feature"].detach().clone().requires_grad_()
    assert_in_step(buffer)


@pytest.mark.parametrize(
    ("rounds", "rebuilding"),
    [
        pytest.param(60, False),
        pytest.param(60, True),
        pytest.param(1000, False, marks=pytest.mark.slow),
    ],
)
def test_a_buffer_that_lives_long_still_knows_its_memory(
    rounds: int, rebuilding: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not rebuilding:
        monkeypatch.setattr(memory_posterior, "_REBUILD_AFTER", 10**12)
    generator = torch.Generator().manual_seed(0)
    buffer = make_replay_buffer(
        "infors", 2000, gamma=-1e6, generator=generator, batch_size=500
    )

    def draw(count: int) -> TensorDict:
        scale = float(10 ** (2 * torch.rand((), generator=generator) - 1))
        seed = int(torch.randint(2**32, (), generator=generator))
        return make_stream(seed, count, feature_dim=4, num_outputs=2, scale=scale)

    buffer.extend(draw(2000))
    for _ in range(rounds):
        buffer.extend(draw(100))
        sample = buffer.sample()
        sample["feature"] = draw(500)["feature"]
        buffer.update_features(sample)
    content = buffer[:]
    assert buffer.posterior is not None
    statistics = buffer.writer.standardization
    targets = content["target"].reshape(len(content), -1).double()
    targets = (targets - torch.from_numpy(statistics.mean)) / torch.from_numpy(
        statistics.deviation
    )
    assert_no_drift(buffer.posterior, content["feature"], targets)


class LargestTensor(TorchDispatchMode):
    """Remembers how many elements the largest tensor had."""

    elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.elements = max(self.elements, leaf.numel())
        return result


def test_extending_takes_no_memory_that_grows_with_the_square_of_the_slots() -> None:
    capacity, width = 20_000, 32
    buffer = make_replay_buffer("infors", capacity, num_classes=CLASSES, gamma=-1e6)
    buffer.extend(items(capacity, width))
    largest = LargestTensor()
    tracemalloc.start()  # which NumPy reports its arrays to
    with largest:
        for step in range(5):
            batch = items(64, width, step)
            if step == 3:  # somebody else writes: the statistics are rebuilt
                buffer.storage.set(0, batch[0])
            assert (buffer.extend(batch) >= 0).any()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert largest.elements <= capacity * (width + 1)  # the storage itself
    assert peak < 8 * 10 * capacity
