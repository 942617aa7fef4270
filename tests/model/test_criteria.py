"""The criteria are the paper's, up to rounding, for every Gaussian model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from info_replay import (
    MIC,
    Criterion,
    EntropyReduction,
    InformationGain,
    learnability,
    surprise,
)
from tests.reference import GaussianProcess, Memory, one_hot

Array = NDArray[np.float64]

etas = st.sampled_from([0.0, 1.0, 3.0]) | st.floats(0.0, 10.0)


@dataclass(frozen=True)
class Problem:
    """A memory and a few points that are held against it."""

    memory: Memory
    features: Array
    targets: Array

    @property
    def leverage(self) -> Tensor:
        return torch.from_numpy(self.memory.leverages(self.features))

    @property
    def squared_error(self) -> Tensor:
        residuals = self.memory.residuals(self.features, self.targets)
        return torch.from_numpy((residuals**2).sum(axis=1))

    @property
    def num_outputs(self) -> int:
        return self.targets.shape[1]

    def score(self, criterion: Callable[..., Tensor]) -> Tensor:
        """What the package says of each point."""
        return criterion(
            self.leverage,
            self.squared_error,
            noise=self.memory.noise,
            num_outputs=self.num_outputs,
        )

    def reference(self, criterion: Callable[[Array, Array], float]) -> Tensor:
        """What the paper says of each point."""
        points = zip(self.features, self.targets, strict=True)
        return torch.tensor([criterion(*p) for p in points], dtype=torch.float64)

    def assert_equal(self, actual: Tensor, expected: Tensor) -> None:
        """Equal to 1e-9, or to 1e-12 of the terms that cancel in the sum."""
        terms = self.num_outputs + self.squared_error / self.memory.noise**2
        error = (actual - expected).abs()
        assert (error <= 1e-9 * expected.abs() + 1e-12 * terms).all()


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Memories of many shapes, some empty, some with repeated rows."""
    target_dim = draw(st.integers(1, 10))
    feature_dim = draw(st.integers(1, 30))
    size = draw(st.integers(0, 40))
    noise = draw(st.floats(0.05, 2.0))
    jitter = draw(st.floats(1e-3, 10.0))
    labeled = draw(st.booleans())
    repeated = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    features = rng.normal(scale=draw(st.floats(0.1, 3.0)), size=(size + 3, feature_dim))
    if labeled:
        targets = one_hot(rng.integers(target_dim, size=size + 3).tolist(), target_dim)
    else:
        targets = rng.normal(size=(size + 3, target_dim))
    if repeated:  # rows of the memory, and points that it knows already
        source = rng.integers(size + 1, size=size + 3)
        features, targets = features[source], targets[source]
    memory = Memory(features[:size], targets[:size], noise, jitter)
    return Problem(memory, features[size:], targets[size:])


# -- against the paper -----------------------------------------------------------------


@given(problem=problems())
def test_surprise_is_the_log_density_before_and_learnability_the_one_after(
    problem: Problem,
) -> None:
    problem.assert_equal(
        problem.score(surprise), problem.reference(problem.memory.surprise)
    )
    problem.assert_equal(
        problem.score(learnability), problem.reference(problem.memory.learnability)
    )


@given(problem=problems(), eta=etas)
def test_mic_weighs_learnability_and_adds_surprise(
    problem: Problem, eta: float
) -> None:
    expected = problem.reference(lambda x, y: problem.memory.mic(x, y, eta))
    problem.assert_equal(problem.score(MIC(eta)), expected)
    known = [problem.memory.predict(feature) for feature in problem.features]
    from_prediction = MIC(eta).from_prediction(
        torch.from_numpy(problem.targets),
        torch.from_numpy(np.array([mean for mean, _ in known])),
        torch.tensor([variance for _, variance in known], dtype=torch.float64),
        noise=problem.memory.noise,
    )
    problem.assert_equal(from_prediction, expected)


@given(problem=problems(), eta=etas)
def test_information_gain_weighs_the_expected_log_likelihood(
    problem: Problem, eta: float
) -> None:
    problem.assert_equal(
        problem.score(InformationGain(eta)),
        problem.reference(lambda x, y: problem.memory.information_gain(x, y, eta)),
    )


