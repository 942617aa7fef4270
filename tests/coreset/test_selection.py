"""Coresets are the greedy answer to the bilevel problem, choice by choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from info_replay.coreset.selection import KernelModel, merge_index, select_coreset

from .bilevel import Array, BilevelProblem


class Problem(BilevelProblem):
    """The same problem, dense and as the package solves it."""

    def model(self, chosen: list[int]) -> KernelModel:
        model = KernelModel(
            self.kernel,
            self.labels,
            self.weights,
            self.num_classes,
            self.regularization,
        )
        for point in chosen:
            model.add(point)
        return model

    def select(self, size: int) -> list[int]:
        coreset = select_coreset(
            self.kernel,
            self.labels,
            self.weights,
            size,
            self.num_classes,
            regularization=self.regularization,
        )
        return coreset.indices.tolist()


def make(
    seed: int, count: int = 14, num_classes: int = 3, regularization: float = 1e-3
) -> Problem:
    """Noisy clusters, one per class, with weights of their own."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(num_classes, size=count)
    points = rng.normal(size=(num_classes, 4))[labels] + rng.normal(size=(count, 4))
    distances = np.square(points[:, None] - points[None]).sum(axis=2)
    weights = rng.uniform(0.5, 3.0, size=count)
    return Problem(np.exp(-distances / 6), labels, weights, num_classes, regularization)


# -- the model -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("regularization", [1e-4, 1e-1])
def test_the_model_minimizes_the_inner_objective(
    seed: int, regularization: float
) -> None:
    problem = make(seed, regularization=regularization)
    chosen = [3, 0, 7, 5]
    importance = problem.importance(chosen)
    actual = problem.model(chosen).logits()
    np.testing.assert_allclose(actual, problem.fit(importance), atol=5e-3)
    # And against a solver that knows nothing but the objective.
    shape = (len(chosen), problem.num_classes)

    def objective(flat: Array) -> float:
        coefficients = np.zeros((problem.count, problem.num_classes))
        coefficients[chosen] = flat.reshape(shape)
        return problem.inner(coefficients, importance)

    found = minimize(objective, np.zeros(shape).ravel(), method="L-BFGS-B")
    inside = problem.kernel[np.ix_(chosen, chosen)]
    mine = np.linalg.solve(inside, actual[chosen])
    np.testing.assert_allclose(
        problem.kernel[:, chosen] @ mine, actual, rtol=1e-6, atol=1e-6
    )
    assert objective(mine.ravel()) <= found.fun + 1e-7
    assert objective(mine.ravel()) == pytest.approx(found.fun, abs=2e-3)


def test_a_point_chosen_twice_counts_twice() -> None:
    problem = make(1)
    importance = problem.importance([3, 6])
    importance[3] = 2
    logits = problem.model([3, 6, 3]).logits()
    np.testing.assert_allclose(logits, problem.fit(importance), atol=1e-3)


# -- the implicit gradient -------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("chosen", [[], [2], [2, 9, 4]])
def test_the_gradient_is_the_difference_that_a_small_weight_makes(
    seed: int, chosen: list[int]
) -> None:
    problem = make(seed, regularization=1e-2)
    actual = problem.model(chosen).gradients()
    small = 1e-5
    for candidate in range(problem.count):
        outer = []
        for weight in (small, -small):
            importance = problem.importance(chosen)
            importance[candidate] += weight
            outer.append(problem.outer(problem.fit(importance)))
        expected = (outer[0] - outer[1]) / (2 * small)
        assert actual[candidate] == pytest.approx(expected, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("chosen", [[], [2], [2, 9, 4, 11, 0]])
def test_the_gradient_is_that_of_the_explicit_hessian(
    seed: int, chosen: list[int]
) -> None:
    problem = make(seed)
    expected = problem.gradients(chosen)
    actual = problem.model(chosen).gradients()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-3 * scale)


# -- the selection ---------------------------------------------------------------------


@pytest.mark.parametrize("regularization", [1e-4, 1e-3, 1e-1])
@pytest.mark.parametrize("seed", range(3))
def test_every_choice_is_that_of_the_explicit_hessian(
    seed: int, regularization: float
) -> None:
    problem = make(seed, regularization=regularization)
    chosen: list[int] = []
    clear = 0
    for choice in problem.select(7):
        gradients = problem.gradients(chosen)
        gradients[chosen] = np.inf
        first, second = np.sort(gradients)[:2]
        if second - first > 1e-3 * abs(first):  # beyond the tolerance of the solution
            assert choice == np.argmin(gradients)
            clear += 1
        chosen.append(choice)
    assert clear >= 6


