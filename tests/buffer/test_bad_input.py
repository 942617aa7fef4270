"""Bad input that takes more than a line of ``tests.fuzz.bad_inputs`` to set up."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    RoundRobinWriter,
    TensorStorage,
)

from info_replay import (
    Decision,
    EntropyReduction,
    HybridWriter,
    InfoReservoirReplayBuffer,
    SelectionWriter,
    SelectiveReplayBuffer,
    make_replay_buffer,
)

from .helpers import (
    CAPACITY,
    FEATURES,
    INFORMATION,
    complete_state,
    differences,
    for_each_information_policy,
    for_each_kind,
    for_each_policy,
    make_buffer,
    make_stream,
    past_ring,
    play,
    refused,
)

#: Number of items that a buffer has seen before the bad one.
LIFE = {"new": 0, "filling": CAPACITY // 2, "full": 2 * CAPACITY}
CHUNK = 8
at_any_age = pytest.mark.parametrize("age", ["new", "filling", "full"])

Pair = tuple[SelectiveReplayBuffer, SelectiveReplayBuffer]


def as_regression(stream: TensorDict) -> TensorDict:
    return stream.set("target", stream["observation"][:, :2].clone())


def make_pair(policy: str, age: str, *, regression: bool = False, **more: Any) -> Pair:
    """Two buffers with the same past."""
    if regression:
        more["num_classes"] = None
    buffer = _aged(policy, age, regression, tuple(more.items()))
    return copy.deepcopy(buffer), copy.deepcopy(buffer)


@functools.cache
def _aged(
    policy: str, age: str, regression: bool, more: tuple[tuple[str, Any], ...]
) -> SelectiveReplayBuffer:
    buffer = make_buffer(policy, **dict(more))
    if LIFE[age]:
        stream = make_stream(LIFE[age])
        play(buffer, as_regression(stream) if regression else stream, CAPACITY)
    return buffer


def assert_refused(
    pair: Pair,
    misuse: Callable[[SelectiveReplayBuffer], Any],
    error: type[Exception],
    *words: str,
    stream: TensorDict | None = None,
) -> None:
    """The first buffer refuses, is unchanged, and goes on like the second.

    Args:
        pair: two buffers with the same past.
        misuse: what must raise.
        error: of which type.
        words: what the message must contain: the bad value and what was expected.
        stream: items with which both go on.
    """
    buffer, twin = pair
    with refused(buffer, error, *words):
        misuse(buffer)
    stream = make_stream(2 * CHUNK, seed=2) if stream is None else stream
    log = play(buffer, stream, CHUNK)
    assert differences(log, play(twin, stream, CHUNK)) == []
    assert differences(complete_state(buffer), complete_state(twin)) == []


def offer(batch: Any) -> Callable[[SelectiveReplayBuffer], Any]:
    return lambda buffer: buffer.extend(batch)


def spoiled(
    key: str, place: int | tuple[int, ...], value: float, count: int = 12
) -> Any:
    """A batch with one bad value."""
    batch = make_stream(count, seed=1)
    batch[key][place] = value
    return batch


# -- what a policy looks at -----------------------------------------------------------


@pytest.mark.parametrize("age", ["new", "full"])
@pytest.mark.parametrize(
    ("policy", "key", "place", "value"),
    [
        ("wrs", "logits", (1299, 0), math.inf),
        ("cbrs", "target", 1299, -1),
        ("gss", "feature", (1299, 0), math.nan),
        ("infogs", "feature", (1299, 0), math.nan),
        ("infors", "feature", (1299, 0), -math.inf),
        ("infors", "target", 1299, 10**6),
        ("infors", "feature", (1299, 0), 1e30),
        ("fss-clust", "feature", (1299, 4), math.nan),
        ("coreset", "observation", (1299, 1), math.nan),
        ("recent-infors", "feature", (1299, 0), math.nan),
    ],
)
def test_a_batch_that_is_decided_in_parts_is_refused_as_a_whole(
    policy: str, key: str, place: Any, value: float, age: str
) -> None:
    batch = spoiled(key, place, value, count=1300)
    word = {"wrs": "weights", "gss": "gradients"}.get(policy, f"'{key}'")
    assert_refused(make_pair(policy, age), offer(batch), ValueError, word)


# Scores are as large as squared targets, so their deviation may not be a number.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("size", [1e30, 1e140])
def test_regression_targets_may_be_large(size: float) -> None:
    stream = as_regression(make_stream(200))
    stream["target"] = size * stream["target"].double()
    buffer = make_replay_buffer("infors", 16)
    for batch in stream.split(32):
        buffer.extend(batch)
    assert len(buffer) == 16
    assert 16 < buffer.reservoir_count < 200


def with_nan(targets: Tensor) -> Tensor:
    targets[11, 1] = math.nan
    return targets


@pytest.mark.parametrize("criterion", [None, EntropyReduction()], ids=["MIC", "ER"])
@at_any_age
@for_each_information_policy
def test_regression_targets_must_be_finite_numbers(
    policy: str, age: str, criterion: Any
) -> None:
    for change, error, words in (
        (with_nan, ValueError, "finite, got nan for item 11"),
        (Tensor.long, TypeError, "int64"),
    ):
        batch = as_regression(make_stream(12, seed=1))
        batch["target"] = change(batch["target"])
        assert_refused(
            make_pair(policy, age, regression=True, criterion=criterion),
            offer(batch),
            error,
            "'target'",
            words,
            stream=as_regression(make_stream(2 * CHUNK, seed=2)),
        )


def test_a_function_must_give_one_positive_weight_per_item() -> None:
    buffer = make_buffer("wrs", score=lambda items: items["observation"])
    with refused(buffer, ValueError, "one weight per item, shape (12,), got (12, 3)"):
        buffer.extend(make_stream(12))
    buffer = make_buffer("wrs", score=lambda items: items["id"] - 2.5)
    with refused(buffer, ValueError, "not negative, got -2.5 for item 0"):
        buffer.extend(make_stream(12))


@pytest.mark.parametrize(
    ("policy", "key", "value"),
    [
        ("wrs", "logits", math.nan),
        ("cbrs", "target", -1),
        ("coreset", "target", -1),
        ("infogs", "target", -1),
        ("infors", "feature", math.nan),
        ("fss-clust", "feature", math.nan),
        ("recent-infors", "feature", math.nan),
    ],
)
def test_a_storage_that_brings_bad_items_along_is_refused(
    policy: str, key: str, value: float
) -> None:
    buffer = make_buffer(policy, storage=TensorStorage(spoiled(key, 500, value, 600)))
    before = complete_state(buffer)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"item {past_ring(policy, 500)}"):
            buffer.extend(make_stream(5))
        assert differences(before, complete_state(buffer)) == []


# -- what the storage holds -----------------------------------------------------------


@for_each_kind
def test_a_memory_map_drops_what_it_has_no_place_for(policy: str) -> None:
    """As TorchRL's locked storages do."""
    buffer = make_buffer(policy, storage=LazyMemmapStorage(CAPACITY))
    twin = make_buffer(policy)
    for each in (buffer, twin):
        play(each, make_stream(2 * CAPACITY), CAPACITY)
    batch = make_stream(12, seed=1)
    slots = buffer.extend(batch.clone().set("reward", torch.zeros(12)))
    assert torch.equal(slots, twin.extend(batch))
    assert differences(buffer[:], twin[:]) == []


