"""The one transfer from the device to the host: :func:`to_host`.

Selection is decided on the host. What a writer must know from the device comes through
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
    """Bring small tensors to the host; the only device-to-host transfer there is.

    Args:
        tensors: of one device, of at most one dimension, numbers below ``2**53``;
            arrays are on the host already.

    Returns:
        The same as arrays: of tensors that are on the host already, views; of others,
        float64 copies that came in one transfer.
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
    """Smallest and largest value; NaN if there is one among them.

    Args:
        values: not empty.

    Returns:
        Two numbers, for :func:`to_host`.
    """
    if on_host(values):
        array = as_array(values)
        return np.asarray(array.min()), np.asarray(array.max())
    low, high = torch.aminmax(values)
    return low, high
