"""Wrong options and actions are refused with the value and what was expected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import continual_envs
from continual_envs import StreamEnv, StreamOptions, load_dataset, make_stream

NO_COUNTS = [0, -1, 1.0, 2.5, True, False, "8", float("nan"), [4]]


@pytest.mark.parametrize("value", NO_COUNTS)
@pytest.mark.parametrize("name", ["batch_size", "epochs", "imbalance"])
def test_counts_must_be_whole_numbers_of_at_least_one(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a whole number") as caught:
        make_stream("SplitDigits", **{name: value})
    assert "at least 1" in str(caught.value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("name", ["epochs", "imbalance"])
def test_epochs_and_imbalance_cannot_be_none(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be .*got None"):
        make_stream("SplitDigits", **{name: None})


def test_an_imbalance_below_one_is_refused_through_gymnasium_as_well() -> None:
    with pytest.raises(ValueError, match="imbalance must be .* at least 1.*got 0.5"):
        gymnasium.make("continual_envs/SplitDigits-v0", imbalance=0.5)
    with pytest.raises(ValueError, match="batch_size must be .* at least 1.*got 0"):
        gymnasium.make("continual_envs/SplitDigits-v0", batch_size=0)


@pytest.mark.parametrize("value", [1.0, True, "1", [1]])
def test_the_imbalanced_task_must_be_a_number_of_a_task(value: object) -> None:
    with pytest.raises(ValueError, match="imbalanced_task must be the number") as error:
        make_stream("SplitDigits", imbalanced_task=value)
    assert repr(value) in str(error.value)


@pytest.mark.parametrize(
    ("benchmark", "count"),
    [
        ("SplitDigits", 5),
        ("PermutedDigits", 20),
        ("DriftDigits", 10),
        ("SplitDiabetes", 5),
    ],
)
def test_the_imbalanced_task_must_be_one_of_the_tasks(
    benchmark: str, count: int
) -> None:
    make_stream(benchmark, imbalanced_task=0)
    make_stream(benchmark, imbalanced_task=count - 1)
    for wrong in (-1, count):
        expected = f"imbalanced_task must be from 0 to {count - 1}, got {wrong}"
        with pytest.raises(ValueError, match=expected):
            make_stream(benchmark, imbalanced_task=wrong)


@pytest.mark.parametrize("value", [0, 1, None, "yes", np.True_])
@pytest.mark.parametrize("name", ["validation", "expose_task_id"])
def test_switches_must_be_true_or_false(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be True or False") as caught:
        make_stream("SplitDigits", **{name: value})
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    "value", [0, -0.5, float("nan"), float("inf"), "wide", None, True]
)
def test_the_width_must_be_a_positive_finite_number(value: object) -> None:
    with pytest.raises(ValueError, match="width must be a positive") as caught:
        make_stream("DriftDigits", width=value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("benchmark", "option"),
    [
        ("SplitDigits", "width"),
        ("PermutedDigits", "width"),
        ("SplitDiabetes", "width"),
        ("DriftDigits", "expose_task_id"),
        ("SplitDigits", "batchsize"),
        ("DriftDigits", "classes"),
    ],
)
def test_an_unknown_option_is_refused_with_the_known_ones(
    benchmark: str, option: str
) -> None:
    for make in (
        lambda: make_stream(benchmark, **{option: True}),
        lambda: gymnasium.make(f"continual_envs/{benchmark}-v0", **{option: True}),
    ):
        with pytest.raises(TypeError) as caught:
            make()
        message = str(caught.value)
        assert f"{benchmark} got an unexpected keyword argument '{option}'" in message
        assert "\n" not in message


X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.arange(60) % 3


@pytest.mark.parametrize(
    ("data", "options", "told"),
    [
        (
            (X, Y),
            {"width": 0.5},
            "a stream with cut='label' got an unexpected keyword argument 'width': it "
            "goes with cut='drift', cut='label' has tasks, class_order, class_sizes, "
            "expose_task_id",
        ),
        (
            (X, X),
            {"tasks": 3},
            "a stream with cut='none' got an unexpected keyword argument 'tasks': it "
            "goes with cut='label', 'column' or 'permuted', cut='none' has "
            "expose_task_id",
        ),
        (
            "SplitDigits",
            {"width": 0.5},
            "SplitDigits got an unexpected keyword argument 'width': it goes with "
            "cut='drift', cut='label' has tasks, class_order, class_sizes, "
            "expose_task_id",
        ),
        (
            (X, Y),
            {"batchsize": 3},
            "a stream got an unexpected keyword argument 'batchsize': what applies is "
            "batch_size, epochs, imbalance, imbalanced_task, validation, "
            "expose_task_id, cut, tasks, column, class_order, class_sizes, width, "
            "samples_per_class, longtail, blur, label_noise, test_share, test_seed, "
            "num_classes, targets, standardize, task_ids, test_task_ids",
        ),
        (
            "DriftDigits",
            {"colour": 3},
            "DriftDigits got an unexpected keyword argument 'colour': what applies is "
            "batch_size, epochs, imbalance, imbalanced_task, validation, cut, width, "
            "samples_per_class, longtail, blur, label_noise, task_ids, test_task_ids, "
            "data_dir",
        ),
        (
            lambda: iter([(X[0], 1)]),
            {"width": 0.5, "num_classes": 3},
            "a live stream got an unexpected keyword argument 'width': what applies is "
            "batch_size, num_classes, targets, image_size, batched",
        ),
    ],
)
def test_an_option_out_of_place_is_told_with_what_applies(
    data: Any, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(TypeError) as caught:
        make_stream(data, **options)
    assert str(caught.value) == told


def test_a_file_is_not_blamed_by_its_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    with pytest.raises(TypeError, match="^a stream with cut='label' got an unexpected"):
        make_stream(str(tmp_path / "a.npz"), width=0.5)


def test_the_options_of_the_documentation_are_the_defaults() -> None:
    assert StreamOptions() == StreamOptions(
        batch_size=None,
        epochs=1,
        imbalance=1,
        imbalanced_task=None,
        validation=False,
        expose_task_id=False,
        cut=None,
        tasks=None,
        column=None,
        class_order=None,
        class_sizes=None,
        width=0.5,
        samples_per_class=None,
        longtail=1.0,
        blur=0.0,
        label_noise=0.0,
    )


def test_an_unknown_benchmark_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'SplitLetters'.*'SplitMNIST'.*'SplitDigits'"):
        make_stream("SplitLetters")


def test_an_unknown_data_set_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'Letters'.*'MNIST'.*'Digits'"):
        load_dataset("Letters")


@pytest.mark.parametrize("mode", ["human", "ansi", "", 3])
def test_an_unknown_render_mode_is_refused(mode: Any) -> None:
    with pytest.raises(
        ValueError, match="render_mode must be None or 'rgb_array'"
    ) as e:
        make_stream("SplitDigits", render_mode=mode)
    assert repr(mode) in str(e.value)


def started(benchmark: str, batch_size: int | None) -> StreamEnv:
    env = make_stream(benchmark, batch_size=batch_size)
    env.reset(seed=0)
    return env


@pytest.mark.parametrize(
    ("batch_size", "action", "told"),
    [
        (4, np.zeros(3, dtype=int), r"shape \(4,\).*int64 of shape \(3,\)"),
        (4, np.zeros((4, 1), dtype=int), r"shape \(4,\).*of shape \(4, 1\)"),
        (4, 0, r"shape \(4,\).*of shape \(\)"),
        (4, np.zeros(4), r"whole numbers.*float64"),
        (4, np.full(4, np.nan), r"whole numbers.*float64"),
        (4, np.zeros(4, dtype=bool), r"whole numbers.*bool"),
        (4, ["a", "b", "c", "d"], r"whole numbers.*<U1"),
        (4, [0, 1, 2, 10], "from 0 to 9, got values from 0 to 10"),
        (4, [0, 1, 2, -1], "from 0 to 9, got values from -1 to 2"),
        (4, np.array([0, 0, 0, 2**64 - 1], np.uint64), "from 0 to 9, got values from"),
        (None, 10, "from 0 to 9, got values from 10 to 10"),
        (None, -1, "from 0 to 9, got values from -1 to -1"),
        (None, 1.0, "whole numbers.*float64"),
        (None, None, "whole numbers.*object"),
        (None, [1], r"shape \(\), got int64 of shape \(1,\)"),
    ],
)
def test_classes_that_are_none_are_refused(
    batch_size: int | None, action: Any, told: str
) -> None:
    env = started("SplitDigits", batch_size)
    with pytest.raises(ValueError, match=told):
        env.step(action)


@pytest.mark.parametrize(
    ("batch_size", "action", "told"),
    [
        (4, np.zeros(3), r"shape \(4,\), got float64 of shape \(3,\)"),
        (4, 0.0, r"shape \(4,\), got float64 of shape \(\)"),
        (4, np.zeros(4, dtype=complex), "numbers.*complex128"),
        (4, np.zeros(4, dtype=bool), "numbers.*bool"),
        (4, list("abcd"), "numbers.*<U1"),
        (4, [0, 0, np.nan, 0], "finite numbers.*nan"),
        (4, [0, 0, np.inf, 0], "finite numbers.*inf"),
        (None, np.nan, "finite numbers.*nan"),
        (None, np.zeros(2), r"shape \(\), got float64 of shape \(2,\)"),
    ],
)
def test_numbers_that_are_none_are_refused(
    batch_size: int | None, action: Any, told: str
) -> None:
    env = started("SplitDiabetes", batch_size)
    with pytest.raises(ValueError, match=told):
        env.step(action)


@pytest.mark.parametrize("benchmark", ["SplitDigits", "SplitDiabetes"])
def test_a_refused_action_leaves_the_stream_where_it_was(benchmark: str) -> None:
    env, other = started(benchmark, 4), started(benchmark, 4)
    with pytest.raises(ValueError, match="the action must be"):
        env.step(np.zeros(5, dtype=int))
    good = np.zeros(4, dtype=int)
    found, expected = env.step(good), other.step(good)
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1] == expected[1]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_classes_may_have_any_whole_type(dtype: type) -> None:
    env, other = started("SplitDigits", 4), started("SplitDigits", 4)
    assert env.step(np.arange(4, dtype=dtype))[1] == other.step([0, 1, 2, 3])[1]


def test_the_public_names_can_be_imported() -> None:
    for name in continual_envs.__all__:
        assert hasattr(continual_envs, name)
