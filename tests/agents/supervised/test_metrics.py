"""Metrics are what the paper defines, checked by hand."""

from __future__ import annotations

import math

import pytest

from agents.supervised.metrics import (
    average_score,
    backward_transfer,
    class_variance,
    forward_transfer,
    mean_and_standard_error,
)

#: Three tasks: rows are what was learned last, columns what is judged.
MATRIX = [
    [0.9, 0.3, 0.1],
    [0.6, 0.8, 0.4],
    [0.5, 0.7, 1.0],
]
FIRST = [0.2, 0.1, 0.05]


def test_scores_of_several_tasks() -> None:
    assert average_score(MATRIX) == pytest.approx((0.5 + 0.7 + 1.0) / 3)
    lost = (0.5 - 0.9) + (0.7 - 0.8)
    assert backward_transfer(MATRIX) == pytest.approx(lost / 2)
    gained = (0.3 - 0.1) + (0.4 - 0.05)
    assert forward_transfer(MATRIX, FIRST) == pytest.approx(gained / 2)


def test_a_single_task_has_no_transfer() -> None:
    assert backward_transfer([[0.7]]) is None
    assert forward_transfer([[0.7]], [0.1]) is None
    assert average_score([[0.7]]) == pytest.approx(0.7)


def test_the_class_variance_is_that_of_all_classes_also_absent_ones() -> None:
    by_hand = (36 + 4) / 4 - (8 / 4) ** 2
    assert class_variance([6, 2, 0, 0]) == pytest.approx(by_hand)


def test_the_standard_error_is_that_of_the_mean() -> None:
    mean, error = mean_and_standard_error([1.0, 2.0, 6.0])
    assert mean == pytest.approx(3)
    assert error == pytest.approx(math.sqrt((4 + 1 + 9) / 2) / math.sqrt(3))
    assert mean_and_standard_error([0.5]) == (0.5, 0.0)
