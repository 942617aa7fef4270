r"""Coresets: a few points to learn from as if from all of them (Borsos et al. 2020).

**The two levels.** A coreset ``S`` is good if the model that learns from it is good at
all ``n`` points. The model is a kernel machine ``f`` with one output per class:

.. math::
    \text{outer:}\quad G(f) = \sum_{i=1}^n v_i\, \ell_i(f) \Big/ \sum_{i=1}^n v_i
    \qquad
    \text{inner:}\quad f_S = \arg\min_f \sum_{j \in S} \ell_j(f) + \lambda \|f\|^2

with :math:`\ell_i` the cross-entropy of ``softmax(f(x_i))`` at the label of point
``i`` and the norm that of the kernel's function space.

**What a candidate is worth.** Let ``r_i = softmax(f(x_i)) - onehot(y_i)`` be the
slopes of the losses, and let candidate ``c`` enter the inner problem with weight ``e``.
Its slope is the function ``k(., x_c) r_c``, so ``f_S`` moves by ``-e H^-1 k(., x_c)
r_c`` where ``H`` is the inner Hessian, and

.. math::
    \frac{dG}{de} = -\langle \nabla G,\ H^{-1} k(\cdot, x_c) r_c \rangle
    = -u(x_c)^\top r_c, \qquad u = H^{-1} \nabla G, \qquad
    \nabla G = \sum_i k(\cdot, x_i)\, q_i, \quad q_i = \frac{v_i r_i}{\sum_l v_l}

since :math:`\langle u, k(\cdot, x_c) r \rangle = u(x_c)^\top r`: one solve serves all
candidates. The best candidate is the one whose own loss falls most along the step
``-u``, which lowers the outer objective.

**The solve.** The Hessian is :math:`H = 2\lambda I + \sum_{j \in S} k(\cdot, x_j) P_j
k(\cdot, x_j)^\top` with ``P_j`` that of the cross-entropy. Outside the span of ``S`` it
is ``2 lambda``. Let ``phi`` (``n`` rows, one column per dimension of the span) be the
values of an orthonormal basis of the span, which a Cholesky factorization extends point
by point. Then both parts are explicit:

.. math::
    u = \phi\, t + \frac{K q - \phi \phi^\top q}{2\lambda}, \qquad
    \Big(2\lambda I + \sum_{j \in S} \phi_j^\top P_j \phi_j\Big) t = \phi^\top q

The system is small, symmetric and well conditioned (fitted points have small ``P_j``),
which suits conjugate gradients. Newton's method solves the inner problem with the same
system in the same coordinates, ``f = phi b`` with ``|f|^2 = |b|^2``. The coordinates
are nested, so each solution is where the next one starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from info_replay.validation import check_count, check_positive

__all__ = ["Coreset", "merge_index", "select_coreset"]

Array = NDArray[np.float64]

# The inner problem is solved until no slope is larger than this, a thousandth of those
# of fitted points (about lambda * logit). On handwritten digits the choices are those
# of a solution to 1e-10; at 1e-4 a few percent differ.
_INNER_TOLERANCE = 1e-6
_INNER_ITERATIONS = 100

# Conjugate gradients stop when the residual has shrunk to this part of its start: for
# one Newton step of many, and for a solution that is used.
_STEP_TOLERANCE = 0.1
_SOLVE_TOLERANCE = 1e-6
_SOLVE_ITERATIONS = 100

# A step must gain this part of what it promises, up to the rounding of the objective.
_SUFFICIENT = 1e-4
_ROUNDING = 1e-14

# A point adds a dimension to the span if this part of its squared norm lies outside.
_NEW_DIRECTION = 1e-10

# Candidates whose gradients differ by less than this part are tied: copies of a point
# have the same gradient up to rounding.
_TIE = 1e-7


@dataclass(frozen=True)
class Coreset:
    """Points that stand for all points.

    Args:
        indices: the points, int64 of shape ``(size,)``, in the order of selection.
        weights: how many of the points each one stands for, shape ``(size,)``.

    Example:
        >>> import numpy as np
        >>> Coreset(indices=np.array([4, 0]), weights=np.array([2.5, 2.5])).indices
        array([4, 0])
    """

    indices: NDArray[np.int64]
    weights: Array


def select_coreset(
    kernel: Array,
    labels: NDArray[np.int64],
    weights: Array,
    size: int,
    num_classes: int,
    *,
    regularization: float = 1e-4,
) -> Coreset:
    """Choose the points that a model learns most from about all points.

    Greedy: the model is fitted to the points chosen so far, none at first, each of
    weight 1, and the candidate with the most negative gradient of the outer objective
    comes next (see the module). Of tied candidates the first is taken, so the same
    points always give the same coreset.

    The points share the total weight evenly, as in the continual learning of Borsos et
    al. (2020), "Coresets via bilevel optimization for continual learning and
    streaming". If there are at most ``size`` points, all are returned, in their order
    and with their own weights.

    Args:
        kernel: kernel of every point with every point, shape ``(n, n)``, symmetric and
            positive semi-definite.
        labels: class of each point, shape ``(n,)``, below ``num_classes``.
        weights: how much each point counts in the outer objective, shape ``(n,)``.
        size: number of points to choose.
        num_classes: number of classes.
        regularization: ``lambda``, the price of the model's squared norm.

    Returns:
        The coreset, of ``min(size, n)`` points.

    Raises:
        ValueError: if an argument is out of its range or shapes do not match.

    Example:
        Two clusters: the heavier one comes first, then the other one.

        >>> import numpy as np
        >>> points = np.array([-1.1, -1.0, -0.9, 0.9, 1.0])
        >>> kernel = np.exp(-np.subtract.outer(points, points) ** 2)
        >>> labels = np.array([0, 0, 0, 1, 1])
        >>> coreset = select_coreset(kernel, labels, np.ones(5), 2, num_classes=2)
        >>> coreset.indices, coreset.weights
        (array([1, 3]), array([2.5, 2.5]))
    """
    check_count("num_classes", num_classes)
    check_positive("regularization", regularization)
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    _check_points(kernel, labels, weights, num_classes)
    count = len(labels)
    if size >= count:
        return Coreset(np.arange(count), weights.astype(np.float64))
    model = KernelModel(kernel, labels, weights, num_classes, regularization)
    for _ in range(size):
        gradients = model.gradients()
        gradients[model.chosen] = np.inf
        least = gradients.min()
        model.add(int(np.argmax(gradients <= least + _TIE * abs(least))))
    share = weights.sum() / size
    return Coreset(np.array(model.chosen, dtype=np.int64), np.full(size, share))


def merge_index(counts: Sequence[int]) -> int:
    """Which neighboring slots of a stream to merge when there is one too many.

    A stream is kept in slots of one size, each a coreset of ``counts`` batches, and a
    new batch opens a slot of its own. The rule gives each part of the stream about the
    same part of the memory. Like carries of a counter, equal neighbors are merged, the
    lightest first and of those the oldest, which doubles the count of a slot. While the
    last old slot is lighter than the one before it, it takes in the new batch instead.
    Hence all slots but the last two hold powers of two, at most one power apart.

    Args:
        counts: number of batches in each slot, oldest first, never increasing; at least
            two slots.

    Returns:
        The number ``i`` of the older slot: merge ``i`` and ``i + 1``.

    Raises:
        ValueError: if there are fewer than two slots or counts increase.

    Example:
        Three slots, as batches arrive:

        >>> slots = []
        >>> for _ in range(8):
        ...     slots.append(1)
        ...     if len(slots) > 3:
        ...         place = merge_index(slots)
        ...         slots[place : place + 2] = [slots[place] + slots[place + 1]]
        >>> slots
        [4, 2, 2]
    """
    pairs = list(zip(counts, counts[1:], strict=False))
    if not pairs or any(older < newer for older, newer in pairs):
        raise ValueError(
            "counts must be those of two or more slots and never increase, got "
            f"{list(counts)}"
        )
    last = len(pairs) - 1
    if last > 0 and counts[last - 1] == counts[last]:
        lightest = min(older for older, newer in pairs if older == newer)
        return pairs.index((lightest, lightest))
    return last


class KernelModel:
    """A kernel machine, fitted to chosen points and judged on all of them.

    Arguments are those of :func:`select_coreset`.
    """

    def __init__(
        self,
        kernel: Array,
        labels: NDArray[np.int64],
        weights: Array,
        num_classes: int,
        regularization: float,
    ) -> None:
        self.chosen: list[int] = []
        self._kernel = kernel
        self._targets = np.zeros((len(labels), num_classes))
        self._targets[np.arange(len(labels)), labels] = 1
        self._shares = (weights / weights.sum())[:, None]
        self._ridge = 2 * regularization
        # A basis of the span of the chosen points, at all points, and the model in it.
        self._basis = np.empty((len(labels), 0))
        self._coefficients = np.empty((0, num_classes))

    def logits(self) -> Array:
        """Logits of the fitted model at all points, shape ``(n, num_classes)``."""
        self._fit()
        return self._basis @ self._coefficients

    def add(self, point: int) -> None:
        """Add a point to those that the model is fitted to."""
        self.chosen.append(point)
        outside = self._kernel[:, point] - self._basis @ self._basis[point]
        if outside[point] > _NEW_DIRECTION * self._kernel[point, point]:
            column = outside / np.sqrt(outside[point])
            zeros = np.zeros(self._targets.shape[1])
            self._basis = np.column_stack([self._basis, column])
            self._coefficients = np.vstack([self._coefficients, zeros])

    def gradients(self) -> Array:
        """Of the outer objective with respect to the weight of each point, ``(n,)``."""
        probabilities, _ = _softmax(self.logits())
        slopes = probabilities - self._targets
        outer = self._shares * slopes
        inside = self._basis.T @ outer
        hessian = self._hessian(self._basis[self.chosen], probabilities[self.chosen])
        solution = _solve(hessian, inside, _SOLVE_TOLERANCE) - inside / self._ridge
        step = self._basis @ solution + self._kernel @ outer / self._ridge
        return -np.einsum("ik,ik->i", step, slopes)

    def _fit(self) -> None:
        """Solve the inner problem by Newton's method from the current coefficients."""
        basis, targets = self._basis[self.chosen], self._targets[self.chosen]

        def objective(coefficients: Array) -> tuple[float, Array]:
            logits = basis @ coefficients
            probabilities, normalizers = _softmax(logits)
            loss = normalizers.sum() - np.vdot(targets, logits)
            norm = np.vdot(coefficients, coefficients)
            return loss + self._ridge / 2 * norm, probabilities

        value, probabilities = objective(self._coefficients)
        for _ in range(_INNER_ITERATIONS):
            slope = basis.T @ (probabilities - targets)
            slope += self._ridge * self._coefficients
            if np.abs(slope).max(initial=0) <= _INNER_TOLERANCE:
                break
            step = _solve(self._hessian(basis, probabilities), slope, _STEP_TOLERANCE)
            bound, promise = value * (1 + _ROUNDING), np.vdot(step, slope)
            for length in 0.5 ** np.arange(30):
                trial = self._coefficients - length * step
                value, probabilities = objective(trial)
                if value <= bound - _SUFFICIENT * length * promise:
                    break
            self._coefficients = trial

    def _hessian(self, basis: Array, probabilities: Array) -> Callable[[Array], Array]:
        """The inner Hessian as a function of the step that it is applied to."""

        def product(step: Array) -> Array:
            change = probabilities * (basis @ step)
            change -= probabilities * change.sum(axis=1, keepdims=True)
            return basis.T @ change + self._ridge * step

        return product


