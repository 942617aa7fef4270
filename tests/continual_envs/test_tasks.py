"""Tasks cut a data set into parts that are the same for every seed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from continual_envs import make_stream
from continual_envs.datasets import Dataset, Part, load_dataset
from continual_envs.tasks import (
    Task,
    permute_pixels,
    split_by_column,
    split_by_label,
)
from tests.continual_envs.helpers import (
    numbered_dataset,
    numbers_of,
    permutation_of,
    play,
)

Cut = Callable[[Dataset], list[Task]]


@pytest.mark.parametrize("num_tasks", [1, 2, 5, 10])
def test_a_split_has_equally_many_classes_a_task_in_the_order_of_labels(
    num_tasks: int,
) -> None:
    digits = load_dataset("Digits")
    tasks = split_by_label(digits, num_tasks)
    assert len(tasks) == num_tasks
    size = 10 // num_tasks
    for number, task in enumerate(tasks):
        mine = set(range(number * size, (number + 1) * size))
        train = [i for i, y in enumerate(digits.train.targets.tolist()) if y in mine]
        test = [i for i, y in enumerate(digits.test.targets.tolist()) if y in mine]
        assert sorted(task.train.tolist()) == train
        assert sorted(task.test.tolist()) == test
        assert task.permutation is None


@pytest.mark.parametrize(
    ("cut", "dataset"),
    [
        (partial(split_by_label, num_tasks=5), "Digits"),
        (partial(split_by_column, num_tasks=5, column=0), "Diabetes"),
    ],
)
def test_a_split_has_every_sample_once(cut: Cut, dataset: str) -> None:
    data = load_dataset(dataset)
    tasks = cut(data)
    train = np.concatenate([task.train for task in tasks])
    test = np.concatenate([task.test for task in tasks])
    assert sorted(train.tolist()) == list(range(len(data.train)))
    assert sorted(test.tolist()) == list(range(len(data.test)))


@pytest.mark.parametrize("num_tasks", [3, 4, 7, 20])
def test_classes_that_do_not_divide_are_refused(num_tasks: int) -> None:
    with pytest.raises(ValueError, match=f"10 classes of Digits .* {num_tasks} equal"):
        split_by_label(load_dataset("Digits"), num_tasks)


def test_numbers_cannot_be_split_by_label() -> None:
    with pytest.raises(ValueError, match="Diabetes cannot be cut by label"):
        split_by_label(load_dataset("Diabetes"), 5)


def test_permuted_tasks_have_all_samples_with_the_pixels_moved_its_own_way() -> None:
    data = numbered_dataset()
    tasks = permute_pixels(data, 20)
    assert len(tasks) == 20
    ways = set()
    for task in tasks:
        shown = task.show(data.train.inputs[task.train])
        assert numbers_of(shown).tolist() == list(range(len(data.train)))
        assert task.test.tolist() == list(range(len(data.test)))
        (way,) = {permutation_of(image) for image in shown}
        assert sorted(way) == list(range(9))
        ways.add(way)
    assert len(ways) == 20


def test_colours_are_permuted_as_pixels_are() -> None:
    colours = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 2, 2)
    part = Part(colours, np.array([0, 1]))
    (task,) = permute_pixels(Dataset("Colours", part, part, 2), 1)
    shown = task.show(colours)
    assert shown.shape == colours.shape
    assert sorted(shown[0].reshape(-1).tolist()) == list(range(12))
    np.testing.assert_array_equal(shown[1], shown[0] + 12)


def test_permutations_are_the_same_in_every_release() -> None:
    # These numbers are part of the benchmark: results compare only if they stay.
    expected = np.random.Generator(np.random.PCG64(2022))
    tasks = make_stream("PermutedDigits").tasks
    for task in tasks:
        assert task.permutation is not None
        assert task.permutation.tolist() == expected.permutation(64).tolist()


def test_a_task_without_a_permutation_shows_inputs_as_they_are() -> None:
    data = numbered_dataset()
    task = Task(np.arange(3), np.arange(3))
    np.testing.assert_array_equal(task.show(data.train.inputs), data.train.inputs)


def test_a_split_by_column_has_neighbouring_ranges_of_equal_size() -> None:
    data = load_dataset("Diabetes")
    tasks = split_by_column(data, 5, column=2)
    sizes = [len(task.train) for task in tasks]
    assert max(sizes) - min(sizes) <= 12  # equal values stay together
    lowest = -np.inf
    for task in tasks:
        train = data.train.inputs[task.train, 2]
        assert train.min() > lowest
        lowest = train.max()
    highest = -np.inf
    for task in tasks:
        test = data.test.inputs[task.test, 2]
        assert test.min() > highest
        highest = test.max()


@pytest.mark.parametrize(
    "benchmark", ["SplitDigits", "PermutedDigits", "SplitDiabetes"]
)
def test_tasks_are_the_same_for_all_seeds(benchmark: str) -> None:
    def composition(seed: int) -> list[list[bytes]]:
        env = make_stream(benchmark, batch_size=50)
        inputs = play(env, seed).inputs
        ends = np.cumsum([len(task.train) for task in env.tasks])
        parts = np.split(inputs, ends[:-1])
        return [sorted(one.tobytes() for one in part) for part in parts]

    assert composition(0) == composition(1) == composition(17)
