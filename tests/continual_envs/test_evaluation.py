"""Learners are judged by samples that their stream never shows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from continual_envs import load_dataset, make_stream
from tests.continual_envs.helpers import (
    assert_same,
    make_numbered,
    numbered_dataset,
    numbers_of,
    permutation_of,
    play,
)

laws = settings(deadline=None, derandomize=True, max_examples=40)
seeds = st.integers(0, 2**31 - 1)
KINDS = ["SplitDigits", "PermutedDigits", "DriftDigits"]


@laws
@given(benchmark=st.sampled_from(KINDS), seed=seeds)
def test_a_tenth_of_each_class_is_held_out_and_never_shown(
    benchmark: str, seed: int
) -> None:
    data = numbered_dataset(train=300, test=30)
    env = make_numbered(benchmark, data, batch_size=32, validation=True)
    shown = set(numbers_of(play(env, seed).inputs).tolist())
    held_out = set()
    for one in env.evaluation_sets:
        numbers = numbers_of(one.inputs)
        assert one.targets.tolist() == data.train.targets[numbers].tolist()
        assert len(set(numbers.tolist())) == len(numbers) == len(one)
        held_out |= set(numbers.tolist())
    assert not shown & held_out
    assert shown | held_out == set(range(300))
    sizes = Counter(data.train.targets.tolist())
    out = Counter(data.train.targets[sorted(held_out)].tolist())
    for label, size in sizes.items():
        assert abs(out[label] - size / 10) <= 0.5


@pytest.mark.parametrize("benchmark", KINDS)
def test_samples_held_out_are_sorted_into_the_tasks(benchmark: str) -> None:
    env = make_numbered(benchmark, numbered_dataset(train=300), validation=True)
    env.reset(seed=3)
    sets = env.evaluation_sets
    if benchmark == "SplitDigits":
        assert len(sets) == 5
        for number, one in enumerate(sets):
            assert set((one.targets // 2).tolist()) <= {number}
    elif benchmark == "DriftDigits":
        assert len(sets) == 1
    else:
        assert len(sets) == 20
        # The same samples in every task, seen through its own permutation.
        assert len({tuple(numbers_of(one.inputs).tolist()) for one in sets}) == 1
        ways = [permutation_of(one.inputs[0]) for one in sets]
        inputs = play(env, 3).inputs
        assert ways == list(dict.fromkeys(permutation_of(x) for x in inputs))


@pytest.mark.parametrize("benchmark", [*KINDS, "SplitDiabetes"])
def test_the_seed_decides_who_is_held_out(benchmark: str) -> None:
    def held_out(seed: int) -> list[bytes]:
        env = make_stream(benchmark, validation=True)
        env.reset(seed=seed)
        return [one.inputs.tobytes() for one in env.evaluation_sets]

    assert held_out(0) == held_out(0)
    assert held_out(0) != held_out(1)


def test_a_tenth_of_each_task_of_a_regression_is_held_out() -> None:
    env = make_stream("SplitDiabetes", batch_size=10, validation=True)
    shown = {x.tobytes() for x in play(env, 0).inputs}
    for task, one in zip(env.tasks, env.evaluation_sets, strict=True):
        assert abs(len(one) - len(task.train) / 10) <= 0.5
        assert not shown & {x.tobytes() for x in one.inputs}


def test_a_class_without_a_tenth_to_hold_out_is_refused() -> None:
    labels = np.repeat([0, 1, 2], [20, 5, 20])
    data = (np.arange(45.0)[:, None], labels)
    with pytest.raises(ValueError, match="class 1 has 5 training samples.*needs 6"):
        make_stream(data, test=data, validation=True)
    make_stream(data, test=data)
    labels[19] = 1
    env = make_stream(data, test=data, validation=True)
    env.reset(seed=0)
    assert [len(one) for one in env.evaluation_sets] == [2, 1, 2]


def test_a_task_without_a_tenth_to_hold_out_is_refused() -> None:
    inputs = np.random.default_rng(0).normal(size=(44, 2))
    tasks = np.repeat([0, 1], [40, 4])
    options = {"task_ids": tasks, "test_task_ids": tasks, "validation": True}
    numbers = (inputs, inputs[:, 0])
    with pytest.raises(ValueError, match="task 1 has 4 training samples.*needs 6"):
        make_stream(numbers, test=numbers, **options)
    # Of classes a tenth is held out: whether a small task has some is up to the seed.
    classes = (inputs, np.arange(44) % 2)
    env = make_stream(classes, test=classes, **options)
    env.reset(seed=0)
    before = [one.inputs for one in env.evaluation_sets]
    assert list(map(len, before)) == [3, 1]
    with pytest.raises(ValueError, match="task 1 has 4 .*none .*with seed 1: give"):
        env.reset(seed=1)
    assert_same([one.inputs for one in env.evaluation_sets], before)


@pytest.mark.parametrize("benchmark", KINDS)
def test_without_validation_the_test_data_of_each_task_are_used(benchmark: str) -> None:
    data = numbered_dataset()
    env = make_numbered(benchmark, data)
    sets = env.evaluation_sets  # known before a reset: no seed changes them
    everything = list(range(80, 110))
    for number, one in enumerate(sets):
        numbers = numbers_of(one.inputs)
        assert one.targets.tolist() == data.test.targets[numbers - 80].tolist()
        if benchmark == "SplitDigits":
            mine = [n for n in everything if data.test.targets[n - 80] // 2 == number]
            assert sorted(numbers.tolist()) == mine
        else:
            assert sorted(numbers.tolist()) == everything
    assert (
        len(sets)
        == {"SplitDigits": 5, "PermutedDigits": 20, "DriftDigits": 1}[benchmark]
    )
    env.reset(seed=9)
    for before, after in zip(sets, env.evaluation_sets, strict=True):
        np.testing.assert_array_equal(before.inputs, after.inputs)
        np.testing.assert_array_equal(before.targets, after.targets)


def test_the_test_sets_of_a_permuted_stream_see_the_permutations_of_its_tasks() -> None:
    env = make_numbered("PermutedDigits", batch_size=40)
    shown = list(dict.fromkeys(permutation_of(x) for x in play(env, 0).inputs))
    judged = [{permutation_of(x) for x in one.inputs} for one in env.evaluation_sets]
    assert judged == [{way} for way in shown]


@laws
@given(size=st.integers(1, 400))
def test_batches_are_the_whole_in_order(size: int) -> None:
    for one in make_stream("PermutedDigits").evaluation_sets[:2]:
        batches = list(one.batches(size))
        assert all(len(x) == len(y) == size for x, y in batches[:-1])
        assert 1 <= len(batches[-1][1]) <= size
        inputs = np.concatenate([x for x, _ in batches])
        np.testing.assert_array_equal(inputs, one.inputs)
        targets = np.concatenate([y for _, y in batches])
        np.testing.assert_array_equal(targets, one.targets)


def test_who_writes_into_an_evaluation_set_changes_nothing() -> None:
    one = make_stream("SplitDigits").evaluation_sets[0]
    before = one.inputs.copy(), one.targets.copy()
    one.inputs[:] = 0
    one.targets[:] = 7
    for inputs, targets in one.batches(10):
        inputs[:] = 0
        targets[:] = 7
    np.testing.assert_array_equal(one.inputs, before[0])
    np.testing.assert_array_equal(one.targets, before[1])


def test_real_digits_that_are_held_out_are_a_tenth_of_each_class() -> None:
    env = make_stream("SplitDigits", validation=True)
    env.reset(seed=1)
    targets = np.concatenate([one.targets for one in env.evaluation_sets])
    sizes = np.bincount(load_dataset("Digits").train.targets)
    assert np.abs(np.bincount(targets) - sizes / 10).max() <= 0.5
