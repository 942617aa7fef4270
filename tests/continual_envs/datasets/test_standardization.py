"""Own numbers come with mean 0 and deviation 1, and can be turned back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from continual_envs import make_dataset

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 4))
Y = np.arange(60) % 3


@pytest.mark.parametrize("outputs", [1, 3])
def test_own_numbers_are_standardized_and_can_be_restored(outputs: int) -> None:
    inputs = X * [1, 10, 100, 0] + [0, 5, 1e6, 7]  # the last column is constant
    targets = 40 + 5 * X[:, 0] if outputs == 1 else 40 + 5 * X[:, :3]
    data = make_dataset((inputs, targets))
    plain = make_dataset((inputs, targets), standardize=False)
    for values in (data.train.inputs[:, :3], data.train.targets):
        np.testing.assert_allclose(values.mean(0), 0, atol=1e-6)
        np.testing.assert_allclose(values.std(0), 1, atol=1e-5)
    assert (data.train.inputs[:, 3] == 0).all()
    assert np.isfinite(data.test.inputs).all()
    done = data.standardization
    assert done is not None
    for part, raw in ((data.train, plain.train), (data.test, plain.test)):
        np.testing.assert_allclose(done.restore(part.targets), raw.targets, rtol=1e-5)
        np.testing.assert_allclose(done.targets(raw.targets), part.targets, atol=1e-5)
        # Against the mean and deviation of the training part, computed here.
        expected = raw.inputs.astype(float)[:, :2] - plain.train.inputs[:, :2].mean(0)
        expected /= plain.train.inputs[:, :2].astype(float).std(0)
        np.testing.assert_allclose(part.inputs[:, :2], expected, atol=1e-4)
        np.testing.assert_allclose(done.inputs(raw.inputs), part.inputs, atol=1e-4)
    assert plain.standardization is None
    np.testing.assert_array_equal(plain.train.inputs.dtype, np.float32)


def test_small_differences_of_large_targets_survive() -> None:
    targets = 1e9 + X[:, 0]
    data = make_dataset((X, targets), test=(X, targets))
    expected = (X[:, 0] - X[:, 0].mean()) / X[:, 0].std()
    np.testing.assert_allclose(data.train.targets, expected, atol=1e-5)


def test_labels_and_bytes_are_not_standardized() -> None:
    assert make_dataset((X, Y), standardize=False).standardization is None
    data = make_dataset((X, Y))
    assert data.standardization is not None
    assert data.standardization.target_scale is None
    np.testing.assert_allclose(data.train.inputs.mean(0), 0, atol=1e-6)
    assert data.train.targets.dtype == np.int64
    images = RANDOM.integers(0, 256, (60, 5, 5), dtype=np.uint8)
    data = make_dataset((images, X[:, 0] + 20))
    assert data.train.inputs.dtype == np.uint8
    assert data.standardization is not None
    assert data.standardization.input_scale is None
    np.testing.assert_allclose(data.train.targets.mean(), 0, atol=1e-6)


@pytest.mark.parametrize("outputs", [0, 1, 3])
@pytest.mark.parametrize("standardize", [True, False])
def test_a_standardized_data_set_given_as_test_data_comes_in_the_units_of_the_user(
    outputs: int, standardize: bool
) -> None:
    inputs = X * [1, 10, 100, 0] + [0, 5, 1e4, 7]
    targets = [Y, 1e9 + X[:, 0], 0, 40 + 5 * X[:, :3]][outputs]
    judged = make_dataset((inputs, targets))
    raw = make_dataset((inputs, targets), standardize=False).test
    rows = [np.flatnonzero((inputs.astype("f4") == x).all(1))[0] for x in raw.inputs]
    options: dict[str, Any] = {"standardize": standardize}
    expected = make_dataset(
        (inputs, targets), test=(inputs[rows], np.asarray(targets)[rows]), **options
    )
    for test in (judged, lambda: judged):
        found = make_dataset((inputs, targets), test=test, **options)
        # What 32 bits of a standardized number can tell, and not less.
        for values, like in (
            (found.test.inputs, expected.test.inputs),
            (found.test.targets, expected.test.targets),
        ):
            np.testing.assert_allclose(values, like, rtol=1e-6, atol=1e-4)


def test_constant_targets_divide_by_nothing() -> None:
    data = make_dataset((X, np.full(60, 3.5)))
    assert (data.train.targets == 0).all()
    assert data.standardization is not None
    assert data.standardization.restore(np.zeros(2)).tolist() == [3.5, 3.5]
