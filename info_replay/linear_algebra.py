"""The dense operations that the posterior lives on: multiply, factorise and solve.

On the host they go to SciPy's LAPACK, which takes half the time of torch's at the sizes
of a memory (d of 100 to 500, one thread), on other devices to torch.
"""

from __future__ import annotations

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
    "on_host",
    "products",
    "solve_lower",
]

#: A tensor or, on the host, an array: what consists of many operations on little is
#: several times faster with arrays.
Matrix = TypeVar("Matrix", Tensor, NDArray[Any])

_FACTORISE = {torch.float32: lapack.spotrf, torch.float64: lapack.dpotrf}
_MULTIPLY = {torch.float32: blas.ssyrk, torch.float64: blas.dsyrk}
_SOLVE = {torch.float32: blas.strsm, torch.float64: blas.dtrsm}


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


def alike(tensor: Tensor, example: Matrix) -> Matrix:
    """A tensor as what the example is; of arrays, a view of the tensor's memory.

    Args:
        tensor: on the host, if the example is an array.
        example: a tensor or an array.

    Returns:
        The tensor, or an array that shares its memory.

    Example:
        >>> alike(torch.ones(2), np.zeros(1))
        array([1., 1.], dtype=float32)
    """
    return as_array(tensor) if isinstance(example, np.ndarray) else tensor


def products(rows: Tensor, diagonal: float, height: int) -> Tensor:
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
    if on_host(rows):
        # Of a symmetric result half is enough: that is what LAPACK will read of it.
        half = _MULTIPLY[rows.dtype](1.0, rows.numpy().T, lower=1).T[:height]
        half.reshape(-1)[:: half.shape[1] + 1] += diagonal
        return torch.from_numpy(half)
    result = rows[:, :height].T @ rows
    result.diagonal().add_(diagonal)
    return result


def cholesky(matrix: Tensor) -> Tensor:
    """Lower factor ``L`` of a symmetric positive definite matrix ``L L^T``.

    Nothing is checked, so nothing waits for the device: what goes wrong shows as
    numbers that are not finite, or not sensible, further on.

    Args:
        matrix: shape ``(d, d)``; what is below the diagonal is not looked at.

    Returns:
        Shape ``(d, d)``, for :func:`solve_lower` only: what is above the diagonal has
        no meaning.

    Example:
        >>> factor = cholesky(torch.tensor([[4.0, 2.0], [2.0, 2.0]]))
        >>> factor.tril()
        tensor([[2., 0.],
                [1., 1.]])
    """
    if on_host(matrix):
        # Transposed, it is laid out the way LAPACK reads.
        factor, _ = _FACTORISE[matrix.dtype](matrix.numpy().T, lower=1, clean=0)
        return torch.from_numpy(factor)
    # The upper factor's transpose is laid out the way solving is fastest.
    return torch.linalg.cholesky_ex(matrix, upper=True).L.T


def solve_lower(factor: Tensor, right: Matrix) -> Matrix:
    """``L^-1 B`` for a lower triangular ``L``.

    Args:
        factor: ``L``, shape ``(d, d)``; what is above the diagonal is not looked at.
        right: ``B``, shape ``(d, n)``.

    Returns:
        Shape ``(d, n)``.

    Example:
        >>> solve_lower(torch.tensor([[2.0, 9.0], [1.0, 1.0]]), torch.ones(2, 1))
        tensor([[0.5000],
                [0.5000]])
    """
    if isinstance(right, np.ndarray):
        solved: NDArray[Any] = _SOLVE[factor.dtype](1.0, factor.numpy(), right, lower=1)
        return solved
    if on_host(factor):
        return torch.from_numpy(solve_lower(factor, right.numpy()))
    return torch.linalg.solve_triangular(factor, right, upper=False)
