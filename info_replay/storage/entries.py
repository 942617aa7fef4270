"""The entries of items: which can be stored, and whether they are those of a memory."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import (
    TensorDict,
    TensorDictBase,
    is_leaf_nontensor,
    is_tensor_collection,
)
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.validation import told

__all__ = [
    "BOOKKEEPING_KEYS",
    "check_entry",
    "check_like",
    "check_schema",
    "check_storable",
    "check_tensordict",
    "describe",
    "kind_of",
    "leaves_of",
    "name_of",
    "nest",
    "unnest",
]

#: Entries that TorchRL's buffers add to tensordicts and that are never stored.
BOOKKEEPING_KEYS = ("index", "index_generation")


def leaves_of(data: TensorDictBase) -> dict[NestedKey, Any]:
    """The entries of a tensordict by key, without TorchRL's bookkeeping.

    Most are tensors; those that are not are among them, too.
    """
    if not is_tensor_collection(data):
        raise TypeError(
            "selection writers store tensordicts; this storage holds a "
            f"{type(data).__name__}"
        )
    entries = dict(data.items())
    for entry in entries.values():
        if not isinstance(entry, Tensor):
            entries = dict(data.items(True, True, is_leaf=is_leaf_nontensor))
            break
    for key in BOOKKEEPING_KEYS:
        entries.pop(key, None)
    return entries


def check_tensordict(data: Any, what: str) -> None:
    """Raise ``TypeError`` unless data is a TensorDict; ``what`` names it."""
    if not isinstance(data, TensorDictBase):
        raise TypeError(
            f"expected {what} as a TensorDict, got {type(data).__name__}: {told(data)}"
        )


def nest(leaves: dict[NestedKey, Any]) -> dict[str, Any]:
    """Entries by key as a dict of dicts.

    Example:
        >>> nest({"x": 1, ("next", "x"): 2})
        {'x': 1, 'next': {'x': 2}}
    """
    tree: dict[str, Any] = {}
    for key, leaf in leaves.items():
        *path, last = (key,) if isinstance(key, str) else key
        place = tree
        for name in path:
            place = place.setdefault(name, {})
        place[last] = leaf
    return tree


def unnest(tree: Any, path: tuple[str, ...] = ()) -> dict[NestedKey, Any]:
    """Entries by key; the inverse of :func:`nest`.

    Raises:
        TypeError: if it is not a dict of dicts with names.
    """
    if not isinstance(tree, dict) or not all(isinstance(name, str) for name in tree):
        raise TypeError(f"expected entries by name, got {told(tree)}")
    leaves: dict[NestedKey, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            leaves |= unnest(value, (*path, name))
        else:
            leaves[(*path, name) if path else name] = value
    return leaves


def name_of(key: NestedKey) -> str:
    """A key as text."""
    return key if isinstance(key, str) else ".".join(key)


def describe(leaf: Tensor) -> str:
    """Shape and type of one item's entry, as text."""
    return f"{str(leaf.dtype).removeprefix('torch.')}{[*leaf.shape[1:]]}"


def check_storable(leaves: dict[NestedKey, Any], device: torch.device) -> None:
    """Raise unless rows of every entry can be written and read.

    Args:
        leaves: of at least one item, as :func:`leaves_of` gives them.
        device: where items will be stored.

    Raises:
        TypeError: naming the entry and what it is.
    """
    for key, value in leaves.items():
        found = reason = None
        if not isinstance(value, Tensor):
            held = getattr(value, "data", value)
            held = held[0] if isinstance(held, list | tuple) and held else held
            found, reason = f"a {type(held).__name__}", "only tensors are stored"
        elif value.layout is not torch.strided or value.is_nested:
            found = "nested" if value.is_nested else str(value.layout)
            reason = "only dense tensors are stored"
        elif value.is_meta and device.type != "meta":
            found, reason = "a tensor on 'meta'", "it has no numbers"
        elif not _can_write_rows(value):
            found, reason = str(value.dtype), "torch cannot write single rows of it"
        if found is not None:
            raise TypeError(
                f"entry {name_of(key)!r} cannot be stored: {reason}, got {found}"
            )


def check_entry(key: NestedKey, value: Any, device: torch.device) -> None:
    """Raise as :func:`check_storable` if an entry, of all items, cannot be stored."""
    check_storable(leaves_of(TensorDict({}, batch_size=[]).set(key, value)), device)


def _can_write_rows(value: Tensor) -> bool:
    """Whether torch can write single rows of a type; a few operations are missing."""
    twin = torch.empty(2, dtype=value.dtype)
    first = torch.tensor([0])
    try:
        twin[first] = twin[first]
    except (RuntimeError, NotImplementedError):
        return False
    return True


#: Shape of one item's entry, type, and whether it has no numbers.
Kind = tuple[torch.Size, torch.dtype, bool]


def kind_of(leaf: Tensor) -> Kind:
    """What the entry of a batch must have in common with a stored one."""
    return leaf.shape[1:], leaf.dtype, leaf.is_meta


def check_like(
    kinds: dict[NestedKey, Kind], data: TensorDictBase, *, locked: bool
) -> None:
    """Raise unless a batch has the entries of the stored items.

    Args:
        kinds: of the stored entries, by key.
        data: the batch.
        locked: whether the storage takes no other entries; TorchRL drops those then.
    """
    values = leaves_of(data)
    for key, (shape, dtype, is_meta) in kinds.items():
        value = values.get(key)
        if value is None:
            raise KeyError(
                f"missing entry {name_of(key)!r}: every item of this memory has "
                f"{sorted(map(name_of, kinds))}"
            )
        if value.shape[1:] != shape:
            raise ValueError(
                f"entry {name_of(key)!r} must have the shape {tuple(shape)} per item, "
                f"got {tuple(value.shape[1:])}"
            )
        if getattr(value, "dtype", None) is not dtype:
            found = getattr(value, "dtype", type(value).__name__)
            raise TypeError(
                f"entry {name_of(key)!r} must be of type {dtype}, got {found}"
            )
        if value.layout is not torch.strided or value.is_meta != is_meta:
            raise TypeError(
                f"entry {name_of(key)!r} must be a dense tensor with numbers, got one "
                f"of {value.layout} on '{value.device}'"
            )
    if len(values) != len(kinds):
        for key in values.keys() - kinds.keys():
            if not locked or not isinstance(values[key], Tensor):
                raise KeyError(
                    f"unknown entry {name_of(key)!r}: every item of this memory has "
                    f"{sorted(map(name_of, kinds))}"
                )


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
