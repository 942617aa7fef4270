"""Bad input gives one clear error and leaves a buffer as if it had never come."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    TensorDictReplayBuffer,
    TensorStorage,
)

from info_replay import (
    EntropyReduction,
    InfoReservoirReplayBuffer,
    SelectiveReplayBuffer,
    make_replay_buffer,
)

from .helpers import (
    BATCH,
    CAPACITY,
    CLASSES,
    FEATURES,
    HYBRID,
    INFORMATION,
    KINDS,
    LABELLED,
    WIDTH,
    complete_state,
    differences,
    for_each_feature_policy,
    for_each_information_policy,
    for_each_kind_of_policy,
    make_buffer,
    make_stream,
    name_of,
    past_ring,
    play,
    policy_options,
)

#: Number of items that a buffer has seen before the bad one.
LIFE = {"new": 0, "filling": CAPACITY // 2, "full": 2 * CAPACITY}
CHUNK = 8
at_any_age = pytest.mark.parametrize("age", LIFE)


def make_pair(
    policy: str, age: str, **options: Any
) -> tuple[SelectiveReplayBuffer, SelectiveReplayBuffer]:
    """Two buffers with the same past."""
    pair = make_buffer(policy, **options), make_buffer(policy, **options)
    if LIFE[age]:
        for buffer in pair:
            play(buffer, make_stream(LIFE[age]), CAPACITY)
    return pair


def assert_refused(
    pair: tuple[SelectiveReplayBuffer, SelectiveReplayBuffer],
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
    settle(buffer)
    before = complete_state(buffer)
    with pytest.raises(error) as caught:
        misuse(buffer)
    assert type(caught.value) is error
    for word in words:
        assert word in str(caught.value)
    assert differences(before, complete_state(buffer)) == []
    stream = make_stream(2 * CHUNK, seed=2) if stream is None else stream
    log = play(buffer, stream, CHUNK)
    assert differences(log, play(twin, stream, CHUNK)) == []
    assert differences(complete_state(buffer), complete_state(twin)) == []


def settle(buffer: SelectiveReplayBuffer) -> None:
    """Let the statistics catch up, which they put off until they are asked."""
    if hasattr(buffer.writer.policy, "posterior"):
        _ = buffer.posterior


def offer(batch: TensorDict) -> Callable[[SelectiveReplayBuffer], Any]:
    return lambda buffer: buffer.extend(batch)


def spoiled(
    key: str, value: float, *, row: int = 0, count: int = 12, column: int | None = None
) -> TensorDict:
    """A batch with one bad value."""
    batch = make_stream(count, seed=1)
    if column is None:
        batch[key][row] = value
    else:
        batch[key][row, column] = value
    return batch


# -- values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "row", "value"),
    [
        (12, 0, math.nan),
        (12, 11, math.inf),
        (3, 2, math.nan),
        (2000, 0, -math.inf),
        (2000, 1999, math.nan),
    ],
)
@at_any_age
@for_each_feature_policy
def test_features_must_be_finite(
    policy: str, age: str, count: int, row: int, value: float
) -> None:
    batch = spoiled("feature", value, row=row, count=count, column=2)
    assert_refused(
        make_pair(policy, age),
        offer(batch),
        ValueError,
        "'feature'",
        "finite",
        str(value),
        f"item {row}",
    )


@at_any_age
@for_each_feature_policy
def test_infinities_that_cancel_are_seen(policy: str, age: str) -> None:
    batch = spoiled("feature", math.inf, row=3, column=0)
    batch["feature"][7, 0] = -math.inf
    assert_refused(
        make_pair(policy, age), offer(batch), ValueError, "finite", "inf", "item 3"
    )


@pytest.mark.parametrize("count", [12, 2000])
@at_any_age
@for_each_information_policy
def test_features_too_large_to_compute_with_are_refused_as_a_whole(
    policy: str, age: str, count: int
) -> None:
    batch = spoiled("feature", 1e30, row=count - 1, count=count, column=1)
    assert_refused(
        make_pair(policy, age, dtype=torch.float32),
        offer(batch),
        ValueError,
        "'feature'",
        "1e+30",
        "too large",
    )


def as_regression(stream: TensorDict) -> TensorDict:
    return stream.set("target", stream["observation"][:, :2].clone())


# Scores are as large as squared targets, so their deviation may not be a number.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("size", [1e30, 1e80, 1e140])
def test_regression_targets_may_be_large(size: float) -> None:
    stream = as_regression(make_stream(200))
    stream["target"] = size * stream["target"].double()
    buffer = make_replay_buffer("infors", 16)
    for batch in stream.split(32):
        buffer.extend(batch)
    assert len(buffer) == 16
    assert 16 < buffer.reservoir_count < 200


@pytest.mark.parametrize("criterion", [None, EntropyReduction()], ids=["MIC", "ER"])
@pytest.mark.parametrize(
    ("count", "row", "value"),
    [(12, 0, math.nan), (12, 11, math.inf), (2000, 1999, math.nan)],
)
@at_any_age
@for_each_information_policy
def test_regression_targets_must_be_finite(
    policy: str, age: str, count: int, row: int, value: float, criterion: Any
) -> None:
    pair = (
        make_buffer(policy, num_classes=None, criterion=criterion),
        make_buffer(policy, num_classes=None, criterion=criterion),
    )
    if LIFE[age]:
        for buffer in pair:
            play(buffer, as_regression(make_stream(LIFE[age])), CAPACITY)
    batch = as_regression(make_stream(count, seed=1))
    batch["target"][row, 1] = value
    assert_refused(
        pair,
        offer(batch),
        ValueError,
        "'target'",
        "finite",
        str(value),
        f"item {row}",
        stream=as_regression(make_stream(2 * CHUNK, seed=2)),
    )


@pytest.mark.parametrize(
    ("count", "row", "label"),
    [(12, 0, -1), (12, 11, CLASSES), (2000, 1999, 10**6), (2000, 1999, -1)],
)
@at_any_age
@pytest.mark.parametrize("policy", LABELLED)
def test_labels_must_be_classes(
    policy: str, age: str, count: int, row: int, label: int
) -> None:
    assert_refused(
        make_pair(policy, age),
        offer(spoiled("target", label, row=row, count=count)),
        ValueError,
        "'target'",
        f"from 0 to {CLASSES - 1}",
        f"got {label} for item {row}",
    )


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(("count", "row"), [(12, 0), (2000, 1999)])
@at_any_age
def test_weights_must_be_finite(age: str, count: int, row: int, value: float) -> None:
    assert_refused(
        make_pair("wrs", age),
        offer(spoiled("logits", value, row=row, count=count, column=0)),
        ValueError,
        "weights",
        "finite",
        "nan",
        f"item {row}",
    )


def observed(items: TensorDict) -> torch.Tensor:
    return items["observation"][:, 0].abs()


def test_weights_must_not_be_negative() -> None:
    pair = make_pair("wrs", "full", score=observed)
    pair[0].writer.score = lambda items: torch.full((len(items),), -2.5)

    def misuse(buffer: SelectiveReplayBuffer) -> None:
        try:
            buffer.extend(make_stream(12))
        finally:
            buffer.writer.score = observed

    assert_refused(pair, misuse, ValueError, "not negative", "-2.5", "item 0")


def test_there_must_be_one_weight_an_item() -> None:
    pair = make_pair("wrs", "full", score=observed)
    pair[0].writer.score = lambda items: items["observation"]

    def misuse(buffer: SelectiveReplayBuffer) -> None:
        try:
            buffer.extend(make_stream(12))
        finally:
            buffer.writer.score = observed

    assert_refused(pair, misuse, ValueError, "one weight an item", "(12, 3)", "(12,)")


@pytest.mark.parametrize(
    ("policy", "key", "value"),
    [("wrs", "logits", math.nan)]
    + [(policy, "target", -1) for policy in LABELLED]
    + [(policy, "feature", math.nan) for policy in FEATURES],
)
def test_a_storage_that_brings_bad_items_along_is_refused(
    policy: str, key: str, value: float
) -> None:
    storage = TensorStorage(spoiled(key, value, row=500, count=600))
    buffer = make_buffer(policy, storage=storage)
    before = complete_state(buffer)
    for _ in range(2):
        with pytest.raises(ValueError, match=f"item {past_ring(policy, 500)}"):
            buffer.extend(make_stream(5))
        assert differences(before, complete_state(buffer)) == []


# -- shapes, types and keys -----------------------------------------------------------


@pytest.mark.parametrize("age", ["filling", "full", "emptied"])
@for_each_kind_of_policy
def test_features_must_be_as_wide_as_those_of_the_memory(policy: str, age: str) -> None:
    pair = make_pair(policy, "full" if age == "emptied" else age)
    if age == "emptied":
        for buffer in pair:
            buffer.empty()
    batch = make_stream(12, seed=1, width=WIDTH + 2)
    assert_refused(
        pair, offer(batch), ValueError, "'feature'", f"({WIDTH},)", f"({WIDTH + 2},)"
    )


@at_any_age
@for_each_feature_policy
def test_features_must_be_rows(policy: str, age: str) -> None:
    batch = make_stream(12, seed=1)
    batch["feature"] = batch["feature"][:, None].expand(-1, 3, -1).clone()
    assert_refused(make_pair(policy, age), offer(batch), ValueError, "feature", "3")


@at_any_age
@pytest.mark.parametrize(
    ("policy", "key"),
    [(policy, "target") for policy in LABELLED]
    + [(policy, "feature") for policy in FEATURES]
    + [("wrs", "logits")],
)
def test_what_the_policy_looks_at_must_be_there(
    policy: str, key: str, age: str
) -> None:
    batch = make_stream(12, seed=1).exclude(key)
    assert_refused(make_pair(policy, age), offer(batch), KeyError, "missing", key)


@pytest.mark.parametrize("age", ["filling", "full"])
@for_each_kind_of_policy
def test_every_item_has_the_keys_of_the_first(policy: str, age: str) -> None:
    pair = make_pair(policy, age)
    assert_refused(
        pair,
        offer(make_stream(12).exclude("observation")),
        KeyError,
        "missing",
        "'observation'",
        "feature",
    )
    assert_refused(
        pair,
        offer(make_stream(12).set("reward", torch.zeros(12))),
        KeyError,
        "unknown",
        "'reward'",
        "feature",
    )


@pytest.mark.parametrize("age", ["filling", "full"])
@for_each_kind_of_policy
def test_a_memory_map_drops_what_it_has_no_place_for(policy: str, age: str) -> None:
    """As TorchRL's locked storages do."""
    buffer = make_buffer(policy, storage=LazyMemmapStorage(CAPACITY))
    twin = make_buffer(policy)
    for each in (buffer, twin):
        play(each, make_stream(LIFE[age]), CAPACITY)
    batch = make_stream(12, seed=1)
    slots = buffer.extend(batch.clone().set("reward", torch.zeros(12)))
    assert torch.equal(slots, twin.extend(batch))
    assert differences(buffer[:], twin[:]) == []


