"""What a writer keeps between batches, declared once: :class:`DeclaredState`.

A writer says in its constructor what it keeps; all that is saved, restored, compared,
cleared and shared without another line. The kinds:

* :class:`SharedArray`, an array of a fixed shape, and :class:`SharedNumber`;
* :class:`PerSlot`, one number per slot, which moves along with the items;
* any other :class:`Part`, such as :class:`~info_replay.RunningMoments`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import inspect
import math
from multiprocessing.context import get_spawning_popen
from multiprocessing.sharedctypes import RawArray
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from info_replay.validation import told

__all__ = ["DeclaredState", "Part", "PerSlot", "SharedArray", "SharedNumber"]


class Part(Protocol):
    """A part of a writer's state."""

    def clear(self) -> None:
        """Go back to the state before the first item."""

    def state_dict(self) -> Any:
        """A copy of the state, as plain values and tensors."""

    def check_state(self, state: Any) -> None:
        """Raise ``ValueError`` if a saved state does not fit; change nothing."""

    def load_state_dict(self, state: Any) -> None:
        """Continue from a state that was checked."""

    def share_memory_(self) -> object:
        """Move the state to memory that child processes share."""


class SharedArray:
    """A NumPy ``array``, changed in place only, that child processes see once shared.

    Not a tensor: reading a number takes a fraction of a microsecond, and modes that
    intercept torch do not touch it. ``empty`` is the first value of each number, and
    ``low`` and ``high`` are the least and the largest that a saved one may have.
    """

    def __init__(
        self,
        shape: int | tuple[int, ...],
        dtype: DTypeLike,
        empty: float = 0,
        low: float = -math.inf,
        high: float = math.inf,
    ) -> None:
        self.empty = empty
        self.low = low
        self.high = high
        self.array: NDArray[Any] = np.full(shape, empty, dtype=dtype)
        # Not a shared tensor: torch moves the memory of one if its sharing strategy has
        # changed, which TorchRL does for torch before 2.8.
        self._shared: Any = None

    def clear(self) -> None:
        """Give every number its first value."""
        self.array[...] = self.empty

    def state_dict(self) -> torch.Tensor:
        """A copy as a tensor."""
        return torch.from_numpy(self.array.copy())

    def check_state(self, state: torch.Tensor) -> None:
        """Refuse a tensor of another shape or type."""
        kind = torch.from_numpy(self.array[:0]).dtype
        if (
            not isinstance(state, torch.Tensor)
            or tuple(state.shape) != self.array.shape
            or state.dtype != kind
        ):
            raise ValueError(
                f"expected a tensor of {kind} and shape {self.array.shape}, got "
                f"{told(state)}"
            )
        if not bool(((state >= self.low) & (state <= self.high)).all()) or not bool(
            state.isfinite().all()
        ):
            raise ValueError(
                f"expected finite numbers from {self.low} to {self.high}, got "
                f"{told(state)}"
            )

    def load_state_dict(self, state: torch.Tensor) -> None:
        """Take the values of a tensor."""
        self.array[...] = state.cpu().numpy()

    def share_memory_(self) -> None:
        """Move the values to memory that child processes share."""
        if self._shared is None:
            values = self.array
            self._shared = RawArray(ctypes.c_byte, values.nbytes)
            self.array = self._view(values.shape, values.dtype)
            self.array[...] = values

    def _view(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        return np.ndarray(shape, dtype, self._shared)

    def __getstate__(self) -> dict[str, Any]:
        """The values, shared first on the way to a child process."""
        state = {**self.__dict__, "_shared": None}
        if get_spawning_popen() is not None:
            self.share_memory_()
            form = self.array.shape, self.array.dtype
            state.update(_shared=self._shared, array=form)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Use the shared values, if there are any."""
        self.__dict__.update(state)
        if self._shared is not None:
            self.array = self._view(*state["array"])

    def __deepcopy__(self, memo: dict[int, Any]) -> SharedArray:
        """A copy that is not shared."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, array=self.array.copy(), _shared=None)
        return twin


class SharedNumber(SharedArray):
    """One number, as :attr:`value`."""

    def __init__(
        self, dtype: DTypeLike = np.int64, empty: float = 0, low: float = -math.inf
    ) -> None:
        super().__init__(1, dtype, empty, low)

    @property
    def value(self) -> Any:
        """The number."""
        return self.array[0].item()

    @value.setter
    def value(self, value: float) -> None:
        self.array[0] = value


class PerSlot(SharedArray):
    """One number per slot, ``empty`` where it is not in use; needs :meth:`attach`."""

    def __init__(
        self,
        dtype: DTypeLike,
        empty: float = 0,
        low: float = -math.inf,
        high: float = math.inf,
    ) -> None:
        super().__init__(0, dtype, empty, low, high)

    def attach(self, slots: Any) -> None:
        """Make one number for each slot, unless there are as many already."""
        if len(self.array) != slots.capacity:
            self.array = np.full(slots.capacity, self.empty, dtype=self.array.dtype)
            if self._shared is not None:
                self._shared = None
                self.share_memory_()

    def move(self, sources: NDArray[np.int64], destinations: NDArray[np.int64]) -> None:
        """Give slots the numbers of others."""
        self.array[destinations] = self.array[sources]


SomePart = TypeVar("SomePart", bound=Part)


class DeclaredState:
    """Settings and state that follow from a constructor.

    * What the constructor is given is a **setting**, kept as an attribute of the same
      name. Saved states are compared by all of them.
    * What it declares with :meth:`counter`, :meth:`number`, :meth:`array`,
      :meth:`per_slot` or :meth:`declare` is **state**.

    Example:
        >>> class Tally(DeclaredState):
        ...     def __init__(self, step=1):
        ...         super().__init__()
        ...         self.step = step
        ...         self.total = self.counter("total")
        >>> tally = Tally(step=2)
        >>> tally.total.value += tally.step
        >>> tally.settings(), tally.total.value
        ({'step': 2}, 2)
    """

    def __init__(self) -> None:
        super().__init__()
        self._parts: dict[str, Part] = {}

    # -- declaring --------------------------------------------------------------------

    def declare(self, name: str, part: SomePart) -> SomePart:
        """Declare a part of the state that has its own kind.

        Args:
            name: in saved states.
            part: the part. If it has a method ``attach``, that is called with the slots
                when they are known.

        Returns:
            The part.
        """
        if name in self._parts:
            raise ValueError(f"{name!r} is declared already")
        self._parts[name] = part
        return part

    def counter(self, name: str) -> SharedNumber:
        """Declare a whole number, 0 at first; read and set its ``value``."""
        return self.declare(name, SharedNumber(np.int64, low=0))

    def number(self, name: str) -> SharedNumber:
        """Declare a floating-point number, 0 at first; read and set its ``value``."""
        return self.declare(name, SharedNumber(np.float64))

    def array(
        self,
        name: str,
        shape: int | tuple[int, ...],
        dtype: DTypeLike,
        empty: float = 0,
        low: float = -math.inf,
        high: float = math.inf,
    ) -> SharedArray:
        """Declare an array; read and change its ``array`` in place.

        Args:
            name: in saved states.
            shape: of the array.
            dtype: of its numbers.
            empty: the first value of each number.
            low: the least that a saved number may be.
            high: the largest that a saved number may be.
        """
        return self.declare(name, SharedArray(shape, dtype, empty, low, high))

    def per_slot(
        self,
        name: str,
        dtype: DTypeLike,
        empty: float = 0,
        low: float = -math.inf,
        high: float = math.inf,
    ) -> PerSlot:
        """Declare one number per slot, which moves along with the items.

        Args:
            name: in saved states.
            dtype: of the numbers.
            empty: the number of a slot that is not in use.
            low: the least that a saved number may be.
            high: the largest that a saved number may be.
        """
        return self.declare(name, PerSlot(dtype, empty, low, high))

    # -- what follows -----------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """What the constructor was given, as plain values."""
        names: list[str] = []
        for each in type(self).__mro__:
            if "__init__" in vars(each):
                given = inspect.signature(vars(each)["__init__"]).parameters
                rest = {name for name, a in given.items() if a.kind is a.VAR_KEYWORD}
                names += [name for name in [*given][1:] if name not in rest]
                if not rest:
                    break  # nothing is meant for the classes above
        for name in names:
            if not hasattr(self, name):
                raise TypeError(
                    f"{type(self).__name__} must keep its argument {name!r} as an "
                    "attribute of that name: a saved state is compared by it"
                )
        return {name: _plain(getattr(self, name)) for name in names}

    def clear_state(self) -> None:
        """Go back to the state before the first item."""
        for part in self._parts.values():
            part.clear()

    def save_state(self) -> dict[str, Any]:
        """All declared state by name, as plain values and tensors."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def check_saved(self, state: Any) -> None:
        """Raise ``ValueError`` if saved state does not fit; changes nothing."""
        if not isinstance(state, dict) or state.keys() != self._parts.keys():
            found = sorted(state) if isinstance(state, dict) else state
            raise ValueError(
                f"a {type(self).__name__} keeps {sorted(self._parts)}, got {found}"
            )
        for name, part in self._parts.items():
            try:
                part.check_state(state[name])
            except (
                ValueError,
                LookupError,
                TypeError,
                AttributeError,
                RuntimeError,
            ) as error:
                text = " ".join(str(error).split())
                raise ValueError(f"cannot restore {name!r}: {text:.200}") from error

    def restore_state(self, state: dict[str, Any]) -> None:
        """Continue from a :meth:`save_state` that was checked."""
        for name, part in self._parts.items():
            part.load_state_dict(state[name])

    def share_state(self) -> None:
        """Move all declared state to memory that child processes share."""
        for part in self._parts.values():
            part.share_memory_()


def _plain(value: Any) -> Any:
    """A setting as something that can be saved anywhere and compared."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | list):
        return [*map(_plain, value)]
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, torch.Tensor | np.ndarray):
        array = torch.as_tensor(value).detach().cpu().numpy()
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
        return f"{array.dtype}{list(array.shape)} {digest}"
    if isinstance(value, functools.partial):
        return _plain([value.func, *value.args, value.keywords])
    if isinstance(value, int | float | str | torch.dtype | torch.device):
        return str(value)
    # A function or class by its name; not its module: a script is "__main__" in one
    # run and imported by name in the next.
    if hasattr(value, "__qualname__"):
        return value.__qualname__
    # A writer is compared with its own state; a network changes while it learns.
    if isinstance(value, DeclaredState | torch.nn.Module):
        return type(value).__qualname__
    simple = (type(None), bool, int, float, str)
    known = vars(value).items() if hasattr(value, "__dict__") else ()
    entries = [f"{key}={each!r}" for key, each in known if isinstance(each, simple)]
    public = [entry for entry in entries if not entry.startswith("_")]
    return f"{type(value).__qualname__}({', '.join(public)})"
