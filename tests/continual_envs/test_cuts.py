"""Own data are cut by label, by a column, by given ids, permuted, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from continual_envs import CUTS, make_dataset, make_stream
from tests.continual_envs.helpers import play

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(240, 3)).astype(np.float32)
Y = RANDOM.permutation(np.arange(240) % 12)


def tasks_of(env: Any) -> list[Any]:
    """The training samples of each task as the stream shows them, one epoch."""
    inputs = play(env, 0).inputs
    ends = np.cumsum([len(task.train) for task in env.tasks])
    return np.split(inputs, ends[:-1])


@st.composite
def orders(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    order = draw(st.permutations(range(12)))
    cuts = sorted(draw(st.sets(st.integers(1, 11), max_size=6)))
    sizes = np.diff([0, *cuts, 12]).tolist()
    return list(order), sizes


@given(orders())
def test_classes_come_in_the_given_order_and_numbers(
    case: tuple[list[int], list[int]],
) -> None:
    order, sizes = case
    env = make_stream((X, Y), class_order=order, class_sizes=sizes, batch_size=50)
    labels = play(env, 3).labels.tolist()
    start, left = 0, iter(order)
    for size, task, judged in zip(sizes, env.tasks, env.evaluation_sets, strict=True):
        classes = {next(left) for _ in range(size)}
        mine = labels[start : start + len(task.train)]
        start += len(task.train)
        assert set(mine) == classes == set(judged.targets.tolist())
    assert start == len(labels) == 192


def test_without_sizes_the_classes_of_an_order_are_split_equally() -> None:
    env = make_stream((X, Y), tasks=4, class_order=range(11, -1, -1))
    found = [set(one.targets.tolist()) for one in env.evaluation_sets]
    assert found == [{11, 10, 9}, {8, 7, 6}, {5, 4, 3}, {2, 1, 0}]


def test_by_default_each_class_is_a_task_and_numbers_are_not_cut() -> None:
    assert len(make_stream((X, Y)).tasks) == 12
    assert len(make_stream((X, X[:, 0])).tasks) == 1


@pytest.mark.parametrize("column", [0, 2, -1])
@pytest.mark.parametrize("targets", [Y, X[:, 1]])
def test_a_column_is_cut_into_ranges_of_equally_many_samples(
    column: int, targets: Any
) -> None:
    env = make_stream((X, targets), column=column, tasks=4, batch_size=50)
    pieces = tasks_of(env)
    assert [len(piece) for piece in pieces] == [48] * 4
    values = env.dataset.train.inputs[:, column]
    bounds = np.sort(values).reshape(4, 48)
    for piece, expected in zip(pieces, bounds, strict=True):
        np.testing.assert_array_equal(np.sort(piece[:, column]), expected)


def test_given_ids_are_tasks_in_their_order() -> None:
    years = 1990 + 10 * (np.arange(240) % 3)
    how = {"batch_size": 50, "expose_task_id": True, "standardize": False}
    env = make_stream((X, Y), task_ids=years, **how)
    year_of = {x.tobytes(): year for x, year in zip(X, years.tolist(), strict=True)}
    episode = play(env, 0)
    seen = [year_of[x.tobytes()] for x in episode.inputs]
    assert seen == sorted(seen)
    assert [1990 + 10 * task for task in episode.task_ids] == seen
    for task, one in enumerate(env.evaluation_sets):
        assert {year_of[x.tobytes()] for x in one.inputs} == {1990 + 10 * task}


def test_given_ids_of_test_data_go_along() -> None:
    env = make_stream(
        (X, X[:, 0]),
        test=(X[:6], X[:6, 0]),
        task_ids=np.arange(240) % 2,
        test_task_ids=[0, 0, 0, 0, 1, 1],
    )
    assert [len(one) for one in env.evaluation_sets] == [4, 2]


def test_images_can_be_permuted_and_drift() -> None:
    images = RANDOM.integers(0, 256, (240, 4, 4), dtype=np.uint8)
    env = make_stream((images, Y), cut="permuted", tasks=3, batch_size=64)
    first, second, _ = tasks_of(env)
    assert not np.array_equal(np.sort(first, 0), np.sort(second, 0))
    drifting = make_stream((images, Y), cut="drift", width=0.1, batch_size=64)
    labels = play(drifting, 0).labels
    assert np.corrcoef(labels, np.arange(192))[0, 1] > 0.9


def test_one_task_has_everything() -> None:
    env = make_stream((X, Y), cut="none", batch_size=64)
    env.reset(seed=0)
    assert env.boundaries == [3]
    assert len(set(play(env, 0).labels[:64].tolist())) > 8


FEW = np.repeat([0.0, 1.0], 120)
IMAGES = np.zeros((240, 4, 4), dtype=np.uint8)
NEEDS_TEST_IDS = {"test": (X, Y), "task_ids": Y, "cut": "given"}


@pytest.mark.parametrize(
    ("data", "options", "told"),
    [
        (
            (X, Y),
            {"tasks": 5},
            "12 classes of arrays cannot be .* 5 equal.*class_sizes",
        ),
        ((X, Y), {"class_sizes": [3, 3]}, r"add up to the 12 classes .*got \[3, 3\]"),
        ((X, Y), {"class_sizes": [6, 6], "tasks": 3}, "for 3 tasks, got"),
        ((X, Y), {"class_sizes": [12, 0]}, "class_sizes .* from 1 on"),
        ((X, Y), {"class_sizes": 6}, "class_sizes must be a list .*got 6"),
        ((X, Y), {"class_order": [0, 0]}, "class_order must have each class from 0 to"),
        ((X, Y), {"class_order": ["a"]}, "class_order must be a list of whole numbers"),
        ((X, X[:, 0]), {"cut": "label"}, "numbers. Choose cut='column'"),
        ((IMAGES, Y), {"cut": "column"}, r"vectors, those of arrays .*\(1, 4, 4\)"),
        ((X, Y), {"column": 3}, "column must be a whole number from 0 to 2, got 3"),
        ((X, Y), {"column": 0.5}, "column must be a whole number from 0 to 2, got 0.5"),
        ((FEW[:, None], Y), {"column": 0}, "2 different values, .* into 5 ranges"),
        ((X, Y), {"cut": "given"}, "cut='given' needs task_ids"),
        ((X, Y), NEEDS_TEST_IDS, "cut='given' needs test_task_ids"),
        (
            (X, Y),
            NEEDS_TEST_IDS | {"test_task_ids": Y + 1},
            "task 12 appears only in the test set",
        ),
        (
            (X, Y),
            NEEDS_TEST_IDS | {"test_task_ids": Y % 2},
            "task 2 of arrays, cut by 'given', has no test sample",
        ),
        ((X, Y), {"cut": "labels"}, "cut must be one of 'label'.*got 'labels'"),
        ((X, Y), {"tasks": 0}, "tasks must be a whole number of at least 1, got 0"),
    ],
)
def test_a_cut_that_cannot_be_made_is_refused_in_one_line(
    data: Any, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        make_stream(data, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cut", CUTS)
def test_options_of_other_cuts_are_refused(cut: str) -> None:
    data = make_dataset((X, Y), task_ids=Y)
    values: dict[str, Any] = {
        "tasks": 2,
        "column": 0,
        "class_order": range(12),
        "class_sizes": [6, 6],
        "width": 0.5,
        "expose_task_id": True,
    }
    for option, value in values.items():
        if option in CUTS[cut]:
            make_stream(data, cut=cut, **{option: value})
        else:
            told = f"cut='{cut}' got an .* argument '{option}': it goes with cut='"
            with pytest.raises(TypeError, match=told):
                make_stream(data, cut=cut, **{option: value})
