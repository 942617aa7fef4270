"""Reading and writing the slots of a TorchRL storage: :class:`Slots`.

Rows are written leaf by leaf: that is several times faster than indexing and assigning
tensordicts, and it is the same for dense, shared and memory-mapped ones.
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

from info_replay.storage import generations

__all__ = ["BOOKKEEPING_KEYS", "Slots", "check_schema", "keep_last", "last_rows"]

#: Entries that TorchRL's buffers add to tensordicts and that are never stored.
BOOKKEEPING_KEYS = ("index", "index_generation")

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


class Slots:
    """The slots of one storage; those in use are always the first ones.

    Args:
        storage: a one-dimensional tensor storage that holds tensordicts.

    Attributes:
        storage: as given.
        capacity: number of slots.
    """

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
        self.capacity = int(storage.max_size)
        self._entries: list[Any] = []  # those of the storage when last looked at

    def __len__(self) -> int:
        """Number of slots in use."""
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

    def look(self) -> int:
        """The revision, after a look whether an entry was replaced as a whole.

        TorchRL does not count that.
        """
        if self.storage.initialized:
            entries = [*_leaves(self.storage._storage).values()]
            if [*map(id, entries)] != [*map(id, self._entries)]:
                if self._entries:
                    self.storage._bump_mutation_revision()
                self._entries = entries
        return int(self.storage._mutation_revision)

    # -- reading ----------------------------------------------------------------------

    def read(self, where: slice | Tensor) -> TensorDictBase:
        """The items of some slots in use; of a slice, a view."""
        items: TensorDictBase = self.storage[where]
        return items

    @property
    def leaves(self) -> dict[NestedKey, Tensor]:
        """The storage's tensors by key, with its ``max_size`` as first dimension."""
        # Asked for anew each time: a storage may be restored or have entries replaced.
        return _leaves(self.storage._storage)

    def leaf(self, key: NestedKey) -> Tensor:
        """One of the stored tensors, one row per slot; there must be an item."""
        content = self.storage._storage
        # Asked for several times per batch; tensordict spends longer on the form of the
        # key than on looking it up.
        leaf: Tensor = content._get_str(key, None) if type(key) is str else content[key]
        return leaf

    def schema(self) -> dict[str, str]:
        """Shape and type of each entry of an item, as text."""
        if not self.initialized:
            return {}
        return {
            _name(key): _describe(leaf.shape[1:], leaf.dtype)
            for key, leaf in self.leaves.items()
        }

    # -- generations ------------------------------------------------------------------

    @property
    def has_generations(self) -> bool:
        """Whether any slot has been written by a writer that counts that."""
        return generations.stamps(self.storage) is not None

    def generations_of(self, index: int | Tensor) -> Tensor:
        """How often slots were rewritten; see :mod:`~info_replay.storage.generations`.

        Args:
            index: slots.
        """
        return generations.generations_of(self.storage, index, len(self))

    def save_generations(self) -> Tensor | None:
        """A copy of the generations."""
        held = generations.stamps(self.storage)
        return None if held is None else held.clone()

    def load_generations(self, saved: Tensor | None) -> None:
        """Continue from :meth:`save_generations`."""
        generations.restore(self.storage, saved, self.device)

    def share_generations(self) -> None:
        """Move the generations to memory that child processes share."""
        generations.share(self.storage)

    # -- checking ---------------------------------------------------------------------

    def admit(self, data: Any) -> TensorDictBase:
        """Check a batch against what is stored; raise before anything changes.

        Returns:
            The batch, dense.

        Raises:
            TypeError: if it is not a tensordict or an entry has another type.
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
        if self.storage.initialized:
            self._check(data)
        return data

    def _check(self, data: TensorDictBase) -> None:
        leaves, values = _leaves(self.storage._storage), _leaves(data)
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
                    f"{tuple(leaf.shape[1:])} per item, got {tuple(value.shape[1:])}"
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

    # -- writing ----------------------------------------------------------------------

    def write(
        self, slots: NDArray[np.int64], rows: NDArray[np.int64], data: TensorDictBase
    ) -> None:
        """Write some rows of a batch to slots, growing the length if needed.

        Args:
            slots: where to, shape ``(m,)``, all different.
            rows: which rows of ``data``, shape ``(m,)``.
            data: a batch that was admitted.
        """
        storage = self.storage
        if not storage.initialized:
            storage._init(data[0].exclude(*BOOKKEEPING_KEYS))
        before, last = len(self), int(slots[-1])
        index = torch.from_numpy(slots).to(self.device)
        where: slice | NDArray[np.int64] = slots
        if last - slots[0] == len(slots) - 1 and bool((np.diff(slots) == 1).all()):
            where = slice(int(slots[0]), last + 1)
        some = None if len(rows) == len(data) else rows
        picks: dict[torch.device, Tensor] = {}
        for key, leaf in _leaves(storage._storage).items():
            _write_rows(leaf, where, data.get(key), some, picks)
        storage._len = max(before, int(slots.max()) + 1)
        storage._set_last_cursor(last)
        self._wrote(index, before)

    def _wrote(self, index: Tensor, before: int) -> None:
        """Note, and tell all buffers on this storage, which slots have new items."""
        held = getattr(self.storage, generations.ATTRIBUTE, None)
        if held is None or held.shape[0] < self.storage.max_size:
            held = generations.ensure(self.storage, index.device, before)
        held.index_add_(0, index, torch.ones_like(index))
        self.storage._bump_mutation_revision()
        for entity in self.storage._attached_entities_iter():
            entity.mark_update(index)

    def move(self, sources: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Copy items to other slots, growing the length if needed.

        Args:
            sources: the slots of the items, shape ``(m,)``.
            slots: where to, shape ``(m,)``, all different; none is one of ``sources``.
        """
        if not len(sources):
            return
        before = len(self)
        old = torch.from_numpy(sources).to(self.device)
        new = torch.from_numpy(slots).to(self.device)
        for leaf in self.leaves.values():
            leaf[new] = leaf[old]
        self.storage._len = max(before, int(slots.max()) + 1)
        self._wrote(new, before)

    def shrink(self, size: int) -> None:
        """Give up all slots but the first ones; samples from them become stale.

        Args:
            size: how many slots remain in use.
        """
        before = len(self)
        if size >= before:
            return
        held = generations.ensure(self.storage, self.device, before)
        held[size:before] += 1
        self.storage._len = size
        self.storage._bump_mutation_revision()

    def empty(self) -> None:
        """Note that the storage is about to be emptied: samples become stale."""
        if len(self):
            generations.advance_all(self.storage, self.device, len(self))

    def write_leaf(
        self, key: NestedKey, slots: NDArray[np.int64], value: Tensor
    ) -> None:
        """Overwrite one entry of some slots; the items stay what they are.

        Args:
            key: which entry.
            slots: where to, shape ``(n,)``, all different.
            value: shape ``(n, ...)``, on the storage's device and without gradients.
        """
        leaf = self.leaf(key)
        # A view of the memory itself must be read before it is written.
        if value.untyped_storage()._cdata == leaf.untyped_storage()._cdata:
            value = value.clone()
        _write_rows(leaf, slots, value, None, {})
        self.storage._bump_mutation_revision()

    def __getstate__(self) -> dict[str, Any]:
        """Without the entries: a twin has a storage of its own."""
        return {**self.__dict__, "_entries": []}


