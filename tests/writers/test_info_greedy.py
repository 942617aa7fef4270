"""InfoGS: the best item of a batch replaces the worst of the memory; InfoGS-RS too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .information import CRITERIA
from .information import Case as AnyCase
from .reference import chunkings, examples, extend_all, kept_ids, make_stream


def Case(capacity: int, **options: Any) -> AnyCase:  # noqa: N802
    return AnyCase(capacity, greedy=True, **options)


cases = st.builds(
    Case,
    capacity=st.integers(1, 12),
    criterion=st.sampled_from(CRITERIA),
    gamma=st.sampled_from([-2.0, -0.5, 0.0, 1.0]),
    gamma_learnability=st.sampled_from([-100.0, -1.0, 0.0, 0.5]),
    reservoir=st.booleans(),
    decay=st.sampled_from([None, 0.9, 0.99]),
    num_classes=st.sampled_from([None, 3]),
    seed=st.integers(0, 2**62),
)


@given(
    case=cases,
    count=st.integers(1, 40),
    feature_dim=st.integers(2, 20),
    scale=st.sampled_from([0.1, 1.0, 10.0]),
    data=st.data(),
)
@examples(80)
def test_every_decision_is_that_of_the_algorithm(
    case: AnyCase, count: int, feature_dim: int, scale: float, data: st.DataObject
) -> None:
    stream = make_stream(
        data.draw(st.integers(0, 2**32)),
        count,
        feature_dim=feature_dim,
        num_classes=case.num_classes,
        num_outputs=2,
        scale=scale,
    )
    case.check(stream, data.draw(chunkings(count)))


@given(case=cases, count=st.integers(1, 40), data=st.data())
def test_which_of_two_equal_items_is_kept_does_not_matter(
    case: AnyCase, count: int, data: st.DataObject
) -> None:
    # Random numbers and fading weights would tell equal items apart.
    case = replace(case, reservoir=False, decay=None)
    stream = make_stream(
        data.draw(st.integers(0, 2**32)),
        count,
        num_classes=case.num_classes,
        distinct=6,
    )
    sizes = data.draw(chunkings(count))
    buffer = case.buffer()
    extend_all(buffer, stream, sizes)
    run = case.run(stream, sizes, buffer.writer.seed)
    first = stream["feature"][:, 0]
    kept = buffer[:]["feature"][:, 0].tolist()
    assert sorted(kept) == sorted(first[run.memory].tolist())
    assert buffer.reservoir_count == run.reservoir_count


LONG = make_stream(1, 480, feature_dim=6, num_classes=5)


@pytest.mark.parametrize("decay", [None, 0.99])
@pytest.mark.parametrize("reservoir", [False, True], ids=["InfoGS", "InfoGS-RS"])
def test_a_long_stream_with_both_thresholds(
    reservoir: bool, decay: float | None
) -> None:
    case = Case(
        30,
        gamma=-0.4,
        gamma_learnability=-0.5,
        reservoir=reservoir,
        decay=decay,
        num_classes=5,
    )
    _, run = case.check(LONG, [32] * 15)
    chosen = run.reservoir_count - 30
    written = sum(slot >= 0 for slot in run.slots[30:])
    assert 20 < chosen < 400
    assert 10 < written <= chosen


def test_a_long_stream_in_the_kernel_form() -> None:
    stream = make_stream(2, 300, feature_dim=30, num_outputs=2)
    case = Case(12, gamma=-0.6, gamma_learnability=-1.0, decay=0.99)
    buffer, run = case.check(stream, [32] * 9 + [12])
    assert buffer.posterior is not None
    assert buffer.posterior.form == "kernel"
    assert run.reservoir_count > 12 + 10


@pytest.mark.parametrize(
    ("capacity", "feature_dim", "scale"), [(1, 23, 1.0), (5, 20, 10.0), (30, 5, 30.0)]
)
def test_many_swaps_in_a_batch_cost_no_precision(
    capacity: int, feature_dim: int, scale: float
) -> None:
    stream = make_stream(1, 70, feature_dim=feature_dim, scale=scale)
    Case(capacity, gamma=-1e6, gamma_learnability=-1e6).check(stream, [40, 30])


@pytest.mark.parametrize("changed", ["gamma", "gamma_learnability"])
def test_either_threshold_alone_makes_a_difference(changed: str) -> None:
    strict = Case(50, gamma=-0.4, gamma_learnability=-0.5, num_classes=5)
    lenient = replace(strict, **{changed: -100.0})
    memories = []
    for case in (strict, lenient):
        buffer = case.buffer()
        extend_all(buffer, LONG[:320], [32] * 10)
        memories.append(set(kept_ids(buffer)))
    assert memories[0] != memories[1]


@pytest.mark.parametrize("sizes", [[40], [5, 35], [10, 30]], ids=str)
def test_one_batch_may_fill_the_memory_and_select(sizes: list[int]) -> None:
    case = Case(10, gamma=-1.0, gamma_learnability=-1.0)
    _, run = case.check(make_stream(4, 40), sizes)
    assert run.reservoir_count > 10


def test_a_fill_larger_than_a_block_makes_no_difference() -> None:
    case = Case(270, gamma=-1.0, gamma_learnability=-100.0)
    _, run = case.check(make_stream(5, 274, feature_dim=2), [274])
    assert run.reservoir_count > 270


@pytest.mark.parametrize("threshold", ["gamma", "gamma_learnability"])
def test_a_threshold_out_of_reach_keeps_the_memory_as_it_is(threshold: str) -> None:
    buffer = replace(Case(10, gamma=-5.0), **{threshold: 1e6}).buffer()
    slots = extend_all(buffer, make_stream(6, 100), [20] * 5)
    assert slots == [*range(10), *[-1] * 90]
    assert buffer.reservoir_count == 10
    moments = buffer.moments, buffer.writer.learnability_moments
    assert [each.weight for each in moments] == [100, 100]  # of all offered items


def test_the_learnability_threshold_keeps_an_outlier_out() -> None:
    stream = make_stream(7, 200, feature_dim=2, noise=0.1)
    outlier = stream[-1:].clone()
    outlier["target"] += 10
    kept = []
    for gamma_learnability in (-1e6, -1.0):
        case = Case(20, criterion=CRITERIA[1], gamma_learnability=gamma_learnability)
        buffer = case.buffer()
        buffer.extend(stream.clone())
        kept.append(bool(buffer.extend(outlier.clone()) >= 0))
    assert kept == [True, False]


def test_without_thresholds_every_item_is_chosen_and_stored_once() -> None:
    buffer = Case(10, gamma=-1e6, gamma_learnability=-1e6).buffer()
    extend_all(buffer, make_stream(9, 100), [10] * 10)
    assert buffer.reservoir_count == 100
    assert len(set(kept_ids(buffer))) == 10


def test_the_reservoir_lets_few_of_the_chosen_in() -> None:
    stream = make_stream(10, 150)
    case = Case(10, gamma=-1e6, gamma_learnability=-1e6)
    written = {}
    for reservoir in (False, True):
        buffer = replace(case, reservoir=reservoir).buffer()
        slots = extend_all(buffer, stream, [1] * 150)
        assert buffer.reservoir_count == 150
        written[reservoir] = sum(slot >= 0 for slot in slots)
    assert written[False] == 150
    # As in reservoir sampling: M (1 + 1 / (M + 1) + ... + 1 / n) of them, about 37.
    assert 24 < written[True] < 50
