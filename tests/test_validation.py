"""Every check names what is wrong, its value and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from info_replay import validation
from info_replay.validation import (
    read_features,
    read_labels,
    read_regression_targets,
)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        ("finite", [0.0, -1e300, 3], ["nan", "inf", "-inf"]),
        ("positive", [1e-300, 3], ["nan", "inf", "0.0", "-1.0"]),
    ],
)
def test_numbers_are_checked(check: str, good: list[float], bad: list[str]) -> None:
    function = getattr(validation, f"check_{check}")
    for value in good:
        function("gamma", value)
    for text in bad:
        with pytest.raises(ValueError, match=f"gamma must be .* number.* got {text}"):
            function("gamma", float(text))


def test_counts_are_checked() -> None:
    validation.check_count("parts", 1)
    for value, error in ((0, ValueError), (-2, ValueError), (1.0, TypeError)):
        with pytest.raises(error, match=f"parts must be .* got {value}"):
            validation.check_count("parts", value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="parts must be a whole number, got True"):
        validation.check_count("parts", True)


@pytest.mark.parametrize(
    ("read", "entry", "error", "message"),
    [
        (read_features, None, KeyError, "missing entry 'x': the features"),
        (read_features, torch.zeros(3, 2).long(), TypeError, "features, got torch.int"),
        (read_features, torch.zeros(3), ValueError, r"shape \(n, d\), got \(3,\)"),
        (read_features, torch.zeros(3, 0), ValueError, r"\(n, d\), got \(3, 0\)"),
        (read_regression_targets, None, KeyError, "missing entry 'x': the targets"),
        (read_regression_targets, torch.arange(3), TypeError, "give num_classes if"),
        (
            read_regression_targets,
            torch.zeros(3, 2, 1),
            ValueError,
            r"shape \(n,\) or \(n, K\), got \(3, 2, 1\)",
        ),
        (read_labels, None, KeyError, "missing entry 'x': the class labels"),
        (read_labels, torch.zeros(3), TypeError, "whole numbers, got torch.float32"),
        (
            read_labels,
            torch.zeros(3).bool(),
            TypeError,
            "whole numbers, got torch.bool",
        ),
        (read_labels, torch.zeros(3, 2).long(), ValueError, r"\(n,\), got \(3, 2\)"),
    ],
)
def test_entries_are_checked(
    read: Callable[..., Any], entry: Any, error: type[Exception], message: str
) -> None:
    entries = {} if entry is None else {"x": entry}
    with pytest.raises(error, match=message):
        read(TensorDict(entries, batch_size=[3]), "x")


def test_what_is_read_is_the_entry_without_a_needless_dimension() -> None:
    labels = torch.tensor([[2], [0], [1]])
    data = TensorDict({"x": labels, "y": labels.double()}, batch_size=[3])
    assert read_labels(data, "x").tolist() == [2, 0, 1]
    assert read_features(data, "y").shape == (3, 1)
    assert read_regression_targets(data, "y").shape == (3, 1)


def test_labels_must_be_those_of_a_class() -> None:
    validation.check_labels(np.array([0, 2]), 3, "y")
    with pytest.raises(ValueError, match="'y' must .* from 0 to 2, got 3 for item 1"):
        validation.check_labels(np.array([0, 3, -1]), 3, "y")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, float("nan")], "'y' must be finite, got nan for item 1"),
        ([float("-inf"), 1.0], "'y' must be finite, got -inf for item 0"),
        ([5.0, -11.0], "'y' has values up to 11, too large .* at most 10"),
    ],
)
def test_values_must_be_within_a_range(values: list[float], message: str) -> None:
    low, high = np.min(values), np.max(values)
    with pytest.raises(ValueError, match=message):
        validation.check_range(torch.tensor(values), "y", low, high, largest=10)
    validation.check_range(torch.tensor([-10.0, 10.0]), "y", -10, 10, largest=10)
