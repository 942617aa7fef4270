"""Reading and writing the slots of a TorchRL storage.

All that this package knows of the inside of :class:`torchrl.data.TensorStorage` is in
this file. Rows are written leaf by leaf: that is several times faster than indexing
and assigning tensordicts, and it is the same for dense, shared and memory-mapped ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import LazyStackedTensorDict, TensorDictBase, is_tensor_collection
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.data import TensorStorage

from info_replay.linear_algebra import on_host, plain

__all__ = ["BOOKKEEPING_KEYS", "Slots", "check_schema", "keep_last", "last_rows"]

# Those that NumPy has, too.
_ARRAY_TYPES = {
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
}

#: Entries that TorchRL's buffers add to tensordicts and that are never stored.
BOOKKEEPING_KEYS = ("index", "index_generation")


class Slots:
    """The slots of one storage.

    Args:
        storage: a one-dimensional tensor storage that holds tensordicts.
    """

    #: Place of slot 0 in the storage.
    first: int = 0

    def __init__(self, storage: TensorStorage) -> None:
        if not isinstance(storage, TensorStorage):
            raise TypeError(
                "selection writers need a TensorStorage, LazyTensorStorage or "
                f"LazyMemmapStorage, got {type(storage).__name__}"
            )
        if storage.ndim != 1:
            raise ValueError(
                "selection writers keep single items, so they need a storage with "
                f"ndim=1, got ndim={storage.ndim}"
            )
        if storage.max_size < 1:
            raise ValueError(f"capacity must be at least 1, got {storage.max_size}")
        self.storage = storage

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return int(self.storage.max_size)

    def __len__(self) -> int:
        """Number of slots in use, always the first ones."""
        # Asking the storage itself costs ten calls more, of torch's compiler.
        return int(self.storage._len)

    @property
    def initialized(self) -> bool:
        """Whether the storage knows the shape of an item."""
        return bool(self.storage.initialized)

    @property
    def device(self) -> torch.device:
        """Where the storage lives; of an undecided one, the host."""
        device = self.storage.device
        return torch.device("cpu" if device in (None, "auto") else device)

    @property
    def revision(self) -> int:
        """A number that moves with every write to the storage, whoever wrote."""
        return int(self.storage._mutation_revision)

    def read(self, where: slice | Tensor) -> TensorDictBase:
        """The items of some slots in use; of a slice, a view."""
        items: TensorDictBase = self.storage[where]
        return items

    @property
    def leaves(self) -> dict[NestedKey, Tensor]:
        """The storage's tensors by key, with its ``max_size`` as first dimension."""
        # Asked for anew each time: a storage may be restored or have entries replaced.
        content = self.storage._storage
        if not is_tensor_collection(content):
            raise TypeError(
                "selection writers store tensordicts; this storage holds a "
                f"{type(content).__name__}"
            )
        return _leaves(content)

    def leaf(self, key: NestedKey) -> Tensor:
        """One of the stored tensors; the storage must be initialised."""
        content = self.storage._storage
        # Asked for many times a step; tensordict spends longer on the key's form than
        # on looking it up.
        leaf: Tensor = (
            content._get_str(key, None) if type(key) is str else content.get(key)
        )
        return leaf

    def schema(self) -> dict[str, str]:
        """Shape and type of each entry of an item, as text."""
        if not self.initialized:
            return {}
        return {
            _name(key): _describe(leaf.shape[1:], leaf.dtype)
            for key, leaf in self.leaves.items()
        }

    def admit(self, data: Any) -> TensorDictBase:
        """Check a batch against what is stored; raise before anything changes.

        Returns:
            The batch, dense.

        Raises:
            TypeError: if it is no tensordict or an entry has another type.
            KeyError: if an entry is missing or unknown.
            ValueError: if it is empty or an entry has another shape.
        """
        if not isinstance(data, TensorDictBase):
            raise TypeError(
                f"expected a batch of items as a TensorDict, got {type(data).__name__}"
            )
        if data.batch_dims < 1:
            raise ValueError(
                "expected a batch of items, batch_size=[n, ...], got batch_size=[]; "
                "use add() for one item"
            )
        if len(data) == 0:
            raise ValueError("expected at least one item, got an empty batch")
        if isinstance(data, LazyStackedTensorDict):
            data = data.contiguous()
        if self.initialized:
            self._check(data)
        return data

    def _check(self, data: TensorDictBase) -> None:
        leaves, values = self.leaves, _leaves(data)
        for key, leaf in leaves.items():
            value = values.get(key)
            if value is None:
                raise KeyError(
                    f"missing entry {_name(key)!r}: every item of this memory has "
                    f"{sorted(map(_name, leaves))}"
                )
            if value.shape[1:] != leaf.shape[1:]:
                raise ValueError(
                    f"entry {_name(key)!r} must have the shape "
                    f"{tuple(leaf.shape[1:])} an item, got {tuple(value.shape[1:])}"
                )
            if getattr(value, "dtype", None) != leaf.dtype:
                raise TypeError(
                    f"entry {_name(key)!r} must be of type {leaf.dtype}, got "
                    f"{getattr(value, 'dtype', type(value).__name__)}"
                )
        # TorchRL drops what a locked (shared or memory-mapped) storage does not know.
        if not self.storage._storage.is_locked:
            for key in values.keys() - leaves.keys():
                raise KeyError(
                    f"unknown entry {_name(key)!r}: every item of this memory has "
                    f"{sorted(map(_name, leaves))}"
                )

    def write(
        self, slots: NDArray[np.int64], rows: NDArray[np.int64], data: TensorDictBase
    ) -> Tensor:
        """Write some rows of a batch to distinct slots, growing the length if needed.

        Args:
            slots: where to, shape ``(m,)``.
            rows: which rows of ``data``, shape ``(m,)``.
            data: a batch that was admitted.

        Returns:
            The slots as a tensor on the storage's device.
        """
        storage = self.storage
        if not self.initialized:
            storage._init(data[0].exclude(*BOOKKEEPING_KEYS))
        index = torch.from_numpy(slots).to(self.device)
        whole = len(rows) == len(data)
        first, last = int(slots[0]), int(slots[-1])
        run = last - first == len(slots) - 1 and bool((np.diff(slots) == 1).all())
        side_by_side = slice(first, last + 1)
        picks: dict[torch.device, Tensor] = {}
        for key, leaf in self.leaves.items():
            value = data.get(key)
            if not isinstance(value, Tensor) or not isinstance(leaf, Tensor):
                shifted = self.first + slots if self.first else slots
                leaf[torch.from_numpy(shifted)] = value[torch.from_numpy(rows)]
                continue
            if self.first:
                # Torch would refuse a view of other slots if it were written to all.
                leaf = leaf[self.first :]
            if _as_arrays(leaf, value):
                source = plain(value, value.device).numpy()
                where = side_by_side if run else slots
                _write_array(leaf, where, source if whole else source[rows])
                continue
            if not whole:
                pick = picks.get(value.device)
                if pick is None:
                    pick = picks[value.device] = torch.from_numpy(rows).to(value.device)
                value = value.index_select(0, pick)
            leaf[side_by_side if run else index] = value.to(leaf.device)
        storage._len = max(storage._len, self.first + int(slots.max()) + 1)
        storage._set_last_cursor(self.first + last)
        storage._bump_mutation_revision()
        return index

    def move(self, sources: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Copy items to other slots, all different.

        Args:
            sources: the slots of the items, shape ``(m,)``.
            slots: where to, shape ``(m,)``; none of them is one of ``sources``.
        """
        old = torch.from_numpy(sources).to(self.device)
        new = torch.from_numpy(slots).to(self.device)
        for leaf in self.leaves.values():
            leaf[new] = leaf[old]
        self.storage._bump_mutation_revision()

    def shrink(self, size: int) -> None:
        """Give up all slots but the first ones."""
        if size < len(self.storage):
            self.storage._len = size
            self.storage._bump_mutation_revision()

    def write_leaf(
        self,
        key: NestedKey,
        slots: NDArray[np.int64],
        value: Tensor,
        index: Tensor | None = None,
    ) -> None:
        """Overwrite one entry of some slots.

        Args:
            key: which entry.
            slots: where to, shape ``(n,)``, all different.
            value: shape ``(n, ...)``, on the storage's device and without gradients.
            index: the slots on that device, if they are there already.
        """
        leaf = self.leaf(key)
        if _as_arrays(leaf, value):
            # Right also where it is a view of the memory itself.
            _write_array(leaf, slots, value.numpy())
        else:
            if value.untyped_storage()._cdata == leaf.untyped_storage()._cdata:
                value = value.clone()
            if index is None:
                index = torch.from_numpy(slots).to(leaf.device)
            leaf.index_copy_(0, index, value)
        self.storage._bump_mutation_revision()

    def announce(self, index: Tensor) -> None:
        """Tell the buffers on this storage which slots have new items."""
        places = self._in_storage(index)
        for entity in self.storage._attached_entities_iter():
            entity.mark_update(places)

    def _in_storage(self, index: Tensor) -> Tensor:
        return index + self.first if self.first else index


def _as_arrays(leaf: Tensor, value: Tensor) -> bool:
    """Whether rows can be written as arrays, in half the time that torch takes."""
    return (
        leaf.dtype in _ARRAY_TYPES
        and on_host(leaf)
        and on_host(value)
        and not value.is_neg()
    )


def _write_array(
    leaf: Tensor, where: slice | NDArray[np.int64], source: NDArray[Any]
) -> None:
    """Write rows of a stored tensor as those of an array."""
    plain(leaf, leaf.device).numpy()[where] = source
    # So that autograd notices if somebody still needs what was there.
    torch.autograd.graph.increment_version(leaf)


def _leaves(data: TensorDictBase) -> dict[NestedKey, Tensor]:
    """The tensors of a tensordict by key, without those of TorchRL's bookkeeping."""
    entries = dict(data.items())
    if not all(isinstance(entry, Tensor) for entry in entries.values()):
        entries = dict(data.items(include_nested=True, leaves_only=True))
    for key in BOOKKEEPING_KEYS:
        entries.pop(key, None)
    return entries


def check_schema(found: dict[str, str], expected: dict[str, str]) -> None:
    """Compare two schemas, unless one of them is not known yet.

    Args:
        found: of a saved memory.
        expected: of this one.

    Raises:
        ValueError: naming an entry that differs.
    """
    if not found or not expected:
        return
    for key in sorted(found.keys() | expected.keys()):
        if found.get(key) != expected.get(key):
            raise ValueError(
                f"cannot restore a memory whose items have {key!r} as "
                f"{found.get(key, 'nothing')} into one whose items have it as "
                f"{expected.get(key, 'nothing')}"
            )


def keep_last(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Let the last item that was given a slot have it; earlier ones get -1.

    Args:
        places: the slot of each item in order of arrival, -1 for none.

    Returns:
        The slots that hold after the whole batch.
    """
    rows = last_rows(places)
    result = np.full_like(places, -1)
    result[rows] = places[rows]
    return result


def last_rows(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """The items that hold a slot after the whole batch, in order of arrival.

    Args:
        places: the slot of each item in order of arrival, -1 for none.

    Returns:
        Rows of ``places``, all with different slots.
    """
    # Where a slot is named several times, the last assignment stands. Those without a
    # slot are assigned to a place at the end of their own.
    rows = np.arange(len(places))
    owner = np.empty(int(places.max()) + 2, dtype=np.int64)
    owner[places] = rows
    owner[-1] = -1
    last: NDArray[np.int64] = (owner[places] == rows).nonzero()[0]
    return last


def _name(key: NestedKey) -> str:
    return key if isinstance(key, str) else ".".join(key)


def _describe(shape: torch.Size, dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"
