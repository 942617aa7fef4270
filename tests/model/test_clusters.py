"""Clusters of features: where they are, who is in them, and what is remembered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from info_replay.model.clusters import Clustering, FeatureClusters, regroup


def blobs(seed: int, count: int, centers: np.ndarray) -> tuple[Any, Any]:
    """Points around some centers, and which one each is of."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % len(centers)
    return centers[labels] + 0.1 * random.normal(size=(count, centers.shape[1])), labels


def find(rows: Any, count: int, seed: int = 0) -> Clustering:
    draws = np.random.default_rng(seed).random(count)
    return FeatureClusters(count).find(0, rows, draws)


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("seed", range(5))
def test_clusters_that_are_apart_are_found(seed: int, offset: float) -> None:
    rows, labels = blobs(seed, 40, 10 * np.eye(4) + offset)
    found = find(rows, 4, seed)
    pairs = set(zip(labels.tolist(), found.held.tolist(), strict=True))
    assert len(pairs) == len(set(labels)) == 4
    np.testing.assert_array_equal(found.labels(rows), found.held)


def test_centers_are_the_means_of_their_points() -> None:
    rows, _ = blobs(0, 40, 10 * np.eye(4))
    found = find(rows, 4)
    for cluster, center in enumerate(found.centers):
        mean = rows[found.held == cluster].mean(0)
        np.testing.assert_allclose(center, mean, atol=1e-12)


@pytest.mark.parametrize("rows", [np.ones((6, 2)), np.zeros((6, 2))], ids=["1", "0"])
def test_equal_points_are_one_cluster(rows: np.ndarray) -> None:
    found = find(rows, 3)
    assert found.held.tolist() == [0] * 6
    assert np.isfinite(found.centers).all()


def test_there_may_be_more_clusters_than_points() -> None:
    found = find(np.array([[1.0], [5.0]]), 10)
    assert len(set(found.held.tolist())) == 2


def test_they_are_due_at_first_and_then_once_in_a_period() -> None:
    clusters = FeatureClusters(1)
    assert clusters.are_due(100, 100)
    clusters.now = clusters.find(100, np.ones((2, 1)), np.zeros(1))
    period = clusters.period(100)
    assert [clusters.are_due(item, 100) for item in (101, period - 1, period)] == [
        False,
        False,
        True,
    ]
    assert clusters.period(5000) == 5000


@given(
    groups=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1),
    extra=st.lists(st.integers(0, 10**6), min_size=6, max_size=6),
)
def test_regrouping_loses_no_item(
    groups: list[tuple[int, int]], extra: list[int]
) -> None:
    before, after = np.array(groups).T
    numbers = np.bincount(before, minlength=6) + np.array(extra)
    new = regroup(numbers, before, after)
    assert new.sum() == numbers.sum()
    assert (new >= 0).all()
    assert not new[np.bincount(after, minlength=6) == 0].any()


def test_what_is_stored_stands_for_its_group() -> None:
    numbers = np.array([900, 100, 0])
    before, after = np.array([0, 0, 0, 1]), np.array([0, 0, 2, 2])
    assert regroup(numbers, before, after).tolist() == [600, 0, 400]
    assert regroup(numbers, before, before).tolist() == numbers.tolist()


def test_where_no_group_of_what_is_stored_was_counted_all_count_alike() -> None:
    before, after = np.zeros(4, dtype=np.int64), np.array([0, 1, 1, 2])
    assert regroup(np.zeros(3, dtype=np.int64), before, after).tolist() == [0, 0, 0]
    assert regroup(np.array([0, 8, 0]), before, after).tolist() == [2, 4, 2]


def test_halves_are_rounded_down_whatever_the_rounding_of_sums() -> None:
    for number in range(1, 40):
        new = regroup(np.array([3 * number, 0]), np.zeros(6, int), np.arange(6) % 2)
        assert new.tolist() == [3 * number // 2, 3 * number - 3 * number // 2]


@pytest.mark.parametrize("item", [-1, 7])
def test_no_clusters_are_given_before_there_are_any(item: int) -> None:
    clusters = FeatureClusters(2)
    clusters.load_state_dict({"centers": None, "item": item})
    with pytest.raises(RuntimeError, match="no clusters were found"):
        clusters.now  # noqa: B018  a property


def test_a_state_comes_back() -> None:
    clusters, twin = FeatureClusters(2), FeatureClusters(2)
    clusters.now = clusters.find(9, torch.eye(4), np.array([0.1, 0.9]))
    state = clusters.state_dict()
    twin.check_state(state)
    twin.load_state_dict(state)
    np.testing.assert_array_equal(twin.now.centers, clusters.now.centers)
    assert twin.now.item == 9
    twin.clear()
    assert not twin.found


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (3, "expected 'centers' and 'item', got 3"),
        ({"centers": None}, "expected 'centers' and 'item', got"),
        ({"centers": 1, "item": 0}, "expected a tensor or None, got 1"),
        ({"centers": torch.zeros(2).double(), "item": 0}, "expected 2 centers, got"),
    ],
    ids=str,
)
def test_what_is_no_state_is_refused(state: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FeatureClusters(2).check_state(state)
