"""State whose shape is that of the first items: :class:`LateArray`."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import DTypeLike, NDArray

from info_replay.shared_state import SharedArray
from info_replay.validation import told

__all__ = ["LateArray"]


class LateArray:
    """A :class:`~info_replay.shared_state.SharedArray` that is made later.

    Args:
        dtype: of its numbers.

    Example:
        >>> import numpy as np
        >>> sums = LateArray(np.float64)
        >>> sums.array is None
        True
        >>> sums.prepare((2, 3))
        >>> sums.array.shape
        (2, 3)
    """

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = dtype
        self._made: SharedArray | None = None
        self._shared = False

    @property
    def array(self) -> NDArray[Any] | None:
        """The array, changed in place only; ``None`` before it is made."""
        return None if self._made is None else self._made.array

    def prepare(self, shape: int | tuple[int, ...]) -> None:
        """Make the array, of zeros, if there is none yet."""
        if self._made is None:
            self._made = SharedArray(shape, self._dtype)
            if self._shared:
                self._made.share_memory_()

    def put(self, values: NDArray[Any]) -> None:
        """Take new values; the first ones give the shape."""
        self.prepare(values.shape)
        assert self._made is not None
        assert self._made.array.shape == values.shape
        self._made.array[...] = values

    def clear(self) -> None:
        """Set all to zero; the shape stays."""
        if self._made is not None:
            self._made.clear()

    def state_dict(self) -> torch.Tensor | None:
        """A copy as a tensor; ``None`` before the array is made."""
        return None if self._made is None else self._made.state_dict()

    def check_state(self, state: Any) -> None:
        """Raise ``ValueError`` if a saved state does not fit."""
        if state is None:
            return
        if not isinstance(state, torch.Tensor):
            raise ValueError(f"expected a tensor or None, got {told(state)}")
        made = self._made or SharedArray(tuple(state.shape), self._dtype)
        made.check_state(state)

    def load_state_dict(self, state: torch.Tensor | None) -> None:
        """Continue from a state that was checked."""
        if state is not None:
            self.prepare(tuple(state.shape))
            assert self._made is not None
            self._made.load_state_dict(state)
        elif self._shared:
            self.clear()
        else:
            self._made = None

    def share_memory_(self) -> None:
        """Have the values, now or once they are made, in memory of child processes."""
        self._shared = True
        if self._made is not None:
            self._made.share_memory_()
