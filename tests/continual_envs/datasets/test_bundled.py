"""The data that install with scikit-learn are its own, and always the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn import datasets

from continual_envs import load_dataset


def test_digits_are_those_of_scikit_learn() -> None:
    data = load_dataset("Digits")
    original = datasets.load_digits()
    images = np.concatenate([data.train.inputs, data.test.inputs])
    targets = np.concatenate([data.train.targets, data.test.targets])
    assert (len(data.train), len(data.test)) == (1500, 297)
    assert images.shape == (1797, 1, 8, 8)
    assert images.dtype == np.uint8
    assert targets.dtype == np.int64
    assert targets.tolist() == original.target.tolist()
    # 17 levels of grey, spread over a byte, the darkest and the brightest at its ends.
    back = np.round(images[:, 0] / 255 * 16)
    np.testing.assert_array_equal(back, original.images)
    assert (images.min(), images.max()) == (0, 255)
    assert data.num_classes == 10


def test_patients_are_those_of_scikit_learn() -> None:
    data = load_dataset("Diabetes")
    inputs, progression = datasets.load_diabetes(return_X_y=True)
    assert len(data.train) + len(data.test) == 442
    assert len(data.test) == 88
    assert data.num_classes is None
    found = {}
    for part in (data.train, data.test):
        assert part.inputs.dtype == part.targets.dtype == np.float32
        assert (np.abs(part.targets) <= 1).all()
        for row, target in zip(part.inputs, part.targets, strict=True):
            found[row.tobytes()] = float(target)
    assert len(found) == 442
    for row, number in zip(inputs.astype(np.float32), progression, strict=True):
        back = 25 + (found[row.tobytes()] + 1) / 2 * (346 - 25)
        assert back == pytest.approx(number, abs=1e-3)


@pytest.mark.parametrize("name", ["Digits", "Diabetes"])
def test_nothing_is_written_anywhere(name: str, tmp_path: Path) -> None:
    load_dataset(name, tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["Digits", "Diabetes"])
def test_the_size_in_memory_is_that_of_the_arrays(name: str) -> None:
    data = load_dataset(name)
    parts = (data.train, data.test)
    assert data.nbytes == sum(
        len(array.tobytes()) for part in parts for array in (part.inputs, part.targets)
    )
