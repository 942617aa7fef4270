"""Writing rows of a batch to slots of a stored tensor: :func:`write_rows`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["write_rows"]

# Types that NumPy has, too.
_ARRAY_TYPES = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32}
_ARRAY_TYPES |= {torch.int64, torch.float16, torch.float32, torch.float64}


def write_rows(
    leaf: Any,
    where: slice | NDArray[np.int64],
    value: Any,
    rows: NDArray[np.int64] | None,
    picks: dict[torch.device, Tensor],
) -> None:
    """Write some rows of a value, by default all, to slots of a stored tensor.

    ``picks`` caches the rows as a tensor on each device.
    """
    if (
        type(leaf) is type(value) is Tensor
        and leaf.is_cpu
        and value.is_cpu
        and leaf.dtype in _ARRAY_TYPES
        and not value.is_neg()
    ):
        # NumPy takes half the time of torch.
        source = value.detach().numpy() if value.requires_grad else value.numpy()
        target = leaf.detach() if leaf.requires_grad else leaf
        target.numpy()[where] = source if rows is None else source[rows]
        # Autograd must notice if somebody still needs the old values.
        torch.autograd.graph.increment_version(leaf)
        return
    if isinstance(where, np.ndarray):
        where = torch.from_numpy(where).to(leaf.device)  # type: ignore[assignment]
    if rows is not None:
        pick = picks.get(value.device)
        if pick is None:
            pick = picks[value.device] = torch.from_numpy(rows).to(value.device)
        value = value[pick]
    leaf[where] = value.to(leaf.device) if isinstance(value, Tensor) else value
