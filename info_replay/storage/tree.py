"""Trees of plain values and tensors as JSON and bytes: :func:`encode`, :func:`decode`.

Nothing in them can run: a tree is made of ``None``, numbers, text, lists, tuples, dicts
and tensors, and of nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["check_numbers", "copy_tree", "decode", "encode"]

#: Where tensors begin in the bytes; enough for any type.
_ALIGNMENT = 64

_DTYPES = {
    str(each).removeprefix("torch."): each
    for each in vars(torch).values()
    if isinstance(each, torch.dtype) and not str(each).startswith("torch.q")
}


def encode(tree: Any, write: Callable[[memoryview], None]) -> Any:
    """A tree as what JSON can hold; the tensors' bytes are handed over one by one.

    Args:
        tree: plain values and tensors.
        write: called with bytes that follow each other.

    Returns:
        Nested lists and plain values.

    Raises:
        TypeError: if the tree holds anything else.

    Example:
        >>> content = bytearray()
        >>> text = encode({"x": torch.tensor([1, 2])}, content.extend)
        >>> decode(text, content)
        {'x': tensor([1, 2])}
    """
    offset = 0

    def visit(value: Any) -> Any:
        nonlocal offset
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, np.generic):
            return visit(value.item())
        if isinstance(value, Tensor):
            array = _bytes_of(value)
            gap = -offset % _ALIGNMENT
            write(memoryview(bytes(gap)))
            write(array)
            kind = str(value.dtype).removeprefix("torch.")
            place = ["tensor", kind, [*value.shape], offset + gap]
            offset += gap + array.nbytes
            return place
        if isinstance(value, dict):
            entries = [[visit(key), visit(each)] for key, each in value.items()]
            return ["dict", entries]
        if isinstance(value, list | tuple):
            kind = "list" if isinstance(value, list) else "tuple"
            return [kind, [visit(each) for each in value]]
        raise TypeError(
            "a saved state holds plain values and tensors only, got a "
            f"{type(value).__qualname__}"
        )

    return visit(tree)


def _bytes_of(tensor: Tensor) -> memoryview:
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    # A subclass, such as a memory-mapped tensor, is its numbers here.
    flat = plain.as_subclass(Tensor).reshape(-1)
    array: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return memoryview(array)


def decode(text: Any, content: bytearray) -> Any:
    """The tree that :func:`encode` took apart; its tensors share the bytes.

    Args:
        text: what it returned.
        content: the bytes that it wrote.

    Raises:
        ValueError: if they do not belong together.
    """
    if text is None or type(text) in (bool, int, float, str):
        return text
    match text:
        case ["list", list(values)]:
            return [decode(each, content) for each in values]
        case ["tuple", list(values)]:
            return tuple(decode(each, content) for each in values)
        case ["dict", list(entries)] if all(len(entry) == 2 for entry in entries):
            return {decode(k, content): decode(v, content) for k, v in entries}
        case ["tensor", str(kind), list(shape), int(offset)] if kind in _DTYPES:
            return _read_tensor(_DTYPES[kind], shape, offset, content)
    raise ValueError(f"expected a value, a container or a tensor, got {text!r:.80}")


def _read_tensor(
    dtype: torch.dtype, shape: list[Any], offset: int, content: bytearray
) -> Tensor:
    if not all(type(size) is int and size >= 0 for size in shape) or offset < 0:
        raise ValueError(f"a tensor cannot have the shape {shape} at byte {offset}")
    count = math.prod(shape)
    if offset + count * dtype.itemsize > len(content):
        raise ValueError(f"a tensor of shape {shape} at byte {offset} is cut short")
    if not count:
        return torch.empty(shape, dtype=dtype)
    found = torch.frombuffer(content, dtype=dtype, count=count, offset=offset)
    return found.reshape(shape)


def copy_tree(tree: Any) -> Any:
    """A copy whose tensors are independent; any other leaf is the same object."""
    if isinstance(tree, Tensor):
        return tree.clone()
    if isinstance(tree, dict):
        return {key: copy_tree(each) for key, each in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(map(copy_tree, tree))
    return tree


def check_numbers(tree: Any, device: torch.device) -> None:
    """Raise ``ValueError`` if a tensor of a tree is not dense or has no numbers.

    Args:
        tree: plain values and tensors.
        device: where they are meant for; one without numbers needs none.
    """
    if isinstance(tree, Tensor):
        if tree.layout is not torch.strided or tree.is_nested:
            kind = "nested" if tree.is_nested else str(tree.layout)
            raise ValueError(f"cannot restore a tensor that is not dense, got {kind}")
        if tree.is_meta and device.type != "meta":
            raise ValueError("cannot restore a tensor on 'meta': it has no numbers")
    elif isinstance(tree, dict):
        for each in tree.values():
            check_numbers(each, device)
    elif isinstance(tree, list | tuple):
        for each in tree:
            check_numbers(each, device)
