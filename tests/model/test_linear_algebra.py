"""Arrays on the host and tensors elsewhere give the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from info_replay.model.linear_algebra import (
    alike,
    cholesky,
    inverse,
    native,
    plain,
    products,
    solve_lower,
    solve_lower_rows,
    subtract_product,
)

KINDS = [np.asarray, torch.as_tensor]
TYPES = [np.float32, np.float64]
HOST = torch.device("cpu")


def numbers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def assert_close(found: Any, expected: Any, dtype: Any) -> None:
    tolerance = 1e-4 if dtype == np.float32 else 1e-10
    np.testing.assert_allclose(np.asarray(found), expected, tolerance, tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("height", [1, 4, 6])
def test_products_are_right_from_the_diagonal_on(
    kind: Any, dtype: Any, height: int
) -> None:
    rows = numbers(9, 6).astype(dtype)
    found = np.asarray(products(kind(rows), 0.5, height))
    expected = rows.T @ rows + 0.5 * np.eye(6)
    assert found.shape == (height, 6)
    assert_close(np.triu(found), np.triu(expected[:height]), dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [1, 15, 16, 40])
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


def test_arrays_solve_for_tensors() -> None:
    factor, right = np.diag([2.0, 4.0]), torch.ones(2, 1, dtype=torch.float64)
    expected = torch.tensor([[0.5], [0.25]], dtype=torch.float64)
    assert torch.equal(solve_lower(factor, right), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_an_inverse_is_one(kind: Any, dtype: Any, size: int) -> None:
    matrix = numbers(size, size).astype(dtype) + 3 * np.eye(size, dtype=dtype)
    given = kind(matrix.copy())
    assert_close(np.asarray(inverse(given)) @ matrix, np.eye(size), dtype)
    np.testing.assert_array_equal(np.asarray(given), matrix)


@pytest.mark.parametrize("kind", KINDS)
def test_without_an_inverse_the_result_is_not_finite(kind: Any) -> None:
    assert not np.isfinite(np.asarray(inverse(kind(np.zeros((4, 4)))))).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 3, 2), (2, 7, 4)])
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
