"""Parts of a buffer: its default storage and generator, and what goes together."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torchrl.data import LazyTensorStorage, Storage
from torchrl.data.replay_buffers.samplers import (
    PrioritizedSampler,
    Sampler,
    SliceSampler,
)

__all__ = ["check_sampler_fits", "make_generator", "make_storage", "restore_device"]


def check_sampler_fits(
    sampler: Sampler, policy: str, *, compacts: bool, shared: bool
) -> None:
    """Raise ``ValueError`` if a sampler cannot follow what a memory does.

    Args:
        sampler: of the buffer.
        policy: name of the writer.
        compacts: whether items may be moved to other slots.
        shared: whether several processes use the buffer.
    """
    name, reason = type(sampler).__name__, None
    if isinstance(sampler, SliceSampler):
        raise ValueError(
            f"a {name} draws consecutive steps, but this memory keeps items in no "
            "particular order: slices would mix episodes; store whole sequences as "
            "items instead, with one feature each, and use a RandomSampler"
        )
    if isinstance(sampler, PrioritizedSampler):
        if compacts:
            reason = f"{policy} gives up slots and moves items"
        elif shared:
            reason = "other processes that share the memory store items, too"
    if reason is not None:
        raise ValueError(f"{reason}, which a {name} cannot follow; use a RandomSampler")


def make_storage(
    capacity: int | None,
    storage: Storage | Callable[[], Storage] | None,
    device: torch.device | str | None,
) -> Storage | Callable[[], Storage]:
    """The storage that was given, or a new one; checks that both sizes agree."""
    if capacity is not None and (type(capacity) is not int or capacity < 1):
        raise ValueError(
            f"capacity must be a whole number of at least 1, got {capacity!r}"
        )
    if storage is None:
        if capacity is None:
            raise ValueError("give a capacity or a storage")
        return LazyTensorStorage(capacity, device=device or "cpu")
    if device is not None:
        raise ValueError(
            "device is that of the default storage; give it to your own storage instead"
        )
    if isinstance(storage, Storage) and capacity not in (None, storage.max_size):
        raise ValueError(
            f"capacity={capacity} does not agree with a storage of "
            f"max_size={storage.max_size}"
        )
    return storage


def make_generator(
    storage: Storage | Callable[[], Storage],
) -> torch.Generator | None:
    """A generator on the storage's device, so that saved samples can be continued."""
    device = torch.device(
        "cpu" if getattr(storage, "device", None) in (None, "auto") else storage.device  # type: ignore[union-attr]
    )
    # A fake device, as of info_replay.testing, has no generators.
    if device.type == "meta" or (
        device.type == "cuda" and not torch.cuda.is_available()
    ):
        return None
    generator = torch.Generator(device=device)
    generator.manual_seed(int(torch.randint(2**63 - 1, ())))
    return generator


def restore_device(storage: Storage) -> None:
    """Move what TorchRL restored on the saved device, or on none, to the storage's."""
    content, device = storage._storage, storage.device
    if content is None or device == "auto" or content.is_memmap():
        return
    leaves = content.values(True, True)
    if content.device != device or any(leaf.device != device for leaf in leaves):
        storage._storage = content.to(device)
