"""The dense operations that the posterior lives on: multiply, factorise and solve.

They work on what :func:`native` makes of a tensor. Arrays, on the host, go to SciPy's
LAPACK, which takes half the time of torch's at the sizes of a memory (d of 100 to 500,
one thread); tensors, elsewhere, go to torch.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from torch import Tensor

__all__ = [
    "Matrix",
    "alike",
    "as_array",
    "cholesky",
    "inverse",
    "known_within",
    "native",
    "on_host",
    "plain",
    "products",
    "row_products",
    "solve_lower",
    "solve_lower_rows",
    "subtract_product",
    "update_gain",
]

#: A tensor or, on the host, an array: what consists of many operations on little is
#: several times faster with arrays.
Matrix = TypeVar("Matrix", Tensor, NDArray[Any])

# By the character of the type.
_FACTORISE = {"f": lapack.spotrf, "d": lapack.dpotrf}
_MULTIPLY = {"f": blas.ssyrk, "d": blas.dsyrk}
_SOLVE = {"f": blas.strsm, "d": blas.dtrsm}
_FACTORISE_ANY = {"f": lapack.sgetrf, "d": lapack.dgetrf}
_INVERT = {"f": lapack.sgetri, "d": lapack.dgetri}
_MULTIPLY_ADD = {"f": blas.sgemm, "d": blas.dgemm}

# The sum of more numbers may be made by several threads, which wait for each other.
_MANY = 65_536

# From so many rows on they are solved for side by side, in two thirds of the time.
_SIDE_BY_SIDE = 16


def on_host(tensor: Tensor) -> bool:
    """Whether an array can share a tensor's memory; of a fake tensor there is none.

    Args:
        tensor: any.

    Returns:
        Whether ``tensor.numpy()`` is free.

    Example:
        >>> on_host(torch.ones(2)), on_host(torch.ones(2, device="meta"))
        (True, False)
    """
    return type(tensor) is Tensor and tensor.is_cpu


def plain(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor without gradients on a device: itself, if it is that already.

    Args:
        tensor: any.
        device: where it is wanted.

    Returns:
        The tensor, or another one with its values.

    Example:
        >>> weights = torch.ones(2, requires_grad=True)
        >>> plain(weights, torch.device("cpu"))
        tensor([1., 1.])
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    # Asking is several times as fast as having torch find out.
    return tensor if tensor.device == device else tensor.to(device)


def as_array(tensor: Tensor) -> NDArray[Any]:
    """A tensor on the host as an array, without a copy if NumPy has its type.

    Args:
        tensor: on the host.

    Returns:
        An array, float32 for bfloat16.

    Example:
        >>> as_array(torch.ones(2, dtype=torch.bfloat16))
        array([1., 1.], dtype=float32)
    """
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def known_within(values: Tensor | NDArray[Any], largest: float) -> bool:
    """Whether the host knows at once that all values are finite and none is larger.

    The sum of their sizes bounds them all, and so does the length of the vector that
    they are; there is no cheaper look at each.

    Args:
        values: floating-point numbers.
        largest: bound of their sizes.

    Returns:
        Whether they are known to be fine; if not, it takes a look at each.

    Example:
        >>> known_within(torch.ones(2), 2.0), known_within(torch.ones(2), 1.0)
        (True, False)
    """
    if isinstance(values, Tensor):
        if not on_host(values):
            return False
        values = as_array(values)
    kind = values.dtype.char
    if kind not in "fd" or not 0 < values.size <= _MANY:
        return False
    flat = values.reshape(-1)
    # In single precision little is too large, so the sum of sizes would say nothing.
    bound: float = blas.dasum(flat) if kind == "d" else math.sqrt(blas.sdot(flat, flat))
    return bound <= largest and bound < math.inf


def native(tensor: Tensor) -> Any:
    """A tensor as what is computed with where it is; shares its memory.

    Args:
        tensor: without gradients.

    Returns:
        On the host an array, else the tensor.

    Example:
        >>> native(torch.ones(2)), native(torch.ones(2, device="meta")).device
        (array([1., 1.], dtype=float32), device(type='meta'))
    """
    return tensor.numpy() if on_host(tensor) else tensor


def alike(matrix: Tensor | NDArray[Any], example: Matrix) -> Matrix:
    """A tensor or array as what the example is; shares its memory.

    Args:
        matrix: on the host, unless both are tensors.
        example: a tensor or an array.

    Returns:
        The matrix as it is, or a view of its memory.

    Example:
        >>> alike(torch.ones(2), np.zeros(1)), alike(np.ones(1), torch.zeros(1))
        (array([1., 1.], dtype=float32), tensor([1.], dtype=torch.float64))
    """
    if isinstance(example, np.ndarray):
        return as_array(matrix) if isinstance(matrix, Tensor) else matrix
    return matrix if isinstance(matrix, Tensor) else torch.from_numpy(matrix)


def products(rows: Matrix, diagonal: float, height: int) -> Matrix:
    """The first rows of ``R^T R + cI``, right on and above the diagonal.

    Args:
        rows: ``R``, shape ``(n, m)``.
        diagonal: ``c``.
        height: how many rows of the result are asked for.

    Returns:
        Shape ``(height, m)``; what is below its diagonal has no meaning.

    Example:
        >>> products(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 0.5, 1)
        tensor([[10.5000, 14.0000]])
    """
    if isinstance(rows, np.ndarray):
        # Of a symmetric result half is enough: that is what LAPACK will read of it.
        half: NDArray[Any] = _MULTIPLY[rows.dtype.char](1.0, rows.T, lower=1).T[:height]
        on_diagonal = half.reshape(-1)[:: half.shape[1] + 1]
        on_diagonal += diagonal
        return half
    result = rows[:, :height].T @ rows
    result.diagonal().add_(diagonal)
    return result


def cholesky(matrix: Matrix) -> Matrix:
    """Lower factor ``L`` of a symmetric positive definite matrix ``L L^T``.

    Nothing is checked, so nothing waits for the device: what goes wrong shows as
    numbers that are not finite, or not sensible, further on.

    Args:
        matrix: shape ``(d, d)``; what is below the diagonal is not looked at.

    Returns:
        Shape ``(d, d)``, for :func:`solve_lower` only: what is above the diagonal has
        no meaning.

    Example:
        >>> np.tril(cholesky(np.array([[4.0, 2.0], [2.0, 2.0]])))
        array([[2., 0.],
               [1., 1.]])
    """
    if isinstance(matrix, np.ndarray):
        # Transposed, it is laid out the way LAPACK reads.
        factor: NDArray[Any]
        factor, _ = _FACTORISE[matrix.dtype.char](matrix.T, lower=1, clean=0)
        return factor
    # The upper factor's transpose is laid out the way solving is fastest.
    return torch.linalg.cholesky_ex(matrix, upper=True).L.T


def solve_lower(factor: Tensor | NDArray[Any], right: Matrix) -> Matrix:
    """``L^-1 B`` for a lower triangular ``L``.

    Args:
        factor: ``L``, shape ``(d, d)``; what is above the diagonal is not looked at.
        right: ``B``, shape ``(d, n)``.

    Returns:
        Shape ``(d, n)``, of the kind of ``B``.

    Example:
        >>> solve_lower(np.array([[2.0, 9.0], [1.0, 1.0]]), np.ones((2, 1)))
        array([[0.5],
               [0.5]])
    """
    if isinstance(factor, np.ndarray):
        if isinstance(right, Tensor):
            return torch.from_numpy(solve_lower(factor, right.numpy()))
        solved: NDArray[Any] = _SOLVE[factor.dtype.char](1.0, factor, right, lower=1)
        return solved
    return torch.linalg.solve_triangular(factor, right, upper=False)


def solve_lower_rows(factor: Tensor | NDArray[Any], rows: Matrix) -> Matrix:
    """``L^-1 h`` of each row ``h``, for a lower triangular ``L``.

    Args:
        factor: ``L``, shape ``(d, d)``; what is above the diagonal is not looked at.
        rows: shape ``(n, d)``.

    Returns:
        Shape ``(n, d)``, of the kind of the rows.

    Example:
        >>> solve_lower_rows(np.array([[2.0, 9.0], [1.0, 1.0]]), np.ones((1, 2)))
        array([[0.5, 0.5]])
    """
    if isinstance(rows, np.ndarray):
        solve, solved = _SOLVE[rows.dtype.char], rows
        if len(rows) >= _SIDE_BY_SIDE:
            solved = solve(1.0, factor, rows, side=1, lower=1, trans_a=1)
        else:
            solved = solve(1.0, factor, rows.T, lower=1).T
        return solved
    return solve_lower(factor, rows.T).T


def inverse(matrix: Matrix) -> Matrix:
    """The inverse of a small matrix; not finite, or not sensible, if there is none.

    Args:
        matrix: shape ``(m, m)``.

    Returns:
        Shape ``(m, m)``.

    Example:
        >>> inverse(np.array([[4.0, 2.0], [2.0, 2.0]]))
        array([[ 0.5, -0.5],
               [-0.5,  1. ]])
    """
    if isinstance(matrix, np.ndarray):
        # What NumPy does around its inverse takes longer than the inverse itself.
        factors, pivots, failed = _FACTORISE_ANY[matrix.dtype.char](matrix)
        if failed:
            return np.full_like(matrix, np.nan)
        inverted: NDArray[Any]
        inverted, _ = _INVERT[matrix.dtype.char](factors, pivots, overwrite_lu=1)
        return inverted
    return torch.linalg.inv_ex(matrix).inverse


def subtract_product(minuend: Matrix, left: Matrix, right: Matrix) -> Matrix:
    """``C - A B``.

    Args:
        minuend: ``C``, shape ``(n, m)``.
        left: ``A``, shape ``(n, k)``.
        right: ``B``, shape ``(k, m)``.

    Returns:
        Shape ``(n, m)``.

    Example:
        >>> subtract_product(np.ones((1, 1)), np.ones((1, 2)), np.ones((2, 1)))
        array([[-1.]])
    """
    if isinstance(left, np.ndarray):
        # In the library that factorises and solves, in one call, and laid out as A is.
        multiply_add = _MULTIPLY_ADD[left.dtype.char]
        difference: NDArray[Any]
        if left.flags.f_contiguous:
            difference = multiply_add(-1.0, left, right, 1.0, minuend)
        else:
            difference = multiply_add(-1.0, right.T, left.T, 1.0, minuend.T).T
        return difference
    return minuend - left @ right


def row_products(left: Matrix, right: Matrix) -> Matrix:
    """Inner products of the rows of two matrices.

    Args:
        left: shape ``(n, D)``.
        right: shape ``(n, D)``.

    Returns:
        Shape ``(n,)``.

    Example:
        >>> row_products(np.ones((2, 3)), np.ones((2, 3)))
        array([3., 3.])
    """
    if isinstance(left, np.ndarray):
        if left.flags.c_contiguous:
            return np.vecdot(left, right)
        # Goes along columns where matrices are laid out in columns.
        products: NDArray[Any] = np.einsum("ij,ij->i", left, right)
        return products
    return torch.linalg.vecdot(left, right)


def update_gain(inner: Matrix, signs: tuple[int, ...]) -> Matrix:
    """``(S + U^T Q)^-1`` of a low-rank update of an inverse (Woodbury).

    Args:
        inner: ``U^T Q``, shape ``(m, m)``.
        signs: the diagonal of ``S``.

    Returns:
        Shape ``(m, m)``; not finite, or not sensible, where there is no inverse.

    Example:
        >>> update_gain(np.array([[1.0]]), (1,))
        array([[0.5]])
    """
    if isinstance(inner, np.ndarray):
        if len(inner) == 2:
            # Most often it is one swap.
            (a, b), (c, d) = inner.tolist()
            a, d = a + signs[0], d + signs[1]
            scale = 1 / (a * d - b * c or math.nan)
            gain = [[d * scale, -b * scale], [-c * scale, a * scale]]
            return np.array(gain, dtype=inner.dtype)
        shifted = inner.copy()
        diagonal = shifted.reshape(-1)[:: len(shifted) + 1]
        diagonal += signs
        return inverse(shifted)
    return inverse(inner + inner.new_tensor(signs).diag())
