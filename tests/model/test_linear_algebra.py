"""Arrays on the host and tensors elsewhere give the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from info_replay.model.linear_algebra import (
    alike,
    as_array,
    cholesky,
    inverse,
    known_within,
    native,
    plain,
    products,
    row_products,
    solve_lower,
    solve_lower_rows,
    subtract_product,
    update_gain,
)

KINDS = [np.asarray, torch.as_tensor]
HOST = torch.device("cpu")


def for_each_kind(test: Any) -> Any:
    """With arrays and tensors of either precision."""
    test = pytest.mark.parametrize("dtype", [np.float32, np.float64])(test)
    return pytest.mark.parametrize("kind", KINDS)(test)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def assert_close(found: Any, expected: Any, dtype: Any) -> None:
    tolerance = 1e-4 if dtype == np.float32 else 1e-10
    np.testing.assert_allclose(np.asarray(found), expected, tolerance, tolerance)


@for_each_kind
@pytest.mark.parametrize("height", [1, 4, 6])
def test_products_are_right_from_the_diagonal_on(
    kind: Any, dtype: Any, height: int
) -> None:
    rows = numbers(9, 6).astype(dtype)
    found = np.asarray(products(kind(rows), 0.5, height))
    expected = rows.T @ rows + 0.5 * np.eye(6)
    assert found.shape == (height, 6)
    assert_close(np.triu(found), np.triu(expected[:height]), dtype)


@for_each_kind
def test_a_factor_solves_what_it_is_a_factor_of(kind: Any, dtype: Any) -> None:
    rows = numbers(9, 6).astype(dtype)
    matrix = rows.T @ rows + np.eye(6, dtype=dtype)
    # What is below the diagonal is not looked at.
    factor = cholesky(kind(np.triu(matrix) + np.tril(np.full_like(matrix, 7), -1)))
    right = numbers(6, 3).astype(dtype)
    found = solve_lower(factor, kind(right))
    expected = np.linalg.solve(np.linalg.cholesky(matrix), right)
    assert type(found) is type(kind(right))
    assert_close(found, expected, dtype)
    assert_close(np.tril(np.asarray(factor)), np.linalg.cholesky(matrix), dtype)


@for_each_kind
@pytest.mark.parametrize("count", [1, 15, 16])
def test_rows_are_solved_for_as_columns_are(kind: Any, dtype: Any, count: int) -> None:
    lower = np.tril(numbers(6, 6)).astype(dtype) + 4 * np.eye(6, dtype=dtype)
    # What is above the diagonal is not looked at.
    factor = kind(lower + np.triu(np.full_like(lower, 7), 1))
    rows = numbers(count, 8).astype(dtype)
    given = kind(rows)[:, 1:7]  # a view, as the features of a row are
    found = solve_lower_rows(factor, given)
    assert type(found) is type(given)
    assert_close(np.asarray(found), np.linalg.solve(lower, rows[:, 1:7].T).T, dtype)
    np.testing.assert_array_equal(np.asarray(given), rows[:, 1:7])


@for_each_kind
@pytest.mark.parametrize("size", [1, 2, 8])
def test_an_inverse_is_one(kind: Any, dtype: Any, size: int) -> None:
    matrix = numbers(size, size).astype(dtype) + 3 * np.eye(size, dtype=dtype)
    given = kind(matrix.copy())
    assert_close(np.asarray(inverse(given)) @ matrix, np.eye(size), dtype)
    np.testing.assert_array_equal(np.asarray(given), matrix)


@pytest.mark.parametrize("kind", KINDS)
def test_without_an_inverse_the_result_is_not_finite(kind: Any) -> None:
    assert not np.isfinite(np.asarray(inverse(kind(np.zeros((4, 4)))))).all()


@for_each_kind
@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 3, 2)])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_a_product_is_subtracted(
    kind: Any, dtype: Any, sizes: tuple[int, int, int], layout: str
) -> None:
    n, k, m = sizes
    minuend, left = numbers(n, m + 2).astype(dtype), numbers(n, k + 1).astype(dtype)
    right = numbers(k, m).astype(dtype)
    if layout == "columns":
        left = np.asfortranarray(left)
    # Views, as the parts of a row are.
    given = kind(minuend)[:, 2:], kind(left)[:, 1:], kind(right)
    found = subtract_product(*given)
    assert_close(found, minuend[:, 2:] - left[:, 1:] @ right, dtype)
    np.testing.assert_array_equal(np.asarray(given[0]), minuend[:, 2:])


@for_each_kind
@pytest.mark.parametrize("layout", ["C", "F"])
def test_rows_are_multiplied_in_pairs(kind: Any, dtype: Any, layout: Any) -> None:
    left = np.asarray(numbers(5, 3).astype(dtype), order=layout)
    right = numbers(5, 3).astype(dtype)
    assert_close(row_products(kind(left), kind(right)), (left * right).sum(1), dtype)


@for_each_kind
@pytest.mark.parametrize("signs", [(1,), (1, -1), (1, -1, 1, -1)], ids=len)
def test_the_gain_of_an_update_is_an_inverse(
    kind: Any, dtype: Any, signs: tuple[int, ...]
) -> None:
    rows = numbers(len(signs), 9)
    inner = (rows @ rows.T).astype(dtype)
    given = kind(inner.copy())
    gain = np.asarray(update_gain(given, signs))
    assert_close(gain @ (inner + np.diag(signs)), np.eye(len(signs)), dtype)
    np.testing.assert_array_equal(np.asarray(given), inner)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gain_that_there_is_not_is_not_finite(kind: Any) -> None:
    inner = kind(np.array([[-1.0, 0.0], [0.0, 0.0]]))
    assert not np.isfinite(np.asarray(update_gain(inner, (1, -1)))).all()


def test_views_share_memory() -> None:
    tensor = torch.zeros(2)
    native(tensor)[0] = 1
    alike(tensor, np.zeros(1))[1] = 2
    alike(native(tensor), tensor).mul_(3)
    assert tensor.tolist() == [3, 6]


def test_plain_tensors_are_left_alone() -> None:
    tensor = torch.zeros(2)
    assert plain(tensor, HOST) is tensor
    weights = torch.zeros(2, requires_grad=True)
    assert not plain(weights, HOST).requires_grad
    assert plain(weights, torch.device("meta")).device.type == "meta"


# -- a first look at values ------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_ordinary_features_are_known_to_be_fine(dtype: torch.dtype) -> None:
    assert known_within(torch.ones(100, 10, dtype=dtype), 1e6)
    assert known_within(torch.ones(10, 100, dtype=dtype).T, 1e6)
    assert known_within(as_array(-torch.ones(100, 10, dtype=dtype)), 1e6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e7, -1e7])
@pytest.mark.parametrize("largest", [1e6, np.inf])
def test_nothing_is_said_of_features_that_may_be_bad(
    value: float, largest: float
) -> None:
    features = torch.ones(100, 10)
    features[3, 4] = value
    assert known_within(features, largest) == (np.isfinite(value) and largest > 1e7)


@given(
    values=st.lists(st.floats(-100, 100), min_size=1, max_size=20),
    largest=st.floats(0.1, 200),
)
def test_what_is_known_to_be_fine_is_fine(values: list[float], largest: float) -> None:
    if known_within(torch.tensor(values), largest):
        assert np.abs(np.float32(values)).max() <= largest * (1 + 1e-6)


def test_nothing_is_said_of_what_cannot_be_looked_at_at_once() -> None:
    assert not known_within(torch.ones(3, device="meta"), 10.0)
    assert not known_within(torch.zeros(3, dtype=torch.float16), 10.0)
    assert not known_within(torch.zeros(100_000), 10.0)
