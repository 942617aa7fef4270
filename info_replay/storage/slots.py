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

# Types that NumPy has, too.
_ARRAY_TYPES = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32}
_ARRAY_TYPES |= {torch.int64, torch.float16, torch.float32, torch.float64}


class Slots:
    """The slots of a storage of tensordicts; those in use are always the first."""

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
        self._entries: list[Any] = []  # the stored tensors when last looked at

    def __len__(self) -> int:
        """Number of slots in use."""
        # len(storage) costs ten calls more, of torch's compiler.
        return int(self.storage._len)

    @property
    def device(self) -> torch.device:
        """That of the storage; the host while that is undecided."""
        device = self.storage.device
        return torch.device("cpu" if device in (None, "auto") else device)

    @property
    def revision(self) -> int:
        """A number that grows with every write to the storage, whoever wrote."""
        return int(self.storage._mutation_revision)

    def look(self) -> int:
        """The revision; counts entries replaced as a whole, which TorchRL does not."""
        if self.storage.initialized:
            self._look_at([*_leaves(self.storage._storage).values()])
        return int(self.storage._mutation_revision)

    def _look_at(self, entries: list[Any]) -> None:
        if [*map(id, entries)] != [*map(id, self._entries)]:
            if self._entries:
                self.storage._bump_mutation_revision()
            self._entries = entries

    # -- reading ----------------------------------------------------------------------

    def read(self, where: slice | Tensor) -> TensorDictBase:
        """The items of some slots in use; of a slice, a view."""
        return self.storage[where]

    @property
    def leaves(self) -> dict[NestedKey, Tensor]:
        """The stored tensors by key, each ``(capacity, ...)``."""
        # Not cached: a storage may be restored or have entries replaced.
        return _leaves(self.storage._storage)

    def leaf(self, key: NestedKey) -> Tensor:
        """One of the stored tensors, ``(capacity, ...)``; there must be an item."""
        content = self.storage._storage
        # Checking the form of the key takes tensordict longer than the lookup.
        return content._get_str(key, None) if type(key) is str else content[key]

    def schema(self) -> dict[str, str]:
        """Shape and type of each entry of an item, as text."""
        if not self.storage.initialized:
            return {}
        return {
            _name(key): f"{str(leaf.dtype).removeprefix('torch.')}{[*leaf.shape[1:]]}"
            for key, leaf in self.leaves.items()
        }

    # -- generations ------------------------------------------------------------------

    @property
    def has_generations(self) -> bool:
        """Whether a writer that counts generations has written a slot."""
        return generations.stamps(self.storage) is not None

    def generations_of(self, index: int | Tensor) -> Tensor:
        """How often slots were rewritten; see :func:`generations.generations_of`."""
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
        """A batch, dense; raises unless it has the entries of the stored items."""
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
        self._look_at([*leaves.values()])
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
        """Write rows ``(m,)`` of an admitted batch to different slots ``(m,)``."""
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
        leaves = _leaves(storage._storage)
        self._entries = self._entries or [*leaves.values()]
        for key, leaf in leaves.items():
            _write_rows(leaf, where, data.get(key), some, picks)
        storage._len = max(before, int(slots.max()) + 1)
        storage._set_last_cursor(last)
        self._wrote(index, before)

    def _wrote(self, index: Tensor, before: int) -> None:
        """Count generations and tell all buffers on the storage of new items."""
        held = getattr(self.storage, generations.ATTRIBUTE, None)
        if held is None or held.shape[0] < self.storage.max_size:
            held = generations.ensure(self.storage, index.device, before)
        held.index_add_(0, index, torch.ones_like(index))
        self.storage._bump_mutation_revision()
        for entity in self.storage._attached_entities_iter():
            entity.mark_update(index)

    def move(self, sources: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Copy items ``(m,)`` to slots ``(m,)``, all different and no sources."""
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
        """Give up all slots but the first ``size``; samples from them become stale."""
        before = len(self)
        if size >= before:
            return
        held = generations.ensure(self.storage, self.device, before)
        held[size:before] += 1
        self.storage._len = size
        self.storage._bump_mutation_revision()

    def empty(self) -> None:
        """Make all samples stale: the storage is about to be emptied."""
        if len(self):
            generations.advance_all(self.storage, self.device, len(self))

    def write_leaf(
        self, key: NestedKey, slots: NDArray[np.int64], value: Tensor
    ) -> None:
        """Overwrite an entry of different slots ``(n,)``; generations stay.

        The value, ``(n, ...)``, is on the storage's device and has no gradients.
        """
        leaf = self.leaf(key)
        # A view of the memory itself must be read before it is written.
        if value.untyped_storage()._cdata == leaf.untyped_storage()._cdata:
            value = value.clone()
        _write_rows(leaf, slots, value, None, {})
        self.storage._bump_mutation_revision()

    def __getstate__(self) -> dict[str, Any]:
        """Without the entries: a copy has a storage of its own."""
        return {**self.__dict__, "_entries": []}


def _write_rows(
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


def _leaves(data: TensorDictBase) -> dict[NestedKey, Tensor]:
    """The tensors of a tensordict by key, without TorchRL's bookkeeping."""
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
    """Raise if a saved schema differs from the expected one and both are known."""
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
    """The rows that hold a slot after the whole batch; see :func:`keep_last`."""
    # The last assignment to a slot stands. The last place is for items without one.
    rows = np.arange(len(places))
    owner = np.empty(int(places.max()) + 2, dtype=np.int64)
    owner[places] = rows
    owner[-1] = -1
    return (owner[places] == rows).nonzero()[0]


def _name(key: NestedKey) -> str:
    return key if isinstance(key, str) else ".".join(key)
