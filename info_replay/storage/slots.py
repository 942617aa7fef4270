"""Reading and writing the slots of a TorchRL storage: :class:`Slots`.

Rows are written leaf by leaf: that is several times faster than indexing and assigning
tensordicts, and it is the same for dense, shared and memory-mapped ones.
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import LazyStackedTensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.data import TensorStorage

from info_replay.storage import generations
from info_replay.storage.entries import (
    BOOKKEEPING_KEYS,
    Kind,
    check_like,
    check_storable,
    check_tensordict,
    describe,
    kind_of,
    leaves_of,
    name_of,
    nest,
)
from info_replay.storage.process_lock import unlock_counts
from info_replay.storage.rows import write_rows
from info_replay.validation import told

__all__ = ["Slots"]


class Undo(Protocol):
    """Keeps what is needed to take writes back."""

    def remember(self, places: NDArray[np.int64]) -> None:
        """Keep what slots hold that are about to be written."""

    def remember_generations(self, places: NDArray[np.int64]) -> None:
        """Keep the generations of slots that are about to be given up."""

    def tell_later(self, index: Tensor) -> None:
        """Note slots that samplers must be told of."""


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
        if storage.initialized:
            check_storable(self.leaves, self.device)
        self.capacity = int(storage.max_size)
        self.undo: Undo | None = None  # while several parts of a batch are written
        # The stored tensors and how often they were changed, when last looked at.
        self._entries: list[Any] = []
        self._versions: list[int] = []
        self._kinds: dict[NestedKey, Kind] = {}
        self._sharing_process: int | None = None

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
        """The revision; counts also what TorchRL does not.

        That is entries replaced as a whole, and what was written through views, such as
        ``buffer[:]["feature"].copy_(...)``: torch counts the versions of a tensor.
        """
        if self.storage.initialized:
            self._look_at(leaves_of(self.storage._storage))
        return int(self.storage._mutation_revision)

    def _look_at(self, leaves: dict[NestedKey, Any]) -> None:
        entries = [*leaves.values()]
        versions = _versions(entries)
        same = versions == self._versions and len(entries) == len(self._entries)
        if same and all(map(operator.is_, entries, self._entries)):
            return
        check_storable(leaves, self.device)
        if self._entries:
            self.storage._bump_mutation_revision()
        self._know(leaves)

    def _know(self, leaves: dict[NestedKey, Any]) -> None:
        self._entries = [*leaves.values()]
        self._versions = _versions(self._entries)
        self._kinds = {key: kind_of(leaf) for key, leaf in leaves.items()}

    def note_own_write(self) -> None:
        """Count a write of this package; nothing else has to be noticed of it."""
        self.storage._bump_mutation_revision()
        if self._entries and self.storage.initialized:
            self._versions = _versions(self._entries)
        else:
            self._know(self.leaves if self.storage.initialized else {})

    # -- reading ----------------------------------------------------------------------

    def read(self, where: slice | Tensor) -> TensorDictBase:
        """The items of some slots in use; of a slice, a view."""
        return self.storage[where]

    @property
    def leaves(self) -> dict[NestedKey, Tensor]:
        """The stored tensors by key, each ``(capacity, ...)``."""
        # Not cached: a storage may be restored or have entries replaced.
        return leaves_of(self.storage._storage)

    def leaf(self, key: NestedKey) -> Tensor:
        """One of the stored tensors, ``(capacity, ...)``; there must be an item."""
        content = self.storage._storage
        # Checking the form of the key takes tensordict longer than the lookup.
        return content._get_str(key, None) if type(key) is str else content[key]

    def schema(self) -> dict[str, str]:
        """Shape and type of each entry of an item, as text."""
        if not self.storage.initialized:
            return {}
        return {name_of(key): describe(leaf) for key, leaf in self.leaves.items()}

    def content(self) -> dict[str, Any]:
        """The entries of all items, a dict of dicts of tensors that are not copied."""
        if not self.storage.initialized:
            return {}
        size = len(self)
        return nest({key: leaf[:size] for key, leaf in self.leaves.items()})

    # -- generations ------------------------------------------------------------------

    @property
    def has_generations(self) -> bool:
        """Whether a writer that counts generations has written a slot."""
        return generations.stamps(self.storage) is not None

    def generations_of(self, index: int | Tensor) -> Tensor:
        """How often slots were written; see :func:`generations.generations_of`."""
        return generations.generations_of(self.storage, index, len(self))

    def save_generations(self) -> Tensor | None:
        """A copy of the generations."""
        held = generations.stamps(self.storage)
        return None if held is None else held.clone()

    def check_generations(self, saved: Any) -> None:
        """Raise ``ValueError`` unless it is what :meth:`save_generations` gives."""
        if saved is not None and not (
            isinstance(saved, Tensor)
            and saved.dtype == torch.int64
            and saved.shape == (self.storage.max_size,)
            and bool((saved >= -1).all())
        ):
            raise ValueError(
                f"expected generations of {self.storage.max_size} slots, got "
                f"{told(saved)}"
            )

    def load_generations(self, saved: Tensor | None) -> None:
        """Continue from :meth:`save_generations`."""
        generations.restore(self.storage, saved, self.device)

    # -- sharing ----------------------------------------------------------------------

    def share_memory_(self) -> None:
        """Move items and generations, now or when there are any, to shared memory."""
        self._sharing_process = self._sharing_process or os.getpid()
        unlock_counts(self.storage)
        generations.share(self.storage)
        if self.storage.initialized:
            content = self.storage._storage
            if not content.is_memmap() and self.device.type == "cpu":
                content.share_memory_()

    def check_shared(self) -> None:
        """Raise if other processes would not see what this one stores."""
        shares = self._sharing_process not in (None, os.getpid())
        if shares and not self.storage.initialized:
            raise RuntimeError(
                "this memory was shared before it had a first item: what one process "
                "stores now, others would not see; extend() it once, and empty() it, "
                "before another process is started"
            )

    # -- checking ---------------------------------------------------------------------

    def admit(self, data: Any) -> TensorDictBase:
        """A batch, dense; raises unless it has the entries of the stored items."""
        check_tensordict(data, "a batch of items")
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
            content = self.storage._storage
            self._look_at(leaves_of(content))
            check_like(self._kinds, data, locked=content.is_locked)
        else:
            self.check_shared()
            check_storable(leaves_of(data), self.device)
        return data

    def places(self, index: Any) -> NDArray[np.int64]:
        """Slots in use, as what indexes a tensor: ``(n,)``, also of a single number.

        Raises:
            IndexError: if a slot is not in use.
        """
        every = np.arange(len(self))
        if isinstance(index, Tensor):
            index = index.cpu().numpy()
        try:
            places = np.atleast_1d(every[index])
        except IndexError as error:
            raise IndexError(
                f"items are in slots 0 to {len(self) - 1}, got {told(index)}: {error}"
            ) from error
        if places.ndim != 1 or isinstance(index, bool):
            raise IndexError(f"expected a slot, or a list of slots, got {told(index)}")
        return places

    # -- writing ----------------------------------------------------------------------

    def write(
        self, slots: NDArray[np.int64], rows: NDArray[np.int64], data: TensorDictBase
    ) -> None:
        """Write rows ``(m,)`` of an admitted batch to different slots ``(m,)``."""
        storage = self.storage
        self._initialize(data)
        if self.undo is not None:
            self.undo.remember(slots)
        before, last = len(self), int(slots[-1])
        index = torch.from_numpy(slots).to(self.device)
        where: slice | NDArray[np.int64] = slots
        if last - slots[0] == len(slots) - 1 and bool((np.diff(slots) == 1).all()):
            where = slice(int(slots[0]), last + 1)
        some = None if len(rows) == len(data) else rows
        picks: dict[torch.device, Tensor] = {}
        leaves = leaves_of(storage._storage)
        for key, leaf in leaves.items():
            write_rows(leaf, where, data.get(key), some, picks)
        storage._len = max(before, int(slots.max()) + 1)
        storage._set_last_cursor(last)
        self._wrote(index, before)

    def _initialize(self, data: TensorDictBase) -> None:
        """Make room for items like these, unless there is."""
        if not self.storage.initialized:
            self.storage._init(data[0].exclude(*BOOKKEEPING_KEYS))
            if self._sharing_process is not None:
                self.share_memory_()

    def give_up_room(self) -> None:
        """Undo the first initialization: the next items may have other entries."""
        self.storage._storage, self.storage.initialized = None, False
        if hasattr(self.storage, "existsok"):
            self.storage.existsok = True  # files that it made may be made again

    @contextlib.contextmanager
    def as_if_for(self, items: TensorDictBase | None) -> Iterator[None]:
        """Have the entries of items that may be put here; no item is there yet."""
        storage = self.storage
        if items is None or storage.initialized:
            yield
            return
        # A view of one row: memory is allocated when it is certain that it is needed.
        like = items.apply(_one_row, batch_size=[1])
        storage._storage, storage.initialized = like.expand(storage.max_size), True
        try:
            yield
        finally:
            storage._storage, storage.initialized = None, False

    def _wrote(self, index: Tensor, before: int) -> None:
        """Count generations and tell all buffers on the storage of new items."""
        held = getattr(self.storage, generations.ATTRIBUTE, None)
        if held is None or held.shape[0] < self.storage.max_size:
            held = generations.ensure(self.storage, index.device, before)
        held.index_add_(0, index, torch.ones_like(index))
        self.note_own_write()
        if self.undo is None:
            self.tell(index)
        else:
            self.undo.tell_later(index)

    def tell(self, index: Tensor) -> None:
        """Tell all buffers on the storage of new items."""
        for entity in self.storage._attached_entities_iter():
            entity.mark_update(index)

    def put(self, items: TensorDictBase | None) -> None:
        """Hold exactly these items; ``None`` if there never was one."""
        size = 0 if items is None else len(items)
        if items is not None:
            self._initialize(items if size else items.apply(_one_row, batch_size=[1]))
            for key, leaf in self.leaves.items():
                leaf[:size] = items.get(key).to(leaf.device)
        self.storage._len = size
        self.note_own_write()
        self.tell(torch.arange(size, device=self.device))

    def move(self, sources: NDArray[np.int64], slots: NDArray[np.int64]) -> None:
        """Copy items ``(m,)`` to slots ``(m,)``, all different and no sources."""
        if not len(sources):
            return
        if self.undo is not None:
            self.undo.remember(slots)
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
        if self.undo is not None:
            self.undo.remember_generations(np.arange(size, before))
        held = generations.ensure(self.storage, self.device, before)
        held[size:before] += 1
        self.storage._len = size
        self.note_own_write()

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
        write_rows(leaf, slots, value, None, {})
        self.note_own_write()

    def __getstate__(self) -> dict[str, Any]:
        """Without the entries: a copy has a storage of its own."""
        return {**self.__dict__, "_entries": [], "_versions": []}


def _one_row(entries: Tensor) -> Tensor:
    return entries.new_zeros(1, *entries.shape[1:])


def _versions(entries: list[Any]) -> list[int]:
    """How often each tensor was changed, by anybody in this process."""
    try:
        return [entry._version for entry in entries]
    except (RuntimeError, AttributeError):
        return []  # tensors made in inference mode are not counted
