"""Every training sample comes exactly as often as it should, tasks in order."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from continual_envs import make_stream
from tests.continual_envs.helpers import (
    Episode,
    make_numbered,
    numbered_dataset,
    numbers_of,
    permutation_of,
    play,
)

laws = settings(deadline=None, derandomize=True, max_examples=30)
seeds = st.integers(0, 2**31 - 1)
batch_sizes = st.none() | st.integers(1, 200)
KINDS = ["SplitDigits", "PermutedDigits", "DriftDigits"]
PLAIN = numbered_dataset().train.inputs[:1]
GROUPS = {"SplitDigits": 5, "PermutedDigits": 20, "DriftDigits": 10}

options = st.fixed_dictionaries(
    {
        "epochs": st.integers(1, 3),
        "imbalance": st.integers(1, 4),
        "validation": st.booleans(),
    }
)


def times_seen(benchmark: str, episode: Episode) -> dict[int, Counter[int]]:
    """How often each sample was seen, by group, from the pixels alone.

    A group is a task, or a class that drifts by.
    """
    numbers = numbers_of(episode.inputs)
    if benchmark == "SplitDigits":
        groups = episode.labels // 2
    elif benchmark == "DriftDigits":
        groups = episode.labels
    else:
        ways: dict[Any, int] = {}
        groups = np.array(
            [ways.setdefault(permutation_of(x), len(ways)) for x in episode.inputs]
        )
    seen: dict[int, Counter[int]] = {}
    for group, number in zip(groups.tolist(), numbers.tolist(), strict=True):
        seen.setdefault(group, Counter())[number] += 1
    return seen


def held_out_numbers(env: Any) -> set[int]:
    return {
        int(number)
        for one in env.evaluation_sets
        for number in numbers_of(one.inputs)
        if number < len(env.dataset.train)
    }


@laws
@given(benchmark=st.sampled_from(KINDS), chosen=options, batch=batch_sizes, seed=seeds)
def test_every_sample_comes_epochs_times_and_of_the_imbalanced_task_r_times_that(
    benchmark: str, chosen: dict[str, Any], batch: int | None, seed: int
) -> None:
    data = numbered_dataset()
    env = make_numbered(benchmark, data, batch_size=batch, **chosen)
    seen = times_seen(benchmark, play(env, seed))
    held_out = held_out_numbers(env)
    assert bool(held_out) == chosen["validation"]
    labels = data.train.targets.tolist()
    expected: dict[int, Counter[int]] = {}
    for group in range(GROUPS[benchmark]):
        often = group == seed % GROUPS[benchmark]
        times = chosen["epochs"] * (chosen["imbalance"] if often else 1)
        mine = Counter()
        for number, label in enumerate(labels):
            in_group = {
                "SplitDigits": label // 2 == group,
                "PermutedDigits": True,
                "DriftDigits": label == group,
            }[benchmark]
            if in_group and number not in held_out:
                mine[number] = times
        if mine:
            expected[group] = mine
    assert seen == expected


@laws
@given(benchmark=st.sampled_from(KINDS), chosen=options, seed=seeds, data=st.data())
def test_the_imbalanced_task_can_be_chosen(
    benchmark: str, chosen: dict[str, Any], seed: int, data: st.DataObject
) -> None:
    task = data.draw(st.integers(0, GROUPS[benchmark] - 1))
    env = make_numbered(benchmark, batch_size=64, imbalanced_task=task, **chosen)
    seen = times_seen(benchmark, play(env, seed))
    assert env.imbalanced_task == task
    for group, counts in seen.items():
        times = chosen["imbalance"] if group == task else 1
        assert set(counts.values()) == {times * chosen["epochs"]}


@laws
@given(
    benchmark=st.sampled_from(KINDS),
    chosen=options,
    one=batch_sizes,
    other=batch_sizes,
    seed=seeds,
)
def test_the_batch_size_does_not_change_the_order(
    benchmark: str,
    chosen: dict[str, Any],
    one: int | None,
    other: int | None,
    seed: int,
) -> None:
    orders = []
    for batch in (one, other):
        episode = play(make_numbered(benchmark, batch_size=batch, **chosen), seed)
        orders.append(episode.inputs.tobytes() + episode.labels.tobytes())
    assert orders[0] == orders[1]


@laws
@given(
    benchmark=st.sampled_from(["SplitDigits", "PermutedDigits"]),
    chosen=options,
    batch=batch_sizes,
    seed=seeds,
)
def test_tasks_come_in_order_and_boundaries_are_the_steps_that_finish_them(
    benchmark: str, chosen: dict[str, Any], batch: int | None, seed: int
) -> None:
    env = make_numbered(benchmark, batch_size=batch, **chosen)
    episode = play(env, seed)
    if benchmark == "SplitDigits":
        tasks = (episode.labels // 2).tolist()
    else:
        ways = [permutation_of(task.show(PLAIN)) for task in env.tasks]
        tasks = [ways.index(permutation_of(x)) for x in episode.inputs]
    assert tasks == sorted(tasks)
    last = {task: place for place, task in enumerate(tasks)}
    size = batch or 1
    expected = [math.ceil((last[task] + 1) / size) for task in sorted(last)]
    assert env.boundaries == expected
    assert env.boundaries[-1] == env.num_steps == len(episode.rewards)


def test_a_drift_stream_has_one_boundary_at_its_end() -> None:
    env = make_numbered("DriftDigits", batch_size=16)
    play(env, 0)
    assert env.boundaries == [env.num_steps] == [5]


def test_permuted_tasks_come_in_the_order_of_their_permutations() -> None:
    env = make_stream("PermutedDigits", batch_size=1500)
    data = env.dataset.train
    episode = play(env, 4)
    for task, batch in enumerate(episode.observations[:-1]):
        permutation = env.tasks[task].permutation
        assert permutation is not None
        expected = Counter()
        for image, label in zip(data.inputs, data.targets, strict=True):
            expected[image.reshape(-1)[permutation].tobytes(), int(label)] += 1
        labels = episode.infos[task + 1]["label"].tolist()
        shown = [image.tobytes() for image in batch]
        assert Counter(zip(shown, labels, strict=True)) == expected


@pytest.mark.parametrize("benchmark", ["SplitDigits", "DriftDigits"])
@pytest.mark.parametrize("batch_size", [None, 128])
def test_every_digit_of_a_real_stream_is_counted_by_its_bytes(
    benchmark: str, batch_size: int | None
) -> None:
    env = make_stream(
        benchmark, batch_size=batch_size, epochs=2, imbalance=3, imbalanced_task=1
    )
    data = env.dataset.train
    episode = play(env, 8)
    expected: Counter[tuple[bytes, int]] = Counter()
    for image, label in zip(data.inputs, data.targets.tolist(), strict=True):
        group = label // 2 if benchmark == "SplitDigits" else label
        expected[image.tobytes(), label] += 6 if group == 1 else 2
    shown = [image.tobytes() for image in episode.inputs]
    assert Counter(zip(shown, episode.labels.tolist(), strict=True)) == expected


@pytest.mark.parametrize("validation", [False, True])
def test_every_patient_of_a_regression_stream_is_counted_by_bytes(
    validation: bool,
) -> None:
    env = make_stream(
        "SplitDiabetes", batch_size=50, epochs=2, imbalance=3, validation=validation
    )
    episode = play(env, 2)
    assert env.imbalanced_task == 2
    out = {x.tobytes() for one in env.evaluation_sets for x in one.inputs}
    expected = Counter()
    for number, task in enumerate(env.tasks):
        for sample in task.train:
            image = env.dataset.train.inputs[sample].tobytes()
            if image not in out:
                expected[image] += 6 if number == 2 else 2
    assert Counter(x.tobytes() for x in episode.inputs) == expected


@pytest.mark.parametrize(
    ("benchmark", "each"), [("SplitDigits", 2), ("DriftDigits", 1)]
)
def test_ten_seeds_visit_every_task_equally_often_as_the_imbalanced_one(
    benchmark: str, each: int
) -> None:
    visited: Counter[int] = Counter()
    for seed in range(10):
        env = make_stream(benchmark, batch_size=500, imbalance=3)
        labels = play(env, seed).labels
        groups = labels // 2 if benchmark == "SplitDigits" else labels
        plain = env.dataset.train.targets
        plain = plain // 2 if benchmark == "SplitDigits" else plain
        ratio = np.bincount(groups) / np.bincount(plain)
        assert sorted(ratio.tolist()) == [1.0] * (len(ratio) - 1) + [3.0]
        visited[int(ratio.argmax())] += 1
        assert env.imbalanced_task == ratio.argmax()
    assert set(visited.values()) == {each}
    assert len(visited) == GROUPS[benchmark]


def test_twenty_seeds_visit_each_of_twenty_tasks_once() -> None:
    visited = set()
    for seed in range(20):
        env = make_numbered("PermutedDigits", batch_size=100, imbalance=2)
        lengths = Counter(permutation_of(x) for x in play(env, seed).inputs)
        visited.add(max(lengths, key=lengths.__getitem__))
    assert len(visited) == 20
