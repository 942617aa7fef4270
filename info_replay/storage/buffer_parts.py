"""Parts of a buffer: its default storage and generator, copies of its state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchrl.data import LazyTensorStorage, Storage

__all__ = ["copy_state", "make_generator", "make_storage", "restore_device"]


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


def copy_state(value: Any) -> Any:
    """Copy the tensors in nested containers; TorchRL's state aliases live storage."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        twin = copy.copy(value)  # tensordict keeps shapes in an attribute of the dict
        for key, entry in value.items():
            twin[key] = copy_state(entry)
        return twin
    if type(value) in (list, tuple):
        return type(value)(map(copy_state, value))
    return value


def restore_device(storage: Storage) -> None:
    """Move what TorchRL restored on the saved device to the storage's own."""
    content, device = storage._storage, storage.device
    if content is None or device == "auto" or content.is_memmap():
        return
    if any(leaf.device != device for leaf in content.values(True, True)):
        storage._storage = content.to(device)
