"""The state of a replay buffer as plain values: :func:`save_buffer`.

Restoring is all or nothing. Everything is checked and built aside first; what is left
then are copies and assignments.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import TensorDictReplayBuffer

from info_replay.storage.entries import check_storable, describe, name_of, nest, unnest
from info_replay.storage.sampler_state import check_sampler, load_sampler, save_sampler
from info_replay.storage.slots import Slots
from info_replay.storage.stateful_writer import StatefulWriter
from info_replay.storage.tree import check_numbers, copy_tree
from info_replay.validation import told

__all__ = ["restore_buffer", "save_buffer", "wait_for_samples"]

_PARTS = ("_storage", "_sampler", "_writer", "_transforms", "_batch_size", "_rng")
_WRONG = (LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError)


def save_buffer(buffer: TensorDictReplayBuffer) -> dict[str, Any]:
    """Everything that a buffer with a :class:`StatefulWriter` needs to go on.

    Args:
        buffer: which nobody else may use meanwhile.

    Returns:
        Plain values and tensors; those of the storage are not copied.
    """
    slots: Slots = buffer._writer.slots
    slots.check_shared()
    rng = buffer._rng
    with buffer._capture_prefetch_state() as prefetched:
        queue = [_plain(each) for each in prefetched["queue"]]
    return {
        "_storage": {"_storage": slots.content(), "_len": len(slots)},
        "_sampler": save_sampler(buffer._sampler),
        "_writer": buffer._writer.state_dict(),
        "_transforms": copy_tree(dict(buffer._transform.state_dict())),
        "_batch_size": buffer._batch_size,
        "_rng": None if rng is None else [rng.get_state(), str(rng.device)],
        "_prefetched": {"capacity": int(buffer._prefetch_cap), "queue": queue},
    }


def restore_buffer(buffer: TensorDictReplayBuffer, state: Any) -> None:
    """Continue from what :func:`save_buffer` returned.

    Args:
        buffer: with a writer, sampler and transforms as that one had; nobody else may
            use it meanwhile.
        state: plain values and tensors.

    Raises:
        ValueError: if it does not fit; nothing is changed then.
    """
    writer: StatefulWriter = buffer._writer
    found = state if isinstance(state, dict) else {}
    for part in (*_PARTS, "_prefetched"):
        if part not in found:
            raise ValueError(
                f"this is not the state of a replay buffer with a "
                f"{type(writer).__name__}: it has no {part!r}"
            )
    slots = writer.slots
    slots.check_shared()
    check_numbers(state, slots.device)
    writer.check_settings(state["_writer"])  # it says best what is different
    items = _checked("storage", _read_items, state["_storage"], slots)
    size = 0 if items is None else len(items)
    with slots.as_if_for(items):
        writer.check_state(state["_writer"])
        if size:
            _checked("items", writer.check_stored, items)
        _checked("sampler", check_sampler, buffer._sampler, state["_sampler"], size)
        batch_size = _checked("batch size", _read_batch_size, state["_batch_size"])
        generator = _checked("generator", _read_generator, state["_rng"], buffer._rng)
        queue = _checked("prefetched", _read_queue, state["_prefetched"], buffer)
        saved = state["_transforms"]
        _checked("transforms", _load_transforms, buffer._transform, saved)
    # Nothing below depends on what was saved but by its values.
    slots.put(items)
    writer.load_checked(state["_writer"])
    load_sampler(buffer._sampler, state["_sampler"])
    buffer._batch_size = batch_size
    if generator is not None:
        buffer.set_rng(generator=generator)
    buffer._clear_prefetch_queue_locked()
    for result in queue:
        future: Future[Any] = Future()
        future.set_result(result)
        buffer._prefetch_queue.append(future)


def _checked(what: str, check: Callable[..., Any], *details: Any) -> Any:
    """Whatever is wrong with a part of a state, as one kind of error."""
    try:
        return check(*details)
    except ValueError as error:
        raise ValueError(f"cannot restore the {what}: {error}") from error
    except _WRONG as error:
        text = " ".join(str(error).split())
        raise ValueError(
            f"cannot restore the {what}: {type(error).__name__} {text:.200}"
        ) from error


def _read_items(saved: Any, slots: Slots) -> TensorDictBase | None:
    """The saved items, like those of the slots; ``None`` if there never was one."""
    size = saved["_len"]
    if type(size) is not int or not 0 <= size <= slots.capacity:
        raise ValueError(f"expected 0 to {slots.capacity} items, got {told(size)}")
    entries = unnest(saved["_storage"])
    for key, entry in entries.items():
        if not isinstance(entry, Tensor) or not entry.ndim or len(entry) != size:
            raise ValueError(
                f"expected entry {name_of(key)!r} to have {size} rows, got "
                f"{told(entry)}"
            )
    if not entries:
        if size:
            raise ValueError(f"expected {size} items, got none")
        return None
    items = TensorDict(nest(entries), batch_size=[size])
    check_storable(entries, slots.device)
    if slots.storage.initialized and slots.schema() != (
        found := {name_of(key): describe(entry) for key, entry in entries.items()}
    ):
        raise ValueError(f"expected items with {slots.schema()}, got {found}")
    return items


def _read_batch_size(saved: Any) -> int | None:
    if saved is not None and (type(saved) is not int or not 1 <= saved < 2**31):
        raise ValueError(f"expected a number from 1 on, or none, got {told(saved)}")
    return saved


def _read_generator(saved: Any, own: torch.Generator | None) -> torch.Generator | None:
    """A generator that goes on where the saved one was."""
    if saved is None:
        return None
    numbers, device = saved
    if device != "cpu" and not torch.cuda.is_available():
        raise ValueError(f"a generator on {device!r} cannot go on here")
    if own is not None and str(own.device) != device:
        raise ValueError(f"expected one on '{own.device}', got one on {device!r}")
    generator = torch.Generator(device=device)
    generator.set_state(numbers.cpu())
    return generator


def _load_transforms(transform: torch.nn.Module, saved: Any) -> None:
    """Load the state of transforms; if that fails, they are as they were."""
    if not isinstance(saved, dict):
        raise TypeError(f"expected values by name, got {told(saved)}")
    before = copy_tree(dict(transform.state_dict()))
    if not saved and not before:
        return
    try:
        transform.load_state_dict(saved)
    except Exception:
        transform.load_state_dict(before)
        raise


# -- prefetched samples ---------------------------------------------------------------


def wait_for_samples(buffer: TensorDictReplayBuffer, *, replacing: bool) -> None:
    """Wait for what a buffer does in the background; drop samples that failed.

    They are tried again when they are asked for.

    Args:
        buffer: which nobody else may use meanwhile.
        replacing: whether its items are about to be replaced; then updates that failed
            are dropped, too: they were meant for the old ones.
    """
    queue = buffer._prefetch_queue
    wait([*queue, *buffer._pending_update_futures])
    fine = [each for each in queue if each.exception() is None]
    if len(fine) < len(queue):
        queue.clear()
        queue.extend(fine)
    if replacing:
        buffer._pending_update_futures.clear()
        buffer._sample_dependency = None


def _plain(result: Any) -> Any:
    """A prefetched sample with its tensordicts as plain values."""
    if isinstance(result, TensorDictBase):
        entries = {key: result.get(key) for key in result.keys(True, True)}
        return {
            "batch_size": [*result.batch_size],
            "device": None if result.device is None else str(result.device),
            "entries": nest(entries),
        }
    if isinstance(result, dict):
        return {key: _plain(each) for key, each in result.items()}
    if isinstance(result, list | tuple):
        return [*map(_plain, result)]
    return result


def _read_queue(saved: Any, buffer: TensorDictReplayBuffer) -> list[Any]:
    """Prefetched samples from plain values."""
    capacity, own = saved["capacity"], int(buffer._prefetch_cap)
    if capacity != own or len(saved["queue"]) > own:
        raise ValueError(f"expected up to {own} of them, got {told(capacity)}")
    return [_read_sample(*each) for each in saved["queue"]]


def _read_sample(items: Any, info: Any) -> tuple[TensorDict, dict[str, Any]]:
    entries = unnest(items["entries"])
    if not isinstance(info, dict) or not all(
        isinstance(entry, Tensor)
        for entry in (*entries.values(), *info.values(), info["index"])
    ):
        raise TypeError("expected tensors and information about them")
    if not all(len(entry) == items["batch_size"][0] for entry in info.values()):
        raise ValueError("expected information about every item")
    made = TensorDict(
        nest(copy_tree(entries)), items["batch_size"], device=items["device"]
    )
    return made, copy.deepcopy(info)
