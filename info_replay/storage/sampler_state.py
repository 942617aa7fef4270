"""The state of TorchRL's samplers as plain values, checked before it is loaded."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor
from torchrl.data.replay_buffers.samplers import (
    PrioritizedSampler,
    Sampler,
    SamplerWithoutReplacement,
)

from info_replay.storage.tree import copy_tree
from info_replay.validation import told

__all__ = ["check_sampler", "load_sampler", "save_sampler"]

# Segment trees, which are objects of TorchRL's C++ part.
_TREES = ("_sum_tree", "_min_tree")


def save_sampler(sampler: Sampler) -> dict[str, Any]:
    """The state of a sampler, as plain values and tensors.

    Args:
        sampler: any of TorchRL's.
    """
    state = {"sampler": type(sampler).__name__, **sampler.state_dict()}
    for name in state.keys() & {*_TREES}:
        state[name] = _leaves_of(state[name])
    return copy_tree(state)


def _leaves_of(tree: Any) -> Tensor:
    """The numbers at the leaves of a segment tree; all others follow from them."""
    return torch.as_tensor(tree[torch.arange(len(tree))])


def load_sampler(sampler: Sampler, saved: dict[str, Any]) -> None:
    """Continue from a :func:`save_sampler` that was checked.

    Args:
        sampler: of the same class and settings.
        saved: the state.
    """
    state = copy_tree({name: each for name, each in saved.items() if name != "sampler"})
    for name in state.keys() & {*_TREES}:
        tree = copy.deepcopy(getattr(sampler, name))
        tree[torch.arange(len(tree))] = state[name]
        state[name] = tree
    if "_max_priority" in state:
        state["_max_priority"] = tuple(state["_max_priority"])
    sampler.load_state_dict(state)


def check_sampler(sampler: Sampler, saved: Any, size: int) -> None:
    """Raise unless a state fits; it is loaded into a copy of the sampler to see.

    Args:
        sampler: that it is meant for; nothing is changed.
        saved: the state.
        size: number of items that go with it.

    Raises:
        ValueError, TypeError, KeyError, RuntimeError: if it does not fit.
    """
    own = save_sampler(sampler)
    if not isinstance(saved, dict) or saved.keys() != own.keys():
        known = sorted(saved) if isinstance(saved, dict) else saved
        raise ValueError(f"expected {sorted(own)}, got {told(known)}")
    if saved["sampler"] != own["sampler"]:
        raise ValueError(f"expected a {own['sampler']}, got a {saved['sampler']!r}")
    for name, value in own.items():
        _check_value(name, saved[name], value)
    if isinstance(sampler, SamplerWithoutReplacement):
        _check_list(saved, size)
    if isinstance(sampler, PrioritizedSampler):
        _check_priorities(saved, own, size)
    load_sampler(copy.deepcopy(sampler), saved)


def _check_value(name: str, found: Any, own: Any) -> None:
    """Refuse a value of another kind, or a negative or infinite number."""
    if isinstance(own, Tensor) or own is None:
        fits = found is None or isinstance(found, Tensor)
        if own is not None and isinstance(found, Tensor):
            fits = found.dtype == own.dtype
    else:
        fits = type(found) is type(own)
        if isinstance(own, float | int):
            fits = fits and math.isfinite(found) and found >= 0
    if not fits:
        raise ValueError(f"expected {name} like {told(own)}, got {told(found)}")


def _check_list(saved: dict[str, Any], size: int) -> None:
    """The items that are still to be sampled must be there."""
    waiting, known = saved["_sample_list"], saved["len_storage"]
    if waiting is None and known == 0:
        return
    if not isinstance(waiting, Tensor) or waiting.dtype != torch.int64:
        raise ValueError(f"expected _sample_list of numbers, got {told(waiting)}")
    if waiting.ndim != 1 or waiting.numel() > known:
        raise ValueError(f"expected at most {known} items, got {told(waiting)}")
    if known != size:
        return  # a new list is drawn then: the memory has shrunk, say
    if waiting.numel() and not 0 <= int(waiting.min()) <= int(waiting.max()) < size:
        raise ValueError(f"expected _sample_list of slots below {size}")


def _check_priorities(saved: dict[str, Any], own: dict[str, Any], size: int) -> None:
    """Items must have priorities above 0, free slots none."""
    for name in _TREES:
        leaves, shape = saved[name], own[name].shape
        # TorchRL's trees read beyond the end of too few leaves.
        if leaves is None or leaves.shape != shape or not leaves.isfinite().all():
            raise ValueError(
                f"expected {name} of {shape.numel()} finite numbers, got {told(leaves)}"
            )
        if not (leaves[:size] > 0).all():
            raise ValueError(f"expected {name} with a priority above 0 for each item")
    if not (saved["_min_tree"] > 0).all():
        raise ValueError("expected a _min_tree above 0 everywhere")
    if not saved["_min_tree"][:size].equal(saved["_sum_tree"][:size]):
        raise ValueError("expected the same priorities in _sum_tree and _min_tree")
    if (saved["_sum_tree"][size:] != 0).any():
        raise ValueError(f"expected priorities of {size} items, got more")
    if not saved["_beta"] >= 0 or len(saved["_max_priority"]) != 2:
        raise ValueError("expected beta of at least 0 and a largest priority")
    for each in saved["_max_priority"]:
        if each is not None and not math.isfinite(float(each)):
            raise ValueError(f"expected a finite largest priority, got {each!r}")
