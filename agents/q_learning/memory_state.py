"""A replay buffer as plain values and tensors: :func:`memory_state`, and back.

``torch.load(weights_only=True)`` reads such a state: no code is run from files. Buffers
of this package have a ``state_dict`` of that kind, and check one before they take it.
For TorchRL's own, both is done here.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from agents.runs.saved_states import (
    check_generator,
    check_network_state,
    check_parts,
    check_tensor,
    check_whole,
)
from info_replay import SelectiveReplayBuffer
from info_replay.storage.buffer_parts import restore_device
from info_replay.storage.entries import name_of, unnest
from info_replay.storage.sampler_state import check_sampler, load_sampler, save_sampler
from info_replay.validation import told

__all__ = ["check_items", "memory_state", "restore_memory"]

# What a round-robin writer keeps, and what TorchRL itself compares.
_POSITION = {"_cursor", "_write_count"}
# What TorchRL's samplers change along a run, or their users anneal.
_CHANGING = {"len_storage", "_beta", "_ran_out"}
_CHECKED = {"_storage", "_sampler", "_writer", "_transforms", "_rng", "_prefetch_state"}


def memory_state(memory: TensorDictReplayBuffer) -> dict[str, Any]:
    """Everything that a buffer is and will do, its random numbers included.

    Args:
        memory: the buffer.

    Returns:
        The state, for :func:`restore_memory`; later changes of the buffer may show in
        its tensors, unless it is one of this package.
    """
    state: dict[str, Any] = memory.state_dict()
    if not isinstance(memory, SelectiveReplayBuffer):
        state["_sampler"] = save_sampler(memory.sampler)
    return state


def restore_memory(memory: TensorDictReplayBuffer, state: Any) -> None:
    """Continue from a :func:`memory_state`.

    Args:
        memory: a buffer of the same kind and capacity.
        state: of the other one.

    Raises:
        ValueError: if it does not fit; nothing is changed then.
    """
    if isinstance(memory, SelectiveReplayBuffer):
        memory.load_state_dict(state)
        return
    own = memory_state(memory)
    check_parts(state, *own, name="the state of a replay buffer")
    if type(memory.storage) is LazyTensorStorage and memory.storage.ndim == 1:
        _check_state(memory, state, own)  # any other is the user's
    memory.load_state_dict({**state, "_sampler": memory.sampler.state_dict()})
    load_sampler(memory.sampler, state["_sampler"])
    restore_device(memory.storage)


def _check_state(
    memory: TensorDictReplayBuffer, state: dict[str, Any], own: dict[str, Any]
) -> None:
    """Refuse what is not the state of such a buffer of TorchRL's.

    Args:
        memory: that would be given the state.
        state: that was read.
        own: that of the memory.

    Raises:
        ValueError: naming the first part that does not fit.
    """
    size = _check_storage(state["_storage"], memory.storage.max_size)
    _check_position(state["_writer"], own["_writer"], size, memory.storage.max_size)
    try:
        check_sampler(memory.sampler, state["_sampler"], size)
        _check_options(state["_sampler"], own["_sampler"])
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        kind, text = type(memory.sampler).__name__, " ".join(str(error).split())
        raise ValueError(
            f"this is not the state of a buffer with a {kind}: {text}"
        ) from error
    check_network_state(memory.transform, state["_transforms"])
    _check_random_numbers(state["_rng"], own["_rng"])
    for name in own.keys() - _CHECKED:
        if told(state[name]) != told(own[name]):
            raise ValueError(
                f"expected {name}={told(own[name])}, got {told(state[name])}"
            )


def check_items(state: Any, frames: TensorDictBase) -> None:
    """Refuse a memory of other transitions.

    Args:
        state: that was read, of a memory made from the settings.
        frames: some, like those that the memory will be given.

    Raises:
        ValueError: naming the first entry that does not fit.
    """
    check_parts(state, "_storage", name="the state of a replay buffer")
    check_parts(state["_storage"], "_storage", name="the state of a storage")
    saved = unnest(state["_storage"]["_storage"])
    entries = {name_of(key): entry for key, entry in saved.items()}
    expected = {name_of(key): frames.get(key) for key in frames.keys(True, True)}
    if "index" in entries:  # TorchRL's own buffers store it, too
        expected["index"] = torch.arange(len(frames))
    for name, like in expected.items() if entries else ():
        entry = entries.get(name)
        if not isinstance(entry, Tensor) or not entry.ndim:
            raise ValueError(f"expected entry {name!r}, got {told(entry)}")
        check_tensor(entry, like.new_empty(len(entry), *like.shape[1:]), name)


def _check_storage(saved: Any, capacity: int) -> int:
    """The number of items in the state of a storage; its tensors have all slots."""
    check_parts(saved, "_storage", "initialized", "_len", name="the state of a storage")
    size, entries = saved["_len"], unnest(saved["_storage"])
    check_whole(size, "the number of items")
    if size > capacity:
        raise ValueError(f"expected 0 to {capacity} items, got {size}")
    for key, entry in entries.items():
        if not isinstance(entry, Tensor) or not entry.ndim or len(entry) != capacity:
            raise ValueError(
                f"expected entry {name_of(key)!r} to have {capacity} rows, got "
                f"{told(entry)}"
            )
        check_tensor(entry, entry.new_empty(entry.shape, device="cpu"), name_of(key))
    if saved["initialized"] is not bool(entries) or (size and not entries):
        raise ValueError(f"expected {size} items, got {told(saved['initialized'])}")
    return size


def _check_position(saved: Any, own: Any, size: int, capacity: int) -> None:
    """The place of a round-robin writer follows from what it has written."""
    check_parts(saved, *own, name="the state of a writer")
    if own.keys() != _POSITION:
        return  # a writer of the user's
    count, cursor = saved["_write_count"], saved["_cursor"]
    check_whole(count, "_write_count")
    check_whole(cursor, "_cursor")
    if cursor != count % capacity or size != min(count, capacity):
        raise ValueError(
            f"expected cursor {count % capacity} and {min(count, capacity)} items "
            f"after {count}, got {cursor} and {size}"
        )


def _check_options(saved: dict[str, Any], own: dict[str, Any]) -> None:
    """Numbers of a sampler that do not change along a run."""
    for name, value in own.items():
        changes = name in _CHANGING
        if isinstance(value, int | float) and saved[name] != value and not changes:
            raise ValueError(f"expected {name}={value!r}, got {saved[name]!r}")


def _check_random_numbers(saved: Any, own: Any) -> None:
    if own is None or saved is None:
        if saved is not own:
            raise ValueError(f"expected random numbers like {told(own)}")
        return
    if not isinstance(saved, list | tuple) or len(saved) != 2 or saved[1] != own[1]:
        raise ValueError(f"expected random numbers of {own[1]}, got {told(saved)}")
    check_generator(own[0], saved[0])
