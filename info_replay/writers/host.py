"""Between the device and the host: counters, random draws and the one transfer.

Selection is decided on the host. What a writer counts lives in :class:`Counters`, what
it draws comes from a :class:`RandomStream`, and what it must know from the device comes
through :func:`to_host`, the only place in the package that waits for a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import blas
from torch import Tensor

from info_replay.host_array import HostArray
from info_replay.linear_algebra import as_array, on_host

__all__ = [
    "Counters",
    "RandomStream",
    "extremes",
    "surely_within",
    "to_host",
]


# The sum of more numbers may be made by several threads, which wait for each other.
_MANY = 65_536


def _length(values: NDArray[np.float32]) -> float:
    return math.sqrt(blas.sdot(values, values))


# By the character of the type. In single precision little is too large, so that the
# sum of sizes would say nothing.
_BOUND: dict[str, Callable[[NDArray[Any]], float]] = {"f": _length, "d": blas.dasum}


def to_host(*tensors: Tensor | NDArray[Any]) -> list[NDArray[Any]]:
    """Bring small tensors to the host; the only device-to-host transfer there is.

    Args:
        tensors: of one device, of at most one dimension, numbers below ``2**53``;
            arrays are on the host already.

    Returns:
        The same as arrays: of tensors that are on the host already, views; of others,
        float64 copies that came in one transfer.
    """
    if {*map(type, tensors)} == {np.ndarray}:
        return list(tensors)  # type: ignore[arg-type]
    waiting = [t for t in tensors if isinstance(t, Tensor) and t.device.type != "cpu"]
    arrived: list[NDArray[Any]] = []
    if waiting:
        packed = torch.cat([tensor.reshape(-1).double() for tensor in waiting]).cpu()
        parts = packed.split([tensor.numel() for tensor in waiting])
        arrived = [
            part.reshape(tensor.shape).numpy()
            for part, tensor in zip(parts, waiting, strict=True)
        ]
    remaining = iter(arrived)
    return [
        tensor
        if not isinstance(tensor, Tensor)
        else as_array(tensor)
        if tensor.device.type == "cpu"
        else next(remaining)
        for tensor in tensors
    ]


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


def surely_within(values: Tensor | NDArray[Any], largest: float) -> bool:
    """Whether the host knows at once that no value is larger, or not finite.

    The sum of their sizes bounds them all, and so does the length of the vector that
    they are; there is no cheaper look at each. Where the answer is no, or the values
    are elsewhere, :func:`extremes` tell.

    Args:
        values: floating-point numbers.
        largest: bound of their sizes.

    Returns:
        Whether they are known to be fine.
    """
    if isinstance(values, Tensor):
        if not on_host(values):
            return False
        values = as_array(values)
    bound_of = _BOUND.get(values.dtype.char)
    if bound_of is None or not 0 < values.size <= _MANY:
        return False
    bound: float = bound_of(values.reshape(-1))
    return bound <= largest and bound < math.inf


class Counters:
    """Named whole numbers that processes can share.

    Args:
        names: one counter each, all 0.
    """

    def __init__(self, *names: str) -> None:
        self._names = {name: place for place, name in enumerate(names)}
        self._values = HostArray(np.zeros(len(names), dtype=np.int64))

    def __getitem__(self, name: str) -> int:
        """The value of a counter."""
        return int(self._values.array[self._names[name]])

    def __setitem__(self, name: str, value: int) -> None:
        """Set a counter."""
        self._values.array[self._names[name]] = value

    def as_dict(self) -> dict[str, int]:
        """All counters by name."""
        return {name: self[name] for name in self._names}

    def update(self, values: dict[str, int]) -> None:
        """Set several counters."""
        for name, value in values.items():
            self[name] = value

    def share_memory_(self) -> None:
        """Move the counters to memory that child processes share."""
        self._values.share_memory_()


class RandomStream:
    """Four uniform numbers for every item of a stream, addressed by its number.

    The numbers are a function of the seed and of the item's number alone (a
    counter-based generator), so they do not depend on how the stream was cut into
    batches, on what happened to other items or on where a run was interrupted.
    """

    DRAWS = 4  # one block of Philox-4x64
    AHEAD = 1024  # items whose numbers are drawn together

    def __init__(self) -> None:
        self._place = (-1, -1)  # the seed, and the first item of what was drawn
        self._drawn = np.empty((0, self.DRAWS))

    def uniforms(self, seed: int, first: int, count: int) -> NDArray[np.float64]:
        """Numbers in [0, 1) of items ``first`` to ``first + count - 1``.

        Returns:
            Array of shape ``(count, 4)``; not to be changed.
        """
        drawn_seed, drawn_first = self._place
        start = first - drawn_first
        if seed != drawn_seed or start < 0 or start + count > len(self._drawn):
            generator = np.random.Philox(
                key=np.array([seed, 0], dtype=np.uint64),
                counter=np.array([first, 0, 0, 0], dtype=np.uint64),
            )
            raw = generator.random_raw(self.DRAWS * max(count, self.AHEAD))
            numbers = (raw >> np.uint64(11)) * np.float64(2.0**-53)
            self._drawn = numbers.reshape(-1, self.DRAWS)
            self._place, start = (seed, first), 0
        return self._drawn[start : start + count]

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: what was drawn is derived from what is asked for."""
        return {"_place": (-1, -1), "_drawn": np.empty((0, self.DRAWS))}
