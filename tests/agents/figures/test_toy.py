"""The toy problem against densities of the joint Gaussian of all observations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal

from agents.figures.settings import ToySettings
from agents.figures.toy import NEW_POINTS, make, predict, sample_memory, score

Array = NDArray[np.float64]


def log_density(inputs: list[float], values: list[float]) -> float:
    """Of noisy observations; two at the same input share the function's value."""
    covariance = np.empty((len(inputs), len(inputs)))
    for row, first in enumerate(inputs):
        for column, second in enumerate(inputs):
            covariance[row, column] = np.exp(-2 * (first - second) ** 2)
        covariance[row, row] += 0.04
    return float(multivariate_normal(np.zeros(len(inputs)), covariance).logpdf(values))


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize("point", [*NEW_POINTS, (-1.7, -0.4)])
def test_scores_are_ratios_of_joint_densities(
    seed: int, point: tuple[float, float]
) -> None:
    x, y = sample_memory(seed)
    inputs, values = x.tolist(), y.tolist()
    memory = log_density(inputs, values)
    once = log_density([*inputs, point[0]], [*values, point[1]])
    twice = log_density([*inputs, *[point[0]] * 2], [*values, *[point[1]] * 2])
    found = score(x, y, np.array(point[:1]), np.array(point[1:]), (0.0, 1.0, 3.0))
    assert found.surprise[0] == pytest.approx(memory - once, abs=1e-9)
    assert found.learnability[0] == pytest.approx(twice - once, abs=1e-9)
    for eta, mic in zip((0.0, 1.0, 3.0), found.mic[:, 0], strict=True):
        expected = eta * (twice - once) + memory - once
        assert mic == pytest.approx(expected, abs=1e-9)


def test_predictions_are_those_of_the_conditional_gaussian() -> None:
    x, y = sample_memory(3)
    at = 0.37
    inputs = np.append(x, at)
    joint = np.exp(-2 * np.subtract.outer(inputs, inputs) ** 2) + 0.04 * np.eye(11)
    precision = np.linalg.inv(joint)
    mean, variance = predict(x, y, np.array([at]))
    assert variance[0] == pytest.approx(1 / precision[-1, -1])
    assert mean[0] == pytest.approx(-precision[-1, :-1] @ y / precision[-1, -1])


def test_the_memory_is_that_of_the_paper() -> None:
    x, y = sample_memory(0)
    np.testing.assert_array_equal(x, np.linspace(-1, 1, 10))
    np.testing.assert_array_equal(y, sample_memory(0)[1])
    drawn = np.stack([sample_memory(seed)[1] for seed in range(4000)])
    expected = np.exp(-2 * np.subtract.outer(x, x) ** 2) + 0.04 * np.eye(10)
    np.testing.assert_allclose(np.cov(drawn.T), expected, atol=0.1)


def outside(x: Array, y: Array, point: tuple[float, float]) -> bool:
    mean, variance = predict(x, y, np.array(point[:1]))
    return bool(abs(point[1] - mean[0]) > 1.96 * np.sqrt(variance[0]))


def test_the_default_shows_what_the_paper_says() -> None:
    x, y = sample_memory(ToySettings().seed)
    left, right = NEW_POINTS
    assert outside(x, y, left)
    assert outside(x, y, right)
    assert outside(np.append(x, left[0]), np.append(y, left[1]), left)
    assert not outside(np.append(x, right[0]), np.append(y, right[1]), right)


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_the_picture_has_the_format_of_its_suffix(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"toy.{suffix}"
    lines = make(ToySettings(), out)
    assert len(lines) == 3
    magic = {"png": b"\x89PNG", "pdf": b"%PDF"}[suffix]
    assert out.read_bytes().startswith(magic)
    assert [*tmp_path.iterdir()] == [out]
