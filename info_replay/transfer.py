"""The one transfer from the device to the host: :func:`to_host`.

Writers decide on the host. What they need from the device comes through
:func:`to_host`, the only place in the package that waits for a device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from info_replay.model.linear_algebra import as_array, on_host

__all__ = ["extremes", "pull", "to_host"]


def to_host(*tensors: Tensor | NDArray[Any]) -> list[NDArray[Any]]:
    """Tensors of one device as arrays: views on the host, else float64 copies.

    The copies come in one transfer, so numbers must be below ``2**53``. Arrays are
    returned as they are.
    """
    arrays: list[Any] = []
    waiting: list[Tensor] = []
    for tensor in tensors:
        if isinstance(tensor, Tensor) and tensor.device.type != "cpu":
            waiting.append(tensor)
            arrays.append(None)
        else:
            arrays.append(as_array(tensor) if isinstance(tensor, Tensor) else tensor)
    if waiting:
        packed = pull(torch.cat([tensor.reshape(-1).double() for tensor in waiting]))
        ends = np.cumsum([tensor.numel() for tensor in waiting])
        parts = zip(np.split(packed, ends[:-1]), waiting, strict=True)
        arrived = (part.reshape(tensor.shape) for part, tensor in parts)
        arrays = [next(arrived) if array is None else array for array in arrays]
    return arrays


def pull(tensor: Tensor) -> NDArray[np.float64]:
    """Wait for a tensor and bring it to the host."""
    return tensor.cpu().numpy()


def extremes(values: Tensor) -> tuple[Tensor | NDArray[Any], Tensor | NDArray[Any]]:
    """Smallest and largest value for :func:`to_host`; NaN if any value is NaN."""
    if on_host(values):
        array = as_array(values)
        return np.asarray(array.min()), np.asarray(array.max())
    low, high = torch.aminmax(values)
    return low, high