def _write_rows(
    leaf: Any,
    where: slice | NDArray[np.int64],
    value: Any,
    rows: NDArray[np.int64] | None,
    picks: dict[torch.device, Tensor],
) -> None:
    """Write rows of a stored tensor.

    Args:
        leaf: the tensor, one row per slot.
        where: the slots.
        value: a tensor that has the rows.
        rows: which of its rows; ``None`` for all.
        picks: the rows as a tensor on each device where they were needed already.
    """
    if (
        type(leaf) is type(value) is Tensor
        and leaf.is_cpu
        and value.is_cpu
        and leaf.dtype in _ARRAY_TYPES
        and not value.is_neg()
    ):
        # As arrays, in half the time that torch takes.
        source = value.detach().numpy() if value.requires_grad else value.numpy()
        target = leaf.detach() if leaf.requires_grad else leaf
        target.numpy()[where] = source if rows is None else source[rows]
        # So that autograd notices if somebody still needs what was there.
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


def _leaves(data: TensorDictBase) -> dict[NestedKey, Tensor]:
    """The tensors of a tensordict by key, without those of TorchRL's bookkeeping."""
    if not is_tensor_collection(data):
        raise TypeError(
            "selection writers store tensordicts; this storage holds a "
            f"{type(data).__name__}"
        )
    entries = dict(data.items())
    for entry in entries.values():
        if not isinstance(entry, Tensor):
            entries = dict(data.items(include_nested=True, leaves_only=True))
            break
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

    Example:
        >>> keep_last(np.array([2, 0, -1, 2]))
        array([-1,  0, -1,  2])
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