@pytest.mark.parametrize("age", ["filling", "full"])
@for_each_kind_of_policy
def test_a_nested_entry_does_not_stand_in_for_a_flat_one(policy: str, age: str) -> None:
    batch = make_stream(12).exclude("observation")
    batch["next", "observation"] = torch.zeros(12, 3)
    assert_refused(
        make_pair(policy, age), offer(batch), KeyError, "missing", "'observation'"
    )


@at_any_age
@for_each_feature_policy
def test_features_must_be_floating_point(policy: str, age: str) -> None:
    batch = make_stream(12, seed=1)
    batch["feature"] = batch["feature"].long()
    assert_refused(
        make_pair(policy, age), offer(batch), TypeError, "'feature'", "float", "int64"
    )


@at_any_age
@pytest.mark.parametrize("policy", LABELLED)
def test_labels_must_be_whole_numbers(policy: str, age: str) -> None:
    batch = make_stream(12, seed=1)
    batch["target"] = batch["target"].float()
    assert_refused(
        make_pair(policy, age), offer(batch), TypeError, "'target'", "float32"
    )


@at_any_age
@for_each_information_policy
def test_regression_targets_must_be_floating_point(policy: str, age: str) -> None:
    pair = (
        make_buffer(policy, num_classes=None),
        make_buffer(policy, num_classes=None),
    )
    if LIFE[age]:
        for buffer in pair:
            play(buffer, as_regression(make_stream(LIFE[age])), CAPACITY)
    batch = make_stream(12)
    batch["target"] = torch.zeros(12, 2, dtype=torch.int64)
    assert_refused(
        pair,
        offer(batch),
        TypeError,
        "'target'",
        "int64",
        stream=as_regression(make_stream(2 * CHUNK, seed=2)),
    )