@for_each_policy
def test_only_information_policies_have_scores_moments_and_a_posterior(
    policy: str,
) -> None:
    buffer = make_buffer(policy)
    buffer.extend(make_stream(40))
    if policy in INFORMATION:
        assert buffer.score(make_stream(3)).shape == (3,)
        assert buffer.moments.weight == past_ring(policy, 40)
        assert buffer.posterior is not None
        return
    uses = [
        lambda: buffer.score(make_stream(3)),
        lambda: buffer.moments,
        lambda: buffer.posterior,
    ]
    if policy not in FEATURES:
        uses.append(lambda: buffer.update_features(buffer.sample()))
    for use in uses:
        with pytest.raises(AttributeError, match=type(buffer.writer.policy).__name__):
            use()


# -- decisions of a policy ------------------------------------------------------------


class ToldWriter(SelectionWriter):
    """Decides what it is told; until then it keeps the first items."""

    decision: Any = None

    def decide(self, batch: TensorDictBase) -> Decision:
        if self.decision is not None:
            result: Decision = self.decision
            return result
        slots = len(self.slots) + np.arange(len(batch))
        slots[slots >= self.slots.capacity] = -1
        return Decision(slots)


def places(*slots: int) -> np.ndarray:
    return np.array(slots, dtype=np.int64)


