"""A sample on its way back to the memory: :class:`Sample`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from info_replay.linear_algebra import on_host, plain
from info_replay.writers.entries import get_entry
from info_replay.writers.slots import Slots

__all__ = ["Sample"]


# Samples of more items are not looked at with Python's own means.
_FEW = 1024


class Sample:
    """New features, and the slots that they belong to.

    Args:
        data: what ``sample()`` gave, with new features.
        feature_key: entry that holds them.
        slots: where they go.
        size: how many of them are in use.
        given_up: whether slots that were sampled may be out of use by now.

    Attributes:
        features: shape ``(n, d0)``, on the storage's device.

    Raises:
        KeyError: if the slots or the features are missing.
        TypeError: if the features are of another type than the stored ones, or slots
            are no whole numbers.
        ValueError: if they have another shape.
        IndexError: if the memory is empty.
    """

    def __init__(
        self,
        data: TensorDictBase,
        feature_key: NestedKey,
        slots: Slots,
        size: int,
        *,
        given_up: bool = False,
    ) -> None:
        if not data.batch_dims:
            data = data.unsqueeze(0)
        index = get_entry(data, "index")
        if index is None:
            raise KeyError(
                "missing entry 'index': features are written back to the slots that "
                "sample() took them from"
            )
        if index.is_floating_point() or index.dtype == torch.bool:
            raise TypeError(
                f"entry 'index' must hold slots as whole numbers, got {index.dtype}"
            )
        features = get_entry(data, feature_key)
        if features is None:
            raise KeyError(f"missing entry {feature_key!r}: the new features")
        self._size = size
        if not size:
            raise IndexError("the memory is empty: there is nothing to write back to")
        leaf = slots.leaf(feature_key)
        if features.dtype != leaf.dtype:
            raise TypeError(
                f"entry {feature_key!r} must be of type {leaf.dtype}, got "
                f"{features.dtype}"
            )
        if features.shape != index.shape[:1] + leaf.shape[1:]:
            raise ValueError(
                f"entry {feature_key!r} must have the shape "
                f"{(*index.shape[:1], *leaf.shape[1:])}, got {tuple(features.shape)}"
            )
        device = leaf.device
        self.features: Tensor = plain(features, device)
        self._index = _first_column(index, device)
        generation = get_entry(data, "index_generation")
        self._generation: Tensor | None = (
            None if generation is None else _first_column(generation, device)
        )
        self._given_up = given_up
        self._capacity = slots.capacity

    def simple_slots(self, generation: Tensor | None) -> NDArray[np.int64] | None:
        """The slots, if all are known at once to be in use, live and different.

        Most samples are like that, and on the host it is seen at a fraction of the
        cost of finding out what is wrong.

        Args:
            generation: of every slot, if slots have been written.

        Returns:
            Slots, shape ``(n,)``, or ``None`` if it takes a closer look.
        """
        index, sampled = self._index, self._generation
        if index.shape[0] > _FEW or not on_host(index):
            return None
        slots = index.numpy().astype(np.int64, copy=False)
        if (
            # Seen as unsigned, a negative number is a large one.
            slots.view(np.uint64).max() >= self._size
            or np.bincount(slots).max() > 1
            or not (
                sampled is None
                or generation is None
                or sampled.numpy().tobytes() == generation.numpy()[slots].tobytes()
            )
        ):
            return None
        return slots

    def tensors(self, generation: Tensor | None) -> list[Tensor | NDArray[Any]]:
        """All that the host must know, for one transfer.

        Args:
            generation: of every slot, if slots have been written.

        Returns:
            The slots, and the generation that was sampled and the one that is there
            (left out where that is not known).
        """
        if self._generation is None or generation is None:
            return [self._index]
        # Wrong slots are told from right ones when they are on the host.
        if on_host(self._index) and on_host(generation):
            held = generation.numpy().take(self._index.numpy(), mode="clip")
            return [self._index, self._generation, held]
        places = self._index.clamp(0, self._capacity - 1).long()
        return [self._index, self._generation, generation.index_select(0, places)]

    def live_slots(
        self,
        index: NDArray[Any],
        sampled: NDArray[Any] | None = None,
        current: NDArray[Any] | None = None,
    ) -> NDArray[np.int64]:
        """The slot of each row, -1 where it holds another item by now.

        Args:
            index: the slots, on the host.
            sampled: their generations when they were sampled.
            current: their generations now.

        Returns:
            Slots, shape ``(n,)``.

        Raises:
            IndexError: if a slot is not in use.
        """
        slots = index.astype(np.int64, copy=False)
        # Seen as unsigned, a negative number is a large one.
        if slots.view(np.uint64).max() >= self._size:
            wrong = np.flatnonzero((slots < 0) | (slots >= self._size))
            if self._given_up and sampled is not None and current is not None:
                # A slot that was given up since then has a later generation.
                inside = (slots >= 0) & (slots < self._capacity)
                wrong = wrong[~(inside & (sampled < current))[wrong]]
            if wrong.size:
                raise IndexError(
                    f"entry 'index' must hold slots from 0 to {self._size - 1}, got "
                    f"{slots[wrong[0]]} for item {wrong[0]}"
                )
        return slots if sampled is None else np.where(sampled == current, slots, -1)


def _first_column(index: Tensor, device: torch.device) -> Tensor:
    """Slots ``(n,)`` of a sample; TorchRL expands them to the batch's dimensions."""
    if index.ndim > 1:
        index = index.reshape(len(index), -1)[:, 0]
    return plain(index, device)