@pytest.mark.parametrize("age", ["filling", "full"])
@for_each_kind_of_policy
def test_entries_keep_the_type_of_the_memory(policy: str, age: str) -> None:
    batch = make_stream(12, seed=1)
    batch["feature"] = batch["feature"].double()
    assert_refused(
        make_pair(policy, age),
        offer(batch),
        TypeError,
        "'feature'",
        "torch.float32",
        "torch.float64",
    )


@at_any_age
@for_each_kind_of_policy
def test_an_empty_batch_is_refused(policy: str, age: str) -> None:
    assert_refused(
        make_pair(policy, age),
        offer(make_stream(3)[:0]),
        ValueError,
        "at least one item",
        "empty batch",
    )


@at_any_age
@for_each_kind_of_policy
def test_a_single_item_is_added_not_extended(policy: str, age: str) -> None:
    assert_refused(
        make_pair(policy, age),
        offer(make_stream(1)[0]),
        ValueError,
        "batch_size=[]",
        "add()",
    )


@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
@at_any_age
@for_each_feature_policy
def test_add_checks_like_extend(policy: str, age: str, storage: Any) -> None:
    pair = make_buffer(policy, storage=storage(CAPACITY)), make_buffer(policy)
    if LIFE[age]:
        for buffer in pair:
            play(buffer, make_stream(LIFE[age]), CAPACITY)
    item = spoiled("feature", math.nan)[0]
    assert_refused(
        pair, lambda buffer: buffer.add(item), ValueError, "'feature'", "nan"
    )


