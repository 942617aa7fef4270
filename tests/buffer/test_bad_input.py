"""Bad input gives one clear error and leaves a buffer as if it had never come."""

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
    CLASSES,
    FEATURES,
    INFORMATION,
    WIDTH,
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
    sample_of,
)

#: Number of items that a buffer has seen before the bad one.
LIFE = {"new": 0, "filling": CAPACITY // 2, "full": 2 * CAPACITY, "emptied": CAPACITY}
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
    if age == "emptied":
        buffer.empty()
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


def cancelling() -> TensorDict:
    batch = spoiled("feature", (3, 0), math.inf)
    batch["feature"][7, 0] = -math.inf
    return batch


def replaced(key: str, change: Callable[[Tensor], Tensor]) -> TensorDict:
    batch = make_stream(12, seed=1)
    return batch.set(key, change(batch[key]))


#: What is offered, the error, and what it must say.
BAD_FEATURES: dict[str, tuple[Any, ...]] = {
    "nan": (spoiled("feature", (0, 2), math.nan), ValueError, "finite, got nan", "m 0"),
    "inf": (spoiled("feature", (11, 2), math.inf), ValueError, "got inf for item 11"),
    "cancelling": (cancelling(), ValueError, "finite, got inf for item 3"),
    "rows": (
        replaced("feature", lambda value: value[:, None].expand(-1, 3, -1).clone()),
        ValueError,
        "3",
    ),
    "missing": (make_stream(12, seed=1).exclude("feature"), KeyError, "missing"),
    "type": (replaced("feature", Tensor.long), TypeError, "float", "int64"),
}
BAD_LABELS: dict[str, tuple[Any, ...]] = {
    "negative": (spoiled("target", 0, -1), ValueError, "0 to 3, got -1 for item 0"),
    "large": (spoiled("target", 11, CLASSES), ValueError, "0 to 3, got 4 for item 11"),
    "missing": (make_stream(12, seed=1).exclude("target"), KeyError, "missing"),
    "type": (replaced("target", Tensor.float), TypeError, "float32"),
}
BAD_WEIGHTS: dict[str, tuple[Any, ...]] = {
    "nan": (spoiled("logits", (0, 0), math.nan), ValueError, "weights must be finite"),
    "missing": (make_stream(12, seed=1).exclude("logits"), KeyError, "missing"),
}


@at_any_age
@pytest.mark.parametrize("case", BAD_FEATURES)
@pytest.mark.parametrize("policy", ["infogs", "infors", "fss-clust", "recent-infors"])
def test_bad_features_are_refused(policy: str, case: str, age: str) -> None:
    batch, error, *words = BAD_FEATURES[case]
    assert_refused(make_pair(policy, age), offer(batch), error, "'feature'", *words)


@at_any_age
@pytest.mark.parametrize("case", BAD_LABELS)
@pytest.mark.parametrize("policy", ["cbrs", "infors", "coreset", "recent-infors"])
def test_bad_labels_are_refused(policy: str, case: str, age: str) -> None:
    batch, error, *words = BAD_LABELS[case]
    assert_refused(make_pair(policy, age), offer(batch), error, "'target'", *words)


@at_any_age
@pytest.mark.parametrize("case", BAD_WEIGHTS)
def test_bad_weights_are_refused(case: str, age: str) -> None:
    batch, error, *words = BAD_WEIGHTS[case]
    assert_refused(make_pair("wrs", age), offer(batch), error, *words)


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

NESTED = make_stream(12).exclude("observation")
NESTED["next", "observation"] = torch.zeros(12, 3)
#: Batches that are not of the items of the memory, whatever the policy.
BAD_ITEMS: dict[str, tuple[Any, ...]] = {
    "width": (
        make_stream(12, width=WIDTH + 2),
        ValueError,
        "'feature'",
        "(5,)",
        "(7,)",
    ),
    "type": (
        replaced("feature", Tensor.double),
        TypeError,
        "'feature'",
        "torch.float32",
        "torch.float64",
    ),
    "missing": (
        make_stream(12).exclude("observation"),
        KeyError,
        "missing entry 'observation'",
        "feature",
    ),
    "unknown": (
        make_stream(12).set("reward", torch.zeros(12)),
        KeyError,
        "unknown entry 'reward'",
        "feature",
    ),
    "nested": (NESTED, KeyError, "missing entry 'observation'"),
    "empty": (make_stream(3)[:0], ValueError, "at least one item", "empty batch"),
    "item": (make_stream(1)[0], ValueError, "batch_size=[]", "add()"),
}


@pytest.mark.parametrize("case", BAD_ITEMS)
@pytest.mark.parametrize("age", ["filling", "full", "emptied"])
@pytest.mark.parametrize("policy", ["rs", "cbrs", "infors", "coreset", "recent-infors"])
def test_every_item_is_like_the_first(policy: str, age: str, case: str) -> None:
    batch, error, *words = BAD_ITEMS[case]
    assert_refused(make_pair(policy, age), offer(batch), error, *words)


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


@at_any_age
@pytest.mark.parametrize("policy", ["infors", "fss-clust", "recent-infors"])
def test_add_checks_like_extend(policy: str, age: str) -> None:
    item = spoiled("feature", (0, 0), math.nan)[0]
    assert_refused(
        make_pair(policy, age),
        lambda buffer: buffer.add(item),
        ValueError,
        "'feature'",
        "nan",
    )


@pytest.mark.parametrize("age", ["new", "full"])
def test_only_tensordicts_are_taken(age: str) -> None:
    buffer, _ = make_pair("rs", age)
    for items in ({"x": 1}, [1, 2], torch.ones(3), None):
        for take in (buffer.extend, buffer.add):
            with pytest.raises((TypeError, ValueError), match="TensorDict"):
                take(items)


@pytest.mark.parametrize("age", ["filling", "full"])
@for_each_information_policy
def test_scoring_checks_like_extend(policy: str, age: str) -> None:
    assert_refused(
        make_pair(policy, age),
        lambda buffer: buffer.score(spoiled("feature", (4, 0), math.inf)),
        ValueError,
        "'feature'",
        "inf for item 4",
    )
    assert_refused(
        make_pair(policy, age),
        lambda buffer: buffer.score(make_stream(5, width=WIDTH + 2)),
        ValueError,
        "'feature' must be 5 wide, got 7",
    )


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


# -- write-backs ----------------------------------------------------------------------


def written_back(
    change: Callable[[TensorDict], Any],
) -> Callable[[SelectiveReplayBuffer], None]:
    """Write the first slots back after something was done to their sample."""

    def misuse(buffer: SelectiveReplayBuffer) -> None:
        sample = sample_of(buffer, [slot % len(buffer) for slot in range(4)])
        sample["feature"] = sample["feature"] + 1
        changed = change(sample)
        buffer.update_tensordict_priority(sample if changed is None else changed)

    return misuse


def set_feature(value: float) -> Callable[[TensorDict], None]:
    def change(sample: TensorDict) -> None:
        sample["feature"][3, 1] = value

    return change


def set_index(value: int) -> Callable[[TensorDict], None]:
    def change(sample: TensorDict) -> None:
        sample["index"][2] = value

    return change


BAD_WRITE_BACKS: dict[str, tuple[Any, ...]] = {
    "nan": (set_feature(math.nan), ValueError, "'feature'", "nan for item 3"),
    "infinity": (set_feature(-math.inf), ValueError, "'feature'", "-inf for item 3"),
    "too-large": (set_feature(1e30), ValueError, "'feature'", "1e+30", "too large"),
    "negative-index": (set_index(-1), IndexError, "'index'", "from 0", "-1"),
    "large-index": (set_index(CAPACITY), IndexError, "from 0", str(CAPACITY)),
    "fractional-index": (
        lambda sample: sample.set("index", sample["index"] + 0.5),
        TypeError,
        "'index'",
        "whole numbers, got torch.float32",
    ),
    "no-index": (
        lambda sample: sample.exclude("index"),
        KeyError,
        "missing",
        "'index'",
    ),
    "no-feature": (
        lambda sample: sample.exclude("feature"),
        KeyError,
        "missing entry 'feature'",
    ),
    "width": (
        lambda sample: sample.set("feature", torch.ones(4, WIDTH + 1)),
        ValueError,
        "'feature'",
        f"(4, {WIDTH}), got (4, {WIDTH + 1})",
    ),
    "type": (
        lambda sample: sample.set("feature", torch.ones(4, WIDTH).double()),
        TypeError,
        "'feature'",
        "torch.float32, got torch.float64",
    ),
}


@pytest.mark.parametrize("case", BAD_WRITE_BACKS)
@pytest.mark.parametrize("policy", ["infors", "fss-clust", "recent-infors"])
def test_a_bad_write_back_is_refused(policy: str, case: str) -> None:
    if case == "too-large" and policy == "fss-clust":
        return  # any number of single precision has a distance from others
    change, error, *words = BAD_WRITE_BACKS[case]
    assert_refused(make_pair(policy, "full"), written_back(change), error, *words)


@pytest.mark.parametrize("policy", ["infors", "fss-clust", "recent-infors"])
def test_a_slot_that_is_not_in_use_cannot_be_written_back(policy: str) -> None:
    free = LIFE["filling"]
    assert_refused(
        make_pair(policy, "filling"),
        written_back(set_index(free)),
        IndexError,
        f"from 0 to {free - 1}",
        f"got {free}",
    )
    sample = make_stream(3).set("index", torch.arange(3))
    for age in ("new", "emptied"):
        assert_refused(
            make_pair(policy, age),
            lambda buffer: buffer.update_features(sample),
            IndexError,
            "empty",
        )


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


@pytest.mark.parametrize("capacity", [0, -3, 2.5, 8.0, True, "8", math.nan])
@for_each_kind_of_buffer
def test_capacity_must_be_a_positive_whole_number(policy: str, capacity: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        make_buffer(policy, capacity)
    for word in ("capacity", repr(capacity), "whole number"):
        assert word in str(caught.value)


@for_each_kind_of_buffer
def test_capacity_or_storage_must_be_given_and_agree(policy: str) -> None:
    with pytest.raises(ValueError, match="capacity or a storage"):
        make_buffer(policy, None)
    with pytest.raises(ValueError, match="capacity=3 .*max_size=9"):
        make_replay_buffer(policy, 3, storage=LazyTensorStorage(9))
    with pytest.raises(ValueError, match="device"):
        make_buffer(policy, storage=LazyTensorStorage(9), device="cpu")


BAD_SETTINGS: list[tuple[str, Any, tuple[str, ...]]] = [
    ("gamma", math.nan, ("infors", "infogs")),
    ("gamma_learnability", math.nan, ("infogs", "infogs-rs")),
    ("noise", 0, ("infors", "infogs")),
    ("jitter", -0.1, ("infors", "infogs")),
    ("decay", 1.5, ("infors", "infogs")),
    ("num_classes", 0, ("cbrs", "infors", "coreset")),
    ("num_classes", 2.5, ("cbrs", "infors", "coreset")),
    ("criterion", "MIC", ("infors", "infogs")),
    ("dtype", torch.int64, ("infors", "infogs")),
]


@pytest.mark.parametrize(
    ("policy", "name", "value"),
    [
        pytest.param(policy, name, value, id=f"{policy}-{name}={value}")
        for name, value, policies in BAD_SETTINGS
        for policy in policies
    ],
)
def test_a_bad_setting_is_named_with_its_value(
    policy: str, name: str, value: Any
) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        make_buffer(policy, **{name: value})
    for word in (name, repr(value), "must be"):
        assert word in str(caught.value)


def test_the_writer_must_select() -> None:
    with pytest.raises(TypeError, match="SelectiveReplayBuffer"):
        InfoReservoirReplayBuffer(CAPACITY, writer=object())
    with pytest.raises(TypeError, match="SelectionWriter.*RoundRobinWriter"):
        SelectiveReplayBuffer(CAPACITY, writer=RoundRobinWriter())


@pytest.mark.parametrize("seed", [-1, 2**63])
@pytest.mark.parametrize("policy", ["rs", "recent-rs"])
def test_a_seed_must_be_in_range(policy: str, seed: int) -> None:
    buffer = make_buffer(policy)
    with pytest.raises(ValueError, match=f"seed.*{seed}"):
        buffer.writer.seed = seed