def test_each_cluster_is_covered_before_any_is_covered_twice() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 4
    points = 5 * np.eye(4)[labels] + 0.1 * rng.normal(size=(40, 4))
    kernel = np.exp(-np.square(points[:, None] - points[None]).sum(axis=2) / 10)
    problem = Problem(kernel, labels, np.ones(40), 4, 1e-4)
    assert sorted(labels[problem.select(4)]) == [0, 1, 2, 3]
    two = Problem(kernel[::2, ::2], labels[::2] // 2, np.ones(20), 2, 1e-4)
    assert sorted(two.labels[two.select(2)]) == [0, 1]


@pytest.mark.parametrize("heavy", [0, 5, 13])
def test_what_weighs_most_is_covered_first(heavy: int) -> None:
    problem = make(2)
    weights = problem.weights.copy()
    weights[heavy] = 1e6
    assert replace(problem, weights=weights).select(1) == [heavy]
    others = {replace(problem, weights=np.ones(14)).select(1)[0]}
    assert others != {heavy}


@given(seed=st.integers(0, 10_000), data=st.data())
def test_the_order_of_the_points_does_not_count(seed: int, data: Any) -> None:
    problem = make(seed, count=20)
    order = np.array(data.draw(st.permutations(range(20))))
    mixed = Problem(
        problem.kernel[np.ix_(order, order)],
        problem.labels[order],
        problem.weights[order],
        problem.num_classes,
        problem.regularization,
    )
    assert order[mixed.select(5)].tolist() == problem.select(5)


@given(seed=st.integers(0, 10_000), scale=st.floats(1e-3, 1e3))
def test_only_the_proportions_of_weights_count(seed: int, scale: float) -> None:
    problem = make(seed)
    scaled = replace(problem, weights=scale * problem.weights)
    assert scaled.select(5) == problem.select(5)


def test_of_copies_the_first_is_taken_and_no_point_twice() -> None:
    problem = make(4, count=6)
    twice = np.tile(np.arange(6), 2)
    rounding = np.repeat([1.0, 1 + 1e-11], 6)  # in favor of the second copies
    doubled = Problem(
        problem.kernel[np.ix_(twice, twice)] * np.outer(rounding, rounding),
        problem.labels[twice],
        problem.weights[twice],
        problem.num_classes,
        problem.regularization,
    )
    chosen = doubled.select(11)
    assert len(set(chosen)) == 11
    for point in range(6, 12):
        if point in chosen:
            assert chosen.index(point - 6) < chosen.index(point)


def test_the_total_weight_is_shared_evenly_where_not_all_points_fit() -> None:
    problem = make(5)
    points = problem.kernel, problem.labels, problem.weights
    for size in (14, 100):
        coreset = select_coreset(*points, size, 3)
        assert coreset.indices.tolist() == list(range(14))
        assert coreset.weights.tolist() == problem.weights.tolist()
    coreset = select_coreset(problem.kernel, problem.labels, problem.weights, 4, 3)
    assert coreset.indices.dtype == np.int64
    np.testing.assert_allclose(coreset.weights, problem.weights.sum() / 4, rtol=1e-12)


@pytest.mark.parametrize("kernel", [np.zeros((5, 5)), np.ones((5, 5))])
def test_points_that_cannot_be_told_apart_are_no_error(kernel: Array) -> None:
    labels = np.array([0, 0, 0, 1, 1])
    coreset = select_coreset(kernel, labels, np.ones(5), 3, 2)
    assert len(set(coreset.indices.tolist())) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": np.ones((3, 4))}, r"kernel must have the shape \(3, 3\)"),
        ({"kernel": np.full((3, 3), np.nan)}, "kernel must be finite"),
        ({"labels": np.array([0, 1, 2])}, r"labels must lie in \[0, 2\), .* 0 to 2"),
        ({"labels": np.array([0, -1, 1])}, "labels must lie in"),
        ({"labels": np.array([[0, 1, 1]])}, r"labels and weights .* shape \(n,\)"),
        ({"weights": np.array([1.0, 0.0, 1.0])}, "weights must be .* > 0, got 0.0"),
        ({"weights": np.array([1.0, np.inf, 1.0])}, "weights must be finite"),
        ({"weights": np.ones(2)}, "labels and weights must both"),
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"num_classes": 0}, "num_classes must be at least 1"),
        ({"regularization": 0.0}, "regularization must be a finite number > 0"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {
        "kernel": np.eye(3),
        "labels": np.array([0, 1, 1]),
        "weights": np.ones(3),
        "size": 2,
        "num_classes": 2,
    }
    with pytest.raises(ValueError, match=message):
        select_coreset(**(arguments | change))


# -- the stream ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "place"),
    [
        ([1, 1], 0),
        ([7, 1], 0),
        ([1, 1, 1], 0),
        ([2, 1, 1], 1),
        ([2, 2, 1, 1], 2),
        ([2, 2, 2, 1], 0),
        ([4, 2, 1, 1], 2),
        ([4, 2, 2, 1], 1),
        ([4, 4, 2, 2, 1], 2),
        ([4, 4, 3, 1], 2),
    ],
)
def test_the_lightest_equal_slots_merge_or_the_last_catches_up(
    counts: list[int], place: int
) -> None:
    assert merge_index(counts) == place


@pytest.mark.parametrize("num_slots", [2, 3, 10])
def test_slots_stay_in_balance(num_slots: int) -> None:
    slots: list[int] = []
    for batches in range(1, 1000):
        slots.append(1)
        if len(slots) > num_slots:
            place = merge_index(slots)
            slots[place : place + 2] = [slots[place] + slots[place + 1]]
        assert sum(slots) == batches
        full = slots[:-2]
        assert all(count & (count - 1) == 0 for count in full)
        assert max(full, default=1) <= 2 * min(full, default=1)
        assert slots == sorted(slots, reverse=True)


@pytest.mark.parametrize("counts", [[], [3], [1, 2], [2, 2, 1, 3]])
def test_counts_that_no_stream_has_are_refused(counts: list[int]) -> None:
    with pytest.raises(ValueError, match="counts must be those of two or more slots"):
        merge_index(counts)