@pytest.mark.parametrize("value", [math.nan, math.inf])
@at_any_age
@for_each_information_policy
def test_scoring_checks_like_extend(policy: str, age: str, value: float) -> None:
    batch = spoiled("feature", value, row=4)
    assert_refused(
        make_pair(policy, age),
        lambda buffer: buffer.score(batch),
        ValueError,
        "'feature'",
        str(value),
        "item 4",
    )


@pytest.mark.parametrize("age", ["filling", "full"])
@for_each_information_policy
def test_scoring_needs_features_of_the_right_width(policy: str, age: str) -> None:
    assert_refused(
        make_pair(policy, age),
        lambda buffer: buffer.score(make_stream(5, width=WIDTH + 2)),
        ValueError,
        "'feature'",
        str(WIDTH),
        str(WIDTH + 2),
    )


@for_each_kind_of_policy
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
        index = torch.arange(4) % len(buffer)
        sample = buffer[index].clone()
        sample["index"] = index
        sample["index_generation"] = buffer.writer.generations_of(index)
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
    "nan": (set_feature(math.nan), ValueError, "'feature'", "nan", "item 3"),
    "infinity": (set_feature(-math.inf), ValueError, "'feature'", "-inf", "item 3"),
    "too-large": (set_feature(1e30), ValueError, "'feature'", "1e+30", "too large"),
    "negative-index": (set_index(-1), IndexError, "'index'", "from 0", "-1"),
    "large-index": (set_index(CAPACITY), IndexError, "from 0", str(CAPACITY)),
    "fractional-index": (
        lambda sample: sample.set("index", sample["index"] + 0.5),
        TypeError,
        "'index'",
        "whole numbers",
        "float32",
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
        "missing",
        "'feature'",
    ),
    "width": (
        lambda sample: sample.set("feature", torch.ones(4, WIDTH + 1)),
        ValueError,
        "'feature'",
        f"(4, {WIDTH})",
        f"(4, {WIDTH + 1})",
    ),
    "type": (
        lambda sample: sample.set("feature", torch.ones(4, WIDTH).double()),
        TypeError,
        "'feature'",
        "torch.float32",
        "torch.float64",
    ),
}


