"""New features of sampled items: :func:`read_write_back`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.decision import last_rows
from info_replay.model.linear_algebra import known_within, on_host, plain
from info_replay.storage import generations
from info_replay.storage.slots import Slots
from info_replay.transfer import extremes, to_host
from info_replay.validation import check_range

__all__ = ["read_write_back"]


def read_write_back(
    data: TensorDictBase,
    feature_key: NestedKey,
    slots: Slots,
    *,
    largest: float,
) -> tuple[NDArray[np.int64], Tensor]:
    """Slots ``(m,)`` of a sample, all different, and their new features ``(m, d)``.

    A slot that holds another item by now, or none, is left out; of a slot that was
    sampled several times the last row counts. Features above ``largest`` are refused,
    and so are slots that were not in use when the sample was drawn.
    """
    if not data.batch_dims:
        data = data.unsqueeze(0)
    size = len(slots)
    sampled = data._get_str("index_generation", None)
    if not size and (sampled is None or not slots.has_generations):
        raise IndexError("the memory is empty: there is nothing to write back to")
    index, features = _read(data, feature_key, slots)
    device = features.device
    asked: list[Any] = [index]
    held = getattr(slots.storage, generations.ATTRIBUTE, None)
    if sampled is not None and held is not None:
        asked += [_first_column(sampled, device), _take(held, index)]
    known = known_within(features, largest)
    found = to_host(*asked, *(() if known else extremes(features)))
    live = _live_slots(*found[: len(asked)], size=size, capacity=slots.capacity)
    if not known:
        check_range(features, feature_key, *map(float, found[-2:]), largest=largest)
    rows = last_rows(live)
    if rows.size == live.size:
        return live, features
    pick = torch.from_numpy(rows).to(device)
    return live[rows], features.index_select(0, pick)


def _read(
    data: TensorDictBase, feature_key: NestedKey, slots: Slots
) -> tuple[Tensor, Tensor]:
    """Slots and features of a sample; checks all that needs no transfer."""
    # Half the time of get(), which checks the form of the key.
    index = data._get_str("index", None)
    if index is None:
        raise KeyError(
            "missing entry 'index': features are written back to the slots that "
            "sample() took them from"
        )
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise TypeError(
            f"entry 'index' must hold slots as whole numbers, got {index.dtype}"
        )
    features = data.get(feature_key, None)
    if features is None:
        raise KeyError(f"missing entry {feature_key!r}: the new features")
    leaf = slots.leaf(feature_key)
    if features.dtype != leaf.dtype:
        raise TypeError(
            f"entry {feature_key!r} must be of type {leaf.dtype}, got {features.dtype}"
        )
    shape = (*index.shape[:1], *leaf.shape[1:])
    if features.shape != shape:
        raise ValueError(
            f"entry {feature_key!r} must have the shape {shape}, got "
            f"{tuple(features.shape)}"
        )
    return _first_column(index, leaf.device), plain(features, leaf.device)


def _first_column(index: Tensor, device: torch.device) -> Tensor:
    """Slots ``(n,)`` of a sample; TorchRL expands them to the batch's dimensions."""
    if index.ndim > 1:
        index = index.reshape(len(index), -1)[:, 0]
    return plain(index, device)


def _take(held: Tensor, index: Tensor) -> Any:
    """Generations of some slots; wrong slots are refused later, on the host."""
    if on_host(held):
        return held.numpy().take(index.numpy(), mode="clip")
    return held.index_select(0, index.clamp(0, held.shape[0] - 1).long())


def _live_slots(
    index: NDArray[Any],
    sampled: NDArray[Any] | None = None,
    current: NDArray[Any] | None = None,
    *,
    size: int,
    capacity: int,
) -> NDArray[np.int64]:
    """The slot of each row ``(n,)``, -1 where its generation has changed.

    Only slots in use are allowed, and those that were given up since the sample was
    drawn.
    """
    slots = index.astype(np.int64, copy=False)
    if slots.min() < 0 or slots.max() >= size:
        wrong = np.flatnonzero((slots < 0) | (slots >= size))
        if sampled is not None and current is not None:
            # A slot that was given up since then has a later generation.
            inside = (slots >= 0) & (slots < capacity)
            wrong = wrong[~(inside & (sampled < current))[wrong]]
        if wrong.size:
            raise IndexError(
                f"entry 'index' must hold slots from 0 to {size - 1}, got "
                f"{slots[wrong[0]]} for item {wrong[0]}"
            )
    return slots if sampled is None else np.where(sampled == current, slots, -1)
