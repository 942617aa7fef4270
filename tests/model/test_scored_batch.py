"""A batch is checked before it counts, and scored against what a memory knows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from info_replay import MIC, Criterion
from info_replay.model.scored_batch import ScoredBatch
from tests.reference import Memory

from .helpers import Stored, assert_close, assert_leverage, make_memory, tensor

CLASSES = 3


def draw(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    return tensor(rng.normal(size=(count, 4))), tensor(rng.normal(size=(count, 2)))


def make_batch(
    features: Tensor, targets: Tensor, num_classes: int | None = None
) -> ScoredBatch:
    """Held against a memory of six items."""
    known = draw(6, seed=1)[0].to(features.dtype)
    if num_classes is None:
        stored = Stored(known, draw(6, seed=1)[1].to(targets.dtype))
    else:
        stored = Stored(known, torch.arange(6, dtype=targets.dtype) % num_classes)
    return ScoredBatch(make_memory(stored, num_classes), features, targets)


@np.errstate(all="ignore")  # as writers do: bad values are found after the transfer
def score(batch: ScoredBatch, criterion: Criterion | None = None) -> np.ndarray:
    candidates = batch.candidates()
    points = batch.fetch(candidates.leverage, candidates.squared_error)
    return batch.score(criterion or MIC(), *points)


class Squares(Criterion):
    """As a user writes one: with methods that tensors have and arrays do not."""

    def __call__(self, leverage: Tensor, squared_error: Tensor, **_: object) -> Tensor:
        return leverage.square().add(squared_error)


def test_scores_are_the_papers() -> None:
    features, targets = draw(5)
    batch = make_batch(features, targets)
    memory = batch.memory.slots.memory()
    points = [*zip(features.numpy(), targets.numpy(), strict=True)]
    expected = np.array([memory.mic(*point, 0.5) for point in points])
    assert_close(score(batch, MIC(0.5)), expected)
    candidates = batch.candidates()
    own = candidates.leverage**2 + candidates.squared_error
    assert_close(score(batch, Squares()), own)


def test_candidates_can_be_held_against_a_memory_that_would_be() -> None:
    features, targets = draw(5)
    batch = make_batch(features, targets)
    memory = batch.memory.slots.memory()
    before = batch.candidates().leverage
    changes = batch.memory.rows([2, 4]), batch.rows[:2], np.array([2, 4])
    kept = [0, 1, 3, 5]
    after = Memory(memory.features[kept], memory.targets[kept]).with_rows(
        features[:2], targets[:2]
    )
    assert_leverage(batch.candidates(changes).leverage, after, features.numpy())
    assert batch.candidates().leverage.tolist() == before.tolist()


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
)
def test_labels_are_told_from_other_numbers(dtype: torch.dtype) -> None:
    features = torch.ones(3, 4)
    score(make_batch(features, torch.tensor([0, 2, 1], dtype=dtype), CLASSES))
    wrong = [3] if dtype == torch.uint8 else [3, -1]
    for label in wrong:
        labels = torch.tensor([0, label, 1], dtype=dtype)
        batch = make_batch(features, labels, CLASSES)
        with pytest.raises(ValueError, match=f"from 0 to 2, got {label} for item 1"):
            score(batch)
        with pytest.raises(ValueError, match=f"from 0 to 2, got {label} for item 1"):
            batch.check()


def test_labels_become_ones_in_the_column_of_their_class() -> None:
    expected = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 1]])
    labels = torch.tensor([2, 0, 7, 2])
    for given in (labels, labels[:, None]):
        batch = make_batch(torch.ones(4, 4), given, CLASSES)
        np.testing.assert_array_equal(batch.rows[:, 5:], expected)


@pytest.mark.parametrize("count", [3, 20_000], ids=["few", "many"])
@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("feature", math.nan, "'feature' must be finite, got nan for item 1"),
        ("feature", -math.inf, "'feature' must be finite, got -inf for item 1"),
        ("feature", 1e9, r"'feature' has values up to 1e\+09, too large"),
        ("target", math.nan, "'target' must be finite, got nan for item 1"),
        ("target", -1e200, r"'target' has values up to 1e\+200, too large"),
    ],
)
def test_numbers_that_cannot_be_computed_with_are_refused(
    entry: str, value: float, message: str, count: int
) -> None:
    entries = dict(zip(("feature", "target"), draw(count), strict=True))
    good = make_batch(entries["feature"].clone(), entries["target"].clone())
    assert len(score(good)) == count
    entries[entry][1, 1] = value
    batch = make_batch(*entries.values())
    with pytest.raises(ValueError, match=message):
        score(batch)
    with pytest.raises(ValueError, match=message):
        batch.check()


class Own(Criterion):
    """Gives what it is told of ones."""

    def __init__(self, spoil: Callable[[Tensor], Tensor]) -> None:
        self.spoil = spoil

    def __call__(self, leverage: Tensor, squared_error: Tensor, **_: object) -> Tensor:
        return self.spoil(torch.ones_like(leverage))

    def __repr__(self) -> str:
        return "Own()"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda ones: ones / 0, r"Own\(\) must give finite scores, got inf for item 0"),
        (lambda ones: ones[:2], r"Own\(\) must give one .* shape \(3,\), got \(2,\)"),
    ],
)
def test_a_criterion_of_the_user_must_give_one_finite_score_per_item(
    spoil: Callable[[Tensor], Tensor], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        score(make_batch(*draw(3)), Own(spoil))


@np.errstate(all="ignore")
def test_numbers_that_are_not_finite_tell_of_features_that_are_too_large() -> None:
    infinite = np.full(3, np.inf)
    with pytest.raises(ValueError, match="'feature' has values up to .* at jitter=0.1"):
        make_batch(*draw(3)).score(MIC(), infinite, infinite)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_features_of_any_precision_are_computed_with_in_that_of_the_memory(
    dtype: torch.dtype,
) -> None:
    features, targets = (part.to(dtype) for part in draw(5))
    double = make_batch(features.double(), targets.double())
    stored = Stored(
        double.memory.slots.leaf("feature").to(dtype).double(),
        double.memory.slots.leaf("target").to(dtype).double(),
    )
    expected = score(
        ScoredBatch(make_memory(stored), features.double(), targets.double())
    )
    assert_close(score(make_batch(features, targets)), expected)


def test_shapes_must_be_those_of_the_memory() -> None:
    features, targets = draw(5)
    memory = make_memory(Stored(*draw(6)))
    with pytest.raises(ValueError, match="'feature' must be 4 wide, got 3"):
        ScoredBatch(memory, features[:, :3], targets)
    with pytest.raises(ValueError, match="'target' must have 2 outputs, got 1"):
        ScoredBatch(memory, features, targets[:, 0])