@pytest.mark.parametrize("case", BAD_WRITE_BACKS)
@pytest.mark.parametrize("age", ["filling", "full"])
@for_each_feature_policy
def test_a_bad_write_back_is_refused(policy: str, age: str, case: str) -> None:
    if case == "too-large" and policy not in INFORMATION:
        pytest.skip("any number of single precision has a distance from others")
    change, error, *words = BAD_WRITE_BACKS[case]
    assert_refused(make_pair(policy, age), written_back(change), error, *words)


@for_each_feature_policy
def test_a_slot_that_is_not_in_use_yet_cannot_be_written_back(policy: str) -> None:
    pair = make_pair(policy, "filling")
    free = LIFE["filling"]
    assert_refused(
        pair,
        written_back(set_index(free)),
        IndexError,
        f"from 0 to {free - 1}",
        f"got {free}",
    )


@pytest.mark.parametrize("age", ["new", "emptied"])
@for_each_feature_policy
def test_nothing_can_be_written_back_to_an_empty_memory(policy: str, age: str) -> None:
    pair = make_pair(policy, "new" if age == "new" else "full")
    if age == "emptied":
        for buffer in pair:
            buffer.empty()
    sample = make_stream(3).set("index", torch.arange(3))
    assert_refused(
        pair, lambda buffer: buffer.update_features(sample), IndexError, "empty"
    )


