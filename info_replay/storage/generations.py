"""How often each slot was written, so that a stale sample can be told from a live one.

The numbers, one per slot and -1 for a slot that was never written, are on the storage,
where TorchRL's own writers keep them, too: two buffers on one storage see each other's
writes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torchrl.data import TensorStorage

from info_replay.model.linear_algebra import on_host

__all__ = [
    "ATTRIBUTE",
    "advance_all",
    "ensure",
    "forget",
    "generations_of",
    "restore",
    "share",
    "stamps",
]

#: Where they are on the storage; the name is TorchRL's.
ATTRIBUTE = "_slot_generations"


def stamps(storage: TensorStorage) -> Tensor | None:
    """Generations ``(capacity,)``, not a copy; ``None`` before the first write."""
    return getattr(storage, ATTRIBUTE, None)


def ensure(storage: TensorStorage, device: torch.device, size: int) -> Tensor:
    """Generations ``(capacity,)``, made if needed; slots in use count as written."""
    before = stamps(storage)
    if before is not None and before.shape[0] >= storage.max_size:
        return before
    held = torch.full((storage.max_size,), -1, dtype=torch.int64, device=device)
    held[:size] = 0
    if before is not None:  # TorchRL's grow with a large storage
        held[: before.shape[0]] = before
    _hold(storage, held)
    return held


def _hold(storage: TensorStorage, held: Tensor) -> None:
    setattr(storage, ATTRIBUTE, held)
    if getattr(storage, "_generations_shared", False):
        share(storage)


def advance_all(storage: TensorStorage, device: torch.device, size: int) -> None:
    """Note that all slots were emptied: a sample from before is stale."""
    held = ensure(storage, device, size)
    held += (held >= 0).long()


def generations_of(
    storage: TensorStorage, index: int | Tensor | tuple[Tensor, ...], size: int
) -> Tensor:
    """Generations, with shape and device of ``index``; -1 where there is no slot."""
    if isinstance(index, tuple):
        raise TypeError(
            "this memory keeps single items in no particular order, so a sampler that "
            "draws slices of consecutive steps (a tuple of indices) would mix "
            "episodes; store whole sequences as items instead, with one feature each"
        )
    slots = torch.as_tensor(index, dtype=torch.long)
    held = stamps(storage)
    if held is None:
        return ((slots >= 0) & (slots < size)).long() - 1
    capacity = held.shape[0]
    if on_host(slots) and on_host(held):
        # Called for every sample: a third of the time of the way below.
        array = slots.numpy()
        found = np.asarray(held.numpy().take(array, mode="clip"))
        outside = (array < 0) | (array >= capacity)
        if outside.any():
            found[outside] = -1
        return torch.from_numpy(found)
    there = slots.to(held.device)
    known = held[there.clamp(0, capacity - 1)]
    valid = (there >= 0) & (there < capacity)
    return torch.where(valid, known, -1).to(slots.device)


def restore(storage: TensorStorage, saved: Tensor | None, device: torch.device) -> None:
    """Continue from a copy of :func:`stamps`; no slot goes back to an earlier number.

    In a storage that was never written, the numbers are those that were saved. In any
    other, each slot that was written gets a number that no sample of it can have.
    """
    held = stamps(storage)
    if saved is None:
        if held is not None:
            held += (held >= 0).long()
    elif held is None or held.shape != saved.shape:
        _hold(storage, saved.to(device).clone())
    else:
        later = held + (held >= 0).long()
        held.copy_(torch.maximum(saved.to(held.device), later))


def forget(storage: TensorStorage) -> None:
    """Have no generations: no sample was ever drawn."""
    setattr(storage, ATTRIBUTE, None)


def share(storage: TensorStorage) -> None:
    """Move the generations, now or when there are any, to shared memory."""
    storage._generations_shared = True
    held = stamps(storage)
    if held is not None:
        held.share_memory_()