@given(problem=problems())
def test_information_gain_is_the_divergence_of_the_weight_posteriors(
    problem: Problem,
) -> None:
    # The determinants and traces of the reference round on their own.
    torch.testing.assert_close(
        problem.score(InformationGain()),
        problem.reference(problem.memory.divergence),
        rtol=1e-9,
        atol=1e-10 * problem.num_outputs,
    )


@given(problem=problems())
def test_entropy_reduction_is_the_difference_of_two_entropies(
    problem: Problem,
) -> None:
    torch.testing.assert_close(
        problem.score(EntropyReduction()),
        problem.reference(problem.memory.entropy_reduction),
        rtol=1e-9,
        atol=1e-11,
    )


@pytest.mark.parametrize("criterion", [MIC(0.5), InformationGain(2.0)])
def test_outputs_add_up(criterion: Criterion) -> None:
    leverage = torch.tensor([0.2, 3.0], dtype=torch.float64)
    errors = torch.tensor([[0.1, 4.0], [2.0, 0.0], [0.5, 1.0]], dtype=torch.float64)
    together = criterion(leverage, errors.sum(0), noise=0.4, num_outputs=3)
    apart = sum(criterion(leverage, error, noise=0.4) for error in errors)
    torch.testing.assert_close(together, apart, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("criterion", [MIC(0.5), InformationGain(), EntropyReduction()])
def test_numbers_and_arrays_are_scored_as_tensors_are(criterion: Any) -> None:
    leverage, error = np.array([0.2, 3.0]), np.array([1.5, 0.1])
    tensors = criterion(torch.tensor(leverage), torch.tensor(error), noise=0.4)
    on_host = criterion.on_host(leverage, error, noise=0.4)
    np.testing.assert_allclose(on_host, tensors.numpy(), rtol=1e-12)
    for v, r, expected in zip(leverage.tolist(), error.tolist(), tensors, strict=True):
        assert criterion(v, r, noise=0.4) == pytest.approx(float(expected))


def test_entropy_reduction_looks_neither_at_targets_nor_at_their_number() -> None:
    leverage = torch.tensor([0.0, 1.0, 9.0], dtype=torch.float64)
    scores = [
        EntropyReduction()(leverage, error, noise=noise, num_outputs=outputs)
        for error, noise, outputs in [
            (torch.zeros(3), 0.3, 1),
            (torch.full((3,), 7.0), 2.0, 10),
        ]
    ]
    assert scores[0].equal(scores[1])
    assert scores[0].tolist() == pytest.approx([0, math.log(2) / 2, math.log(10) / 2])


# -- the inequality of Sec. 2.2 --------------------------------------------------------


def assert_bounds(
    leverage: Tensor, squared_error: Tensor, noise: float, num_outputs: int
) -> None:
    """``MIC_1 >= IG >= 0``, up to rounding of the terms that cancel."""
    known = {"noise": noise, "num_outputs": num_outputs}
    gain = InformationGain()(leverage, squared_error, **known)
    mic = MIC()(leverage, squared_error, **known)
    logarithms = torch.log1p(leverage) + abs(math.log(2 * math.pi * noise**2)) + 1
    rounding = 4e-16 * (squared_error / noise**2 + num_outputs * logarithms)
    assert (gain >= -rounding).all()
    assert (mic >= gain - rounding).all()


sizes = st.just(0.0) | st.floats(-12, 6).map(lambda exponent: 10.0**exponent)


@settings(max_examples=200)
@given(
    leverage=sizes,
    squared_error=sizes,
    noise=st.floats(1e-3, 1e3),
    num_outputs=st.integers(1, 100),
)
def test_the_bounds_hold_for_tiny_and_for_huge_numbers(
    leverage: float, squared_error: float, noise: float, num_outputs: int
) -> None:
    numbers = torch.tensor([[leverage], [squared_error]], dtype=torch.float64)
    assert_bounds(*numbers, noise, num_outputs)


# -- any Gaussian model ----------------------------------------------------------------


def toy_process() -> GaussianProcess:
    """The process of the paper's toy problem, its memory drawn from itself."""

    def kernel(a: float, b: float) -> float:
        return math.exp(-2 * (a - b) ** 2)

    inputs = np.linspace(-1, 1, 10)
    gram = np.array([[kernel(a, b) for b in inputs] for a in inputs])
    draws = np.random.default_rng(0).normal(size=10)
    targets = np.linalg.cholesky(gram + 0.04 * np.eye(10)) @ draws
    return GaussianProcess(kernel, inputs, targets, noise=0.2)


def predictions(process: GaussianProcess, inputs: list[float]) -> tuple[Tensor, Tensor]:
    """Means and variances at some inputs."""
    means, variances = zip(*(process.predict(x) for x in inputs), strict=True)
    return (
        torch.tensor(means, dtype=torch.float64),
        torch.tensor(variances, dtype=torch.float64),
    )


@given(
    points=st.lists(
        st.tuples(st.floats(-3.0, 3.0), st.floats(-3.0, 3.0)), min_size=1, max_size=5
    ),
    eta=etas,
)
def test_from_prediction_conditions_a_gaussian_process_on_the_point(
    points: list[tuple[float, float]], eta: float
) -> None:
    process = toy_process()
    mean, variance = predictions(process, [x for x, _ in points])
    target = torch.tensor([y for _, y in points], dtype=torch.float64)
    actual = MIC(eta).from_prediction(target, mean, variance, noise=process.noise)
    expected = [
        eta * process.learnability(x, y) + process.surprise(x, y) for x, y in points
    ]
    torch.testing.assert_close(
        actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9
    )


def test_of_two_surprising_points_the_far_one_can_be_learned() -> None:
    process = toy_process()
    mean, variance = predictions(process, [0.0, 1.5])
    mean = torch.full_like(mean, -1.0)  # both lie outside of the confidence region
    target = torch.ones(2, dtype=torch.float64)
    error = (target - mean).square()
    assert (error > 1.96**2 * variance)[0]
    among, far = learnability(variance / 0.04 - 1, error, noise=0.2)
    assert among < far
    outlier, novelty = MIC(0.0).from_prediction(target, mean, variance, noise=0.2)
    assert outlier > novelty
    outlier, novelty = MIC(3.0).from_prediction(target, mean, variance, noise=0.2)
    assert outlier < novelty


def test_from_prediction_takes_one_output_with_or_without_its_dimension() -> None:
    target, mean = torch.randn(2, 5, dtype=torch.float64)
    variance = torch.full((5,), 0.5, dtype=torch.float64)
    flat = MIC().from_prediction(target, mean, variance, noise=0.3)
    column = MIC().from_prediction(target[:, None], mean[:, None], variance, noise=0.3)
    assert flat.equal(column)


def test_a_variance_may_lie_a_rounding_below_the_noise() -> None:
    target = torch.zeros(1)
    variance = torch.tensor([0.09 * (1 - 1e-7)])
    score = EntropyReduction().from_prediction(target, target, variance, noise=0.3)
    assert score.item() == 0.0


# -- errors ----------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", [MIC, InformationGain])
@pytest.mark.parametrize("eta", [-0.1, 1e308, float("nan"), float("inf")])
def test_eta_must_be_finite_and_not_negative(
    criterion: Callable[[float], Criterion], eta: float
) -> None:
    with pytest.raises(ValueError, match="eta must be a finite number"):
        criterion(eta)


@pytest.mark.parametrize(
    ("target", "mean"),
    [((3,), (4,)), ((3,), (3, 1)), ((3, 2), (3, 1)), ((), ()), ((3, 2, 1), (3, 2, 1))],
)
def test_target_and_mean_must_have_the_same_shape(
    target: tuple[int, ...], mean: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="target and mean must both have the shape"):
        MIC().from_prediction(
            torch.zeros(target), torch.zeros(mean), torch.ones(3), noise=0.3
        )


@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 2), (3, 1)])
def test_variance_must_be_one_number_per_point(shape: tuple[int, ...]) -> None:
    point = torch.zeros(3, 2)
    with pytest.raises(ValueError, match=r"variance must have the shape \(3,\)"):
        MIC().from_prediction(point, point, torch.ones(shape), noise=0.3)


def test_variance_must_include_the_noise() -> None:
    variance = torch.tensor([0.1, 0.08])
    with pytest.raises(ValueError, match=r"at least noise\*\*2 = 0.09, got 0.08"):
        MIC().from_prediction(torch.zeros(2), torch.zeros(2), variance, noise=0.3)