# -- settings -------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [0, -3, 2.5, 8.0, True, "8", math.nan])
@for_each_kind_of_policy
def test_capacity_must_be_a_positive_whole_number(policy: str, capacity: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:
        make_buffer(policy, capacity)
    assert "capacity" in str(caught.value)
    assert repr(capacity) in str(caught.value)
    assert "whole number" in str(caught.value)


@for_each_kind_of_policy
def test_capacity_or_storage_must_be_given(policy: str) -> None:
    with pytest.raises(ValueError, match="capacity or a storage"):
        make_buffer(policy, None)


@for_each_kind_of_policy
def test_capacity_must_agree_with_the_storage(policy: str) -> None:
    with pytest.raises(ValueError, match="capacity=3 .*max_size=9"):
        make_replay_buffer(
            name_of(policy), 3, storage=LazyTensorStorage(9), **policy_options(policy)
        )


@for_each_kind_of_policy
def test_the_device_is_that_of_the_default_storage(policy: str) -> None:
    with pytest.raises(ValueError, match="device"):
        make_buffer(policy, storage=LazyTensorStorage(9), device="cpu")


BAD_SETTINGS: list[tuple[str, Any, tuple[str, ...]]] = [
    ("gamma", math.nan, INFORMATION),
    ("gamma", math.inf, INFORMATION),
    ("gamma_learnability", math.nan, ("infogs", "infogs-rs")),
    ("noise", 0, INFORMATION),
    ("noise", 0.0, INFORMATION),
    ("noise", -0.3, INFORMATION),
    ("noise", math.nan, INFORMATION),
    ("jitter", -1, INFORMATION),
    ("jitter", 0.0, INFORMATION),
    ("jitter", math.inf, INFORMATION),
    ("decay", 0, INFORMATION),
    ("decay", 1, INFORMATION),
    ("decay", 1.5, INFORMATION),
    ("decay", math.nan, INFORMATION),
    ("num_classes", 0, LABELLED),
    ("num_classes", -2, LABELLED),
    ("num_classes", 2.5, LABELLED),
    ("num_classes", True, LABELLED),
    ("criterion", "MIC", INFORMATION),
    ("dtype", torch.int64, INFORMATION),
    ("dtype", torch.float16, INFORMATION),
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
    assert name in str(caught.value)
    assert repr(value) in str(caught.value)
    assert "must be" in str(caught.value)


def test_an_unknown_policy_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="'fifo'") as caught:
        make_replay_buffer("fifo", CAPACITY)
    names = set(KINDS) - set(HYBRID)
    assert all(repr(policy) in str(caught.value) for policy in names)


@for_each_kind_of_policy
def test_an_unknown_option_is_named(policy: str) -> None:
    with pytest.raises(TypeError, match="gama"):
        make_buffer(policy, gama=1.0)


@for_each_kind_of_policy
def test_an_option_of_another_policy_is_named(policy: str) -> None:
    other = "gamma_learnability" if policy in ("wrs", "infors") else "score"
    with pytest.raises(TypeError, match=other):
        make_buffer(policy, **{other: 1.0})


def test_cbrs_needs_the_number_of_classes() -> None:
    with pytest.raises(TypeError, match="num_classes"):
        make_replay_buffer("cbrs", CAPACITY)


def test_inforeservoir_brings_its_own_writer() -> None:
    with pytest.raises(TypeError, match="SelectiveReplayBuffer"):
        InfoReservoirReplayBuffer(CAPACITY, writer=object())


def test_a_writer_that_selects_nothing_is_refused() -> None:
    from torchrl.data.replay_buffers.writers import RoundRobinWriter

    with pytest.raises(TypeError, match="SelectionWriter.*RoundRobinWriter"):
        SelectiveReplayBuffer(CAPACITY, writer=RoundRobinWriter())


@for_each_kind_of_policy
def test_a_storage_of_lists_is_refused(policy: str) -> None:
    with pytest.raises(TypeError, match="LazyTensorStorage.*ListStorage"):
        make_buffer(policy, storage=ListStorage(CAPACITY))


@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
@for_each_kind_of_policy
def test_a_storage_of_trajectories_is_refused(policy: str, storage: Any) -> None:
    with pytest.raises(ValueError, match="ndim=1.*ndim=2"):
        make_buffer(policy, storage=storage(CAPACITY, ndim=2))


@pytest.mark.parametrize("seed", [-1, 2**63])
@for_each_kind_of_policy
def test_a_seed_must_be_in_range(policy: str, seed: int) -> None:
    buffer = make_buffer(policy)
    with pytest.raises(ValueError, match=f"seed.*{seed}"):
        buffer.writer.seed = seed


# -- restoring what does not fit ------------------------------------------------------


def save_and_load(
    way: str, folder: Path, source: Any
) -> Callable[[SelectiveReplayBuffer], None]:
    if way == "state_dict":
        state = source.state_dict()
        return lambda buffer: buffer.load_state_dict(state)
    source.dumps(folder)
    return lambda buffer: buffer.loads(folder)


through_each_way = pytest.mark.parametrize("way", ["state_dict", "dumps"])


def played(
    policy: str,
    capacity: int = CAPACITY,
    *,
    width: int = WIDTH,
    seed: int = 9,
    **options: Any,
) -> SelectiveReplayBuffer:
    """A buffer with another past."""
    buffer = make_buffer(policy, capacity, seed=seed, **options)
    play(buffer, make_stream(2 * CAPACITY, seed=9, width=width), CAPACITY)
    return buffer


@through_each_way
@pytest.mark.parametrize("age", ["new", "full"])
@for_each_kind_of_policy
def test_a_memory_of_another_capacity_is_refused(
    policy: str, age: str, way: str, tmp_path: Path
) -> None:
    load = save_and_load(way, tmp_path, played(policy, CAPACITY + 1))
    assert_refused(
        make_pair(policy, age),
        load,
        ValueError,
        f"capacity={CAPACITY + 1}",
        f"capacity={CAPACITY}",
    )


@through_each_way
@pytest.mark.parametrize("age", ["filling", "full"])
@for_each_kind_of_policy
def test_a_memory_with_features_of_another_width_is_refused(
    policy: str, age: str, way: str, tmp_path: Path
) -> None:
    load = save_and_load(way, tmp_path, played(policy, width=WIDTH + 2))
    assert_refused(
        make_pair(policy, age),
        load,
        ValueError,
        "feature",
        str(WIDTH),
        str(WIDTH + 2),
    )


@pytest.mark.parametrize(("age", "way"), [("new", "state_dict"), ("full", "dumps")])
@pytest.mark.parametrize(
    ("policy", "other"),
    [
        (one, other)
        for one in KINDS
        for other in KINDS
        if one != other
        # One with a ring differs from all others in the same way.
        and (not {one, other} & set(HYBRID) or "infors" in (one, other))
    ],
)
def test_a_memory_of_another_policy_is_refused(
    policy: str, other: str, age: str, way: str, tmp_path: Path
) -> None:
    load = save_and_load(way, tmp_path, played(other))
    assert_refused(make_pair(policy, age), load, ValueError, "cannot restore")


@through_each_way
@pytest.mark.parametrize("age", ["new", "full"])
@pytest.mark.parametrize("policy", LABELLED)
def test_a_memory_of_other_classes_is_refused(
    policy: str, age: str, way: str, tmp_path: Path
) -> None:
    load = save_and_load(way, tmp_path, played(policy, num_classes=CLASSES + 1))
    assert_refused(
        make_pair(policy, age),
        load,
        ValueError,
        f"num_classes={CLASSES + 1}",
        f"num_classes={CLASSES}",
    )


@through_each_way
@pytest.mark.parametrize("age", ["new", "full"])
@for_each_kind_of_policy
def test_a_memory_of_a_plain_buffer_is_refused(
    policy: str, age: str, way: str, tmp_path: Path
) -> None:
    plain = TensorDictReplayBuffer(
        storage=LazyTensorStorage(CAPACITY), batch_size=BATCH
    )
    plain.extend(make_stream(CAPACITY))
    load = save_and_load(way, tmp_path, plain)
    if way == "state_dict":
        assert_refused(make_pair(policy, age), load, ValueError, "no settings")
    else:
        assert_refused(
            make_pair(policy, age), load, FileNotFoundError, "no saved", "writer.pt"
        )


@at_any_age
@for_each_kind_of_policy
def test_a_state_that_is_none_is_refused(policy: str, age: str) -> None:
    pair = make_pair(policy, age)
    writer = type(pair[0].writer).__name__
    assert_refused(
        pair, lambda buffer: buffer.load_state_dict({}), ValueError, "state", writer
    )


@pytest.mark.parametrize("part", ["_storage", "_writer", "_sampler", "_transforms"])
@for_each_kind_of_policy
def test_a_state_without_one_of_its_parts_changes_nothing(
    policy: str, part: str
) -> None:
    buffer = played(policy)
    settle(buffer)
    state = played(policy, seed=8).state_dict()
    del state[part]
    before = complete_state(buffer)
    with pytest.raises((KeyError, ValueError)):
        buffer.load_state_dict(state)
    assert differences(before, complete_state(buffer)) == []


@at_any_age
@for_each_kind_of_policy
def test_loading_from_a_folder_that_is_not_there_says_so(
    policy: str, age: str, tmp_path: Path
) -> None:
    folder = tmp_path / "nowhere"
    assert_refused(
        make_pair(policy, age),
        lambda buffer: buffer.loads(folder),
        FileNotFoundError,
        "no replay buffer was saved",
        str(folder),
    )
    assert not folder.exists()