#: What is decided of three items, by a memory with 4 of 6 slots in use. Memories that
#: shrink and move items are in ``tests/writers/test_base.py``.
BAD_DECISIONS: dict[str, tuple[Any, type[Exception], str]] = {
    "gap": (Decision(places(5, -1, -1)), ValueError, r"from slot 4 on.* got \[5\]"),
    "too few": (Decision(places(4, 5)), ValueError, r"shape \(3,\), got \(2,\)"),
    "too many": (Decision(places(4, 5, 0, 1)), ValueError, r"\(3,\), got \(4,\)"),
    "table": (Decision(places(4, 5, 0)[:, None]), ValueError, r"\(3,\), got \(3, 1\)"),
    "beyond": (Decision(places(4, 5, 6)), ValueError, "from 0 to 5.* got 6"),
    "below": (Decision(places(4, -2, 0)), ValueError, "or -1, got -2"),
    "twice": (Decision(places(4, 1, 1)), ValueError, "slot 1 .* several items"),
    "list": (Decision([4, 5, 0]), TypeError, "NumPy array of int64, got a list"),
    "tensor": (
        Decision(torch.tensor([4, 5, 0])),
        TypeError,
        "NumPy array of int64, got a Tensor",
    ),
    "int32": (
        Decision(places(4, 5, 0).astype(np.int32)),
        TypeError,
        "int64, got .*int32",
    ),
    "floats": (Decision(np.array([4.0, 5.0, 0.0])), TypeError, "int64.*float64"),
    "slots alone": (places(4, 5, 0), TypeError, "must return a Decision.* got array"),
    "no commit": (Decision(places(4, 5, 0), None), TypeError, "commit"),
    "nothing": (False, TypeError, "must return a Decision.* got False"),
}


@pytest.mark.parametrize("case", BAD_DECISIONS)
def test_a_decision_that_cannot_be_carried_out_is_refused(case: str) -> None:
    decision, error, words = BAD_DECISIONS[case]
    buffer = SelectiveReplayBuffer(6, writer=ToldWriter(), batch_size=2)
    buffer.extend(make_stream(4))
    before = complete_state(buffer)
    buffer.writer.decision = decision
    with pytest.raises(error, match=words) as caught:
        buffer.extend(make_stream(3))
    assert "ToldWriter" in str(caught.value)
    assert differences(before, complete_state(buffer)) == []
    buffer.writer.decision = None
    assert buffer.extend(make_stream(3)).tolist() == [4, 5, -1]


@pytest.mark.parametrize("case", ["gap", "too few", "twice", "list", "slots alone"])
def test_so_is_one_of_a_policy_behind_a_ring(case: str) -> None:
    decision, error, _ = BAD_DECISIONS[case]
    writer = ToldWriter()
    buffer = SelectiveReplayBuffer(9, writer=HybridWriter(writer, 3), batch_size=2)
    buffer.extend(make_stream(7))
    before = complete_state(buffer)
    writer.decision = decision
    with pytest.raises(error) as caught:
        buffer.extend(make_stream(3))
    assert "ToldWriter" in str(caught.value)
    assert differences(before, complete_state(buffer)) == []


# -- building a buffer ----------------------------------------------------------------

for_each_kind_of_buffer = pytest.mark.parametrize("policy", ["rs", "infors"])


@for_each_kind_of_buffer
def test_capacity_or_storage_must_be_given_and_agree(policy: str) -> None:
    with pytest.raises(ValueError, match="capacity or a storage"):
        make_buffer(policy, None)
    with pytest.raises(ValueError, match="capacity=3 .*max_size=9"):
        make_replay_buffer(policy, 3, storage=LazyTensorStorage(9))
    with pytest.raises(ValueError, match="device"):
        make_buffer(policy, storage=LazyTensorStorage(9), device="cpu")


def test_the_writer_must_select() -> None:
    with pytest.raises(TypeError, match="SelectiveReplayBuffer"):
        InfoReservoirReplayBuffer(CAPACITY, writer=object())
    with pytest.raises(TypeError, match="SelectionWriter.*RoundRobinWriter"):
        SelectiveReplayBuffer(CAPACITY, writer=RoundRobinWriter())
