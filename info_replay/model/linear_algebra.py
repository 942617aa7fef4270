"""The dense operations of the posterior: multiply, factorize and solve.

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

#: A tensor or, on the host, an array: many operations on few numbers are several times
#: faster with arrays.
Matrix = TypeVar("Matrix", Tensor, NDArray[Any])

# By the character of the type.
_FACTORIZE = {"f": lapack.spotrf, "d": lapack.dpotrf}
_MULTIPLY = {"f": blas.ssyrk, "d": blas.dsyrk}
_SOLVE = {"f": blas.strsm, "d": blas.dtrsm}
_FACTORIZE_ANY = {"f": lapack.sgetrf, "d": lapack.dgetrf}
_INVERT = {"f": lapack.sgetri, "d": lapack.dgetri}
_MULTIPLY_ADD = {"f": blas.sgemm, "d": blas.dgemm}

# More numbers than this may be summed by several threads, which wait for each other.
_MANY = 65_536

# From this many rows on, solving for rows side by side takes two thirds of the time.
_SIDE_BY_SIDE = 16


def on_host(tensor: Tensor) -> bool:
    """Whether ``tensor.numpy()`` is free; a fake tensor has no memory to share."""
    return type(tensor) is Tensor and tensor.is_cpu


def plain(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor without gradients on a device: itself, if it is that already."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()  # NumPy has no such views
    # Comparing devices is several times as fast as a call of `to` that does nothing.
    return tensor if tensor.device == device else tensor.to(device)


def as_array(tensor: Tensor) -> NDArray[Any]:
    """A tensor on the host as an array; only bfloat16 is copied, as float32."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def known_within(values: Tensor | NDArray[Any], largest: float) -> bool:
    """Whether a norm shows that all values are finite and none exceeds ``largest``.

    Of values with ``False`` nothing is known: each must be looked at.
    """
    if isinstance(values, Tensor):
        if not on_host(values):
            return False
        values = as_array(values)
    kind = values.dtype.char
    if kind not in "fd" or not 0 < values.size <= _MANY:
        return False
    flat = values.reshape(-1)
    # Limits in single precision are low: the 1-norm of good values may exceed them.
    bound: float = blas.dasum(flat) if kind == "d" else math.sqrt(blas.sdot(flat, flat))
    return bound <= largest and bound < math.inf


def native(tensor: Tensor) -> Any:
    """A tensor as the kind to compute with: an array on the host; shares its memory."""
    return tensor.numpy() if on_host(tensor) else tensor


def alike(matrix: Tensor | NDArray[Any], example: Matrix) -> Matrix:
    """A tensor or array as the kind that the example is; shares its memory."""
    if isinstance(example, np.ndarray):
        return as_array(matrix) if isinstance(matrix, Tensor) else matrix
    return matrix if isinstance(matrix, Tensor) else torch.from_numpy(matrix)


def products(rows: Matrix, diagonal: float, height: int) -> Matrix:
    """The first rows ``(height, m)`` of ``R^T R + cI`` for ``R`` of shape ``(n, m)``.

    Only what is on and above the diagonal has a meaning.
    """
    if isinstance(rows, np.ndarray):
        # Half of a symmetric result is enough: LAPACK reads no more of it.
        half = _MULTIPLY[rows.dtype.char](1.0, rows.T, lower=1).T[:height]
        on_diagonal = half.reshape(-1)[:: half.shape[1] + 1]
        on_diagonal += diagonal
        return half
    result = rows[:, :height].T @ rows
    result.diagonal().add_(diagonal)
    return result


def cholesky(matrix: Matrix) -> Matrix:
    """Lower factor ``L`` of a positive definite ``L L^T``, shape ``(d, d)``.

    Reads the upper triangle only; what is above the diagonal of ``L`` has no meaning.
    Nothing is checked, so nothing waits for the device: a failure shows as results that
    are not finite, or not sensible.
    """
    if isinstance(matrix, np.ndarray):
        # Transposed, it is laid out the way LAPACK reads.
        return _FACTORIZE[matrix.dtype.char](matrix.T, lower=1, clean=0)[0]
    # The transpose of the upper factor is laid out the way solving is fastest.
    return torch.linalg.cholesky_ex(matrix, upper=True).L.T


def solve_lower(factor: Tensor | NDArray[Any], right: Matrix) -> Matrix:
    """``L^-1 B``, shape ``(d, n)``; only the lower triangle of ``L`` is read."""
    if isinstance(factor, np.ndarray):
        if isinstance(right, Tensor):
            return torch.from_numpy(solve_lower(factor, right.numpy()))
        return _SOLVE[factor.dtype.char](1.0, factor, right, lower=1)
    return torch.linalg.solve_triangular(factor, right, upper=False)


def solve_lower_rows(factor: Tensor | NDArray[Any], rows: Matrix) -> Matrix:
    """``L^-1 h`` of each row ``h``, shape ``(n, d)``; see :func:`solve_lower`."""
    if isinstance(rows, np.ndarray):
        solve = _SOLVE[rows.dtype.char]
        if len(rows) >= _SIDE_BY_SIDE:
            return solve(1.0, factor, rows, side=1, lower=1, trans_a=1)
        return solve(1.0, factor, rows.T, lower=1).T
    return solve_lower(factor, rows.T).T


def inverse(matrix: Matrix) -> Matrix:
    """The inverse of a small matrix; not finite, or not sensible, if there is none."""
    if isinstance(matrix, np.ndarray):
        # What NumPy does around its inverse takes longer than the inverse itself.
        factors, pivots, failed = _FACTORIZE_ANY[matrix.dtype.char](matrix)
        if failed:
            return np.full_like(matrix, np.nan)
        return _INVERT[matrix.dtype.char](factors, pivots, overwrite_lu=1)[0]
    return torch.linalg.inv_ex(matrix).inverse


def subtract_product(minuend: Matrix, left: Matrix, right: Matrix) -> Matrix:
    """``C - A B``, shape ``(n, m)``."""
    if isinstance(left, np.ndarray):
        # One call of the library that factorizes and solves; laid out as A is.
        multiply_add = _MULTIPLY_ADD[left.dtype.char]
        if left.flags.f_contiguous:
            return multiply_add(-1.0, left, right, 1.0, minuend)
        return multiply_add(-1.0, right.T, left.T, 1.0, minuend.T).T
    return minuend - left @ right


def row_products(left: Matrix, right: Matrix) -> Matrix:
    """Inner products ``(n,)`` of the rows of two matrices ``(n, D)``."""
    if isinstance(left, np.ndarray):
        if left.flags.c_contiguous:
            return np.vecdot(left, right)
        # Goes along columns where matrices are laid out in columns.
        return np.einsum("ij,ij->i", left, right)
    return torch.linalg.vecdot(left, right)


def update_gain(inner: Matrix, signs: tuple[int, ...]) -> Matrix:
    """``(S + U^T Q)^-1`` of a low-rank update of an inverse (Woodbury).

    ``inner`` is ``U^T Q``, shape ``(m, m)``, and ``signs`` the diagonal of ``S``. The
    result is not finite, or not sensible, if there is no inverse.
    """
    if isinstance(inner, np.ndarray):
        if len(inner) == 2:
            # The most frequent case: one swap.
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
