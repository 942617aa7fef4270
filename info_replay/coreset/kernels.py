"""Kernels that stand in for a network where training one would be too slow.

Coresets are selected with :class:`ReLUTangentKernel`; see
:mod:`info_replay.coreset.selection`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from info_replay.validation import check_count

__all__ = ["ReLUTangentKernel"]


@dataclass(frozen=True)
class ReLUTangentKernel:
    r"""Neural tangent kernel of an infinitely wide, fully connected ReLU network.

    Two inputs at the angle ``arccos(c)`` leave a layer of random weights and ReLUs at
    the angle ``arccos(c')``, and their slopes agree as often as ``s`` says:

    .. math::
        c' = \frac{\sqrt{1 - c^2} + (\pi - \arccos c)\, c}{\pi}, \qquad
        s = \frac{\pi - \arccos c}{\pi}

    From layer to layer the tangent kernel is ``t' = s t + c'``, starting with
    ``t = c = cos(left, right)``. The network has no biases and weights of variance
    ``2 / width``, which keep the length of what passes through them.

    Inputs are normalized to length 1, so that the kernel depends on their angle alone.
    Otherwise bright images would count for more than dark ones, and the regularization
    of a model would depend on the number of pixels. The kernel of an input with itself
    is ``depth + 1``; that of an input of zeros with any input is 0.

    Args:
        depth: number of hidden layers, at least 1.

    Example:
        >>> import torch
        >>> images = torch.tensor([[3.0, 0.0], [0.0, 0.5], [1.0, 1.0]])
        >>> ReLUTangentKernel(depth=1)(images, images[:2])
        tensor([[2.0000, 0.3183],
                [0.3183, 2.0000],
                [1.2857, 1.2857]], dtype=torch.float64)
    """

    depth: int = 2

    def __post_init__(self) -> None:
        """Refuse a depth that is not a whole number above 0."""
        check_count("depth", self.depth)

    def __call__(self, left: Tensor, right: Tensor) -> Tensor:
        """Kernel of every left input with every right one.

        Args:
            left: shape ``(n, ...)``, of any type and on any device; flattened.
            right: shape ``(m, ...)``, on the device of ``left``, with as many numbers
                per input.

        Returns:
            float64 of shape ``(n, m)`` on the device of the inputs.

        Raises:
            ValueError: if the inputs on the two sides differ in size.
        """
        rows, columns = (_flat(inputs) for inputs in (left, right))
        if rows.shape[1] != columns.shape[1]:
            raise ValueError(
                "left and right must hold inputs of one size, got "
                f"{tuple(left.shape)} and {tuple(right.shape)}"
            )
        row_norms, column_norms = rows.norm(dim=1), columns.norm(dim=1)
        cosine = _scaled(rows, row_norms) @ _scaled(columns, column_norms).T
        tangent = cosine = cosine.clamp(-1, 1)
        for _ in range(self.depth):
            slope = 1 - cosine.arccos() / math.pi
            # Rounding would lead out of the range of arccos.
            cosine = ((1 - cosine**2).sqrt() / math.pi + slope * cosine).clamp(-1, 1)
            tangent = slope * tangent + cosine
        # For an input of zeros the recursion takes the cosine 0 as a right angle.
        return tangent * (row_norms > 0)[:, None] * (column_norms > 0)


def _flat(inputs: Tensor) -> Tensor:
    # Inputs of a single number may come without a dimension of their own.
    return inputs.unsqueeze(-1).flatten(start_dim=1).double()


def _scaled(inputs: Tensor, norms: Tensor) -> Tensor:
    return inputs / norms.where(norms > 0, 1.0)[:, None]