def _softmax(logits: Array) -> tuple[Array, Array]:
    """Probabilities ``(n, K)`` and the logarithms ``(n, 1)`` of their normalizers."""
    highest = logits.max(axis=1, keepdims=True)
    exponentials = np.exp(logits - highest)
    sums = exponentials.sum(axis=1, keepdims=True)
    return exponentials / sums, highest + np.log(sums)


def _solve(operator: Callable[[Array], Array], right: Array, tolerance: float) -> Array:
    """Conjugate gradients: ``operator(solution) = right``."""
    solution, residual = np.zeros_like(right), right
    direction, squares = residual, np.vdot(residual, residual)
    goal = tolerance**2 * squares
    for _ in range(_SOLVE_ITERATIONS):
        if squares <= goal:
            break
        image = operator(direction)
        length = squares / np.vdot(direction, image)
        solution = solution + length * direction
        residual = residual - length * image
        previous, squares = squares, np.vdot(residual, residual)
        direction = residual + squares / previous * direction
    return solution


def _check_points(
    kernel: Array, labels: NDArray[np.int64], weights: Array, num_classes: int
) -> None:
    count = len(labels)
    if labels.shape != (count,) or weights.shape != (count,) or count == 0:
        raise ValueError(
            "labels and weights must both have the shape (n,) with n > 0, got "
            f"{labels.shape} and {weights.shape}"
        )
    if kernel.shape != (count, count):
        raise ValueError(
            f"kernel must have the shape ({count}, {count}), got {kernel.shape}"
        )
    if not np.isfinite(kernel).all():
        raise ValueError("kernel must be finite, got values that are not")
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"labels must lie in [0, {num_classes}), got values from {labels.min()} to "
            f"{labels.max()}"
        )
    if not (np.isfinite(weights).all() and weights.min() > 0):
        raise ValueError(
            f"weights must be finite numbers > 0, got {weights.min()} as the smallest"
        )
