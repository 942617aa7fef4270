"""A replay buffer as plain values and tensors: :func:`memory_state`, and back.

``torch.load(weights_only=True)`` reads such a state: no code is run from files. Buffers
of this package have a ``state_dict`` of that kind. TorchRL's prioritized sampler holds
trees in C++, of which only the leaves are kept: the rest follows from them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchrl.data import TensorDictReplayBuffer

from info_replay.storage.buffer_parts import restore_device

__all__ = ["memory_state", "restore_memory"]

_TREES = ("_sum_tree", "_min_tree")


def memory_state(memory: TensorDictReplayBuffer) -> dict[str, Any]:
    """Everything that a buffer is and will do, its random numbers included.

    Args:
        memory: the buffer.

    Returns:
        The state, for :func:`restore_memory`; later changes of the buffer may show in
        its tensors, unless it is one of this package.
    """
    state: dict[str, Any] = memory.state_dict()
    sampler = dict(state["_sampler"])
    for name in sampler.keys() & _TREES:
        slots = torch.arange(memory.storage.max_size)
        sampler[name] = torch.as_tensor(sampler[name][slots])
    return {**state, "_sampler": sampler}


def restore_memory(memory: TensorDictReplayBuffer, state: dict[str, Any]) -> None:
    """Continue from a :func:`memory_state`.

    Args:
        memory: a buffer of the same kind and capacity.
        state: of the other one.

    Raises:
        ValueError: if it does not fit.
    """
    if not isinstance(state, dict) or not isinstance(state.get("_sampler"), dict):
        raise ValueError("this is not the state of a replay buffer")
    fresh: dict[str, Any] = memory.state_dict()["_sampler"]
    sampler = dict(state["_sampler"])
    if sampler.keys() != fresh.keys():
        raise ValueError(
            f"this is not the state of a buffer with a {type(memory.sampler).__name__}"
        )
    for name in fresh.keys() & _TREES:
        leaves, capacity = sampler[name], memory.storage.max_size
        if not isinstance(leaves, Tensor) or leaves.shape != (capacity,):
            raise ValueError(f"{name} must hold {capacity} numbers")
        tree = fresh[name]
        tree[torch.arange(capacity)] = leaves
        sampler[name] = tree
    memory.load_state_dict({**state, "_sampler": sampler})
    restore_device(memory.storage)
