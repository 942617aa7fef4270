"""Small arrays on the host that several processes can share: :class:`HostArray`."""

from __future__ import annotations

from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["HostArray"]


class HostArray:
    """A numpy array that child processes see, and change, once it is shared.

    It is never a torch tensor to its users: reading a number costs a fraction of a
    microsecond, and modes that intercept torch do not touch it.

    Args:
        array: first values.

    Attributes:
        array: the values; change them in place only.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self._tensor = torch.from_numpy(np.ascontiguousarray(array).copy())
        self.array: NDArray[Any] = self._tensor.numpy()

    def share_memory_(self) -> None:
        """Move the values to memory that child processes share."""
        self._tensor.share_memory_()
        self.array = self._tensor.numpy()

    def tensor(self) -> torch.Tensor:
        """A copy as a tensor, to be saved."""
        return torch.from_numpy(self.array.copy())

    def assign(self, tensor: torch.Tensor) -> None:
        """Take values that :meth:`tensor` gave."""
        self.array[...] = tensor.cpu().numpy()

    def __getstate__(self) -> torch.Tensor:
        """The tensor alone; on its way to a child process it is shared first."""
        if get_spawning_popen() is not None:
            self.share_memory_()
        return self._tensor

    def __setstate__(self, state: torch.Tensor) -> None:
        """Look at the tensor that arrived."""
        self._tensor = state
        self.array = state.numpy()

    def __deepcopy__(self, memo: dict[int, Any]) -> HostArray:
        """A copy of its own."""
        return HostArray(self.array)
