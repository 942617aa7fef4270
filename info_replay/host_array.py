"""Small arrays on the host that several processes can share: :class:`HostArray`."""

from __future__ import annotations

from multiprocessing.context import get_spawning_popen
from typing import Any

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
        self.array = array.copy()
        self._shared: torch.Tensor | None = None

    def share_memory_(self) -> None:
        """Move the values to memory that child processes share."""
        if self._shared is None:
            self._shared = torch.from_numpy(self.array).share_memory_()
            self.array = self._shared.numpy()

    def tensor(self) -> torch.Tensor:
        """A copy as a tensor, to be saved."""
        return torch.from_numpy(self.array.copy())

    def assign(self, tensor: torch.Tensor) -> None:
        """Take values that :meth:`tensor` gave."""
        self.array[...] = tensor.cpu().numpy()

    def __getstate__(self) -> dict[str, Any]:
        """The values; on the way to a child process they are shared first."""
        if get_spawning_popen() is not None:
            self.share_memory_()
            return {"shared": self._shared}
        return {"array": self.array}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Look at what arrived."""
        self._shared = state.get("shared")
        self.array = state["array"] if self._shared is None else self._shared.numpy()

    def __deepcopy__(self, memo: dict[int, Any]) -> HostArray:
        """A copy of its own."""
        return HostArray(self.array)
