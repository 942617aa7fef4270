"""The stream and the memories that are selected from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agents.figures.feature_files import read_features
from agents.figures.memories import select_memory, stream_order
from agents.figures.settings import METHODS, MemorySettings, parse_numbers
from continual_envs import DatasetError


def test_classes_come_two_by_two_and_every_item_once() -> None:
    labels = np.random.default_rng(0).integers(10, size=500)
    order = [
        *stream_order(np.asarray(labels), classes_per_task=2, batch_size=32, seed=1)
    ]
    tasks = [set((labels[batch] // 2).tolist()) for batch in order]
    assert all(len(task) == 1 for task in tasks)
    assert [task.pop() for task in tasks] == sorted(
        labels[batch[0]] // 2 for batch in order
    )
    items = np.concatenate(order)
    assert sorted(items.tolist()) == [*range(500)]
    assert max(map(len, order)) == 32
    other = stream_order(np.asarray(labels), classes_per_task=2, batch_size=32, seed=2)
    assert not np.array_equal(items, np.concatenate([*other]))


@pytest.mark.parametrize("method", METHODS)
def test_a_memory_is_full_of_different_items_and_the_same_for_a_seed(
    digits_file: Path, method: str
) -> None:
    features = read_features(str(digits_file))
    first, again, other = (
        select_memory(features, method, 30, seed, MemorySettings())
        for seed in (4, 4, 5)
    )
    assert len(set(first.tolist())) == 30
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_arrays_may_have_other_names_and_labels_any_numbers(
    digits_file: Path, tmp_path: Path
) -> None:
    given = np.load(digits_file)
    path = tmp_path / "named.npz"
    np.savez(
        path,
        train=given["X"],
        train_labels=given["y"] * 10 + 5,
        test=given["X_test"],
        test_labels=given["y_test"] * 10 + 5,
    )
    expected, found = read_features(str(digits_file)), read_features(str(path))
    np.testing.assert_array_equal(found.train_labels, expected.train_labels)
    np.testing.assert_array_equal(found.test, expected.test)
    assert found.names == [*range(5, 100, 10)]
    assert found.digest != expected.digest


def test_without_a_test_set_a_fifth_is_held_out(
    digits_file: Path, tmp_path: Path
) -> None:
    given = np.load(digits_file)
    np.savez(tmp_path / "f.npz", features=given["X"], labels=given["y"])
    found = read_features(str(tmp_path / "f.npz"))
    assert (len(found.train), len(found.test)) == (480, 120)
    np.testing.assert_array_equal(found.test_labels, given["y"][4::5])


FLAT, LABELS = np.zeros((6, 3)), np.array([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"images": FLAT}, "has no arrays X and y, only images"),
        ({}, "only none"),
        ({"X": FLAT, "y": LABELS, "X_test": FLAT}, "only one of X_test and y_test"),
        ({"X": FLAT[0], "y": LABELS}, r"shape \(n, width\) .* got \(3,\) and \(6,\)"),
        ({"X": FLAT, "y": LABELS[:5]}, r"got \(6, 3\) and \(5,\)"),
        ({"X": FLAT, "y": LABELS / 2}, "labels whole numbers, got float64"),
        ({"X": FLAT + np.nan, "y": LABELS}, "must be finite"),
        ({"X": FLAT.astype(object), "y": LABELS}, "not an .npz file of numbers"),
        (
            {"X": FLAT, "y": LABELS, "X_test": FLAT[:, :2], "y_test": LABELS},
            "test features must be 3 wide like those for training, got 2",
        ),
        (
            {"X": FLAT, "y": LABELS, "X_test": FLAT, "y_test": LABELS + 1},
            "all of the test labels'",
        ),
        ({"X": FLAT, "y": LABELS * 0}, "at least two classes"),
    ],
)
def test_features_that_do_not_fit_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], reason: str
) -> None:
    path = tmp_path / "wrong.npz"
    np.savez(path, **arrays)
    with pytest.raises(DatasetError, match=reason) as error:
        read_features(str(path))
    assert "\n" not in str(error.value)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.npz"
    path.write_text("not an archive")
    with pytest.raises(DatasetError, match="damaged or not an .npz file"):
        read_features(str(path))
    np.save(tmp_path / "array.npy", FLAT)
    with pytest.raises(DatasetError, match="not an .npz file"):
        read_features(str(tmp_path / "array.npy"))


@pytest.mark.parametrize(
    "text", ["", "a", "3-1", "-1", "1,,2", "1.5", "0-99999999", "٣"]
)
def test_numbers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="seeds must be whole numbers"):
        parse_numbers("seeds", text)
