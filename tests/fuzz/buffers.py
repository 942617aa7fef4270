"""Buffers of every policy, storage and sampler, and their states byte by byte."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torchrl.data import (
    LazyMemmapStorage,
    LazyTensorStorage,
    PrioritizedSampler,
    RandomSampler,
    SamplerWithoutReplacement,
    Storage,
    TensorStorage,
)
from torchrl.data.replay_buffers import Sampler

from info_replay import SelectiveReplayBuffer

from ..buffer.helpers import COMPACTING, complete_state, differences, make_buffer
from .items import make_items

#: Given a number of slots. A storage that is given holds items already.
STORAGES: dict[str, Callable[[int], Storage]] = {
    "dense": LazyTensorStorage,
    "memory-mapped": LazyMemmapStorage,
    "given": lambda capacity: TensorStorage(make_items(range(capacity))),
}
SAMPLERS: dict[str, Callable[[int], Sampler]] = {
    "uniform": lambda capacity: RandomSampler(),
    "without replacement": lambda capacity: SamplerWithoutReplacement(),
    "prioritized": lambda capacity: PrioritizedSampler(capacity, 0.7, 0.5),
}


def samplers_of(policy: str) -> list[str]:
    """Priorities cannot follow items that move."""
    some = [*SAMPLERS]
    return some[:2] if policy in COMPACTING else some


def fuzzed_buffer(
    policy: str,
    storage: str = "dense",
    sampler: str = "uniform",
    capacity: int = 16,
    **options: Any,
) -> SelectiveReplayBuffer:
    return make_buffer(
        policy,
        storage=STORAGES[storage](capacity),
        sampler=SAMPLERS[sampler](capacity),
        **options,
    )


def image(buffer: SelectiveReplayBuffer) -> dict[str, Any]:
    """All that a buffer is, generator and sampler included, for comparison."""
    return _plain(complete_state(buffer))


def _plain(value: Any) -> Any:
    """TorchRL's segment trees and greatest priorities as the numbers in them."""
    if isinstance(value, dict):
        plain = {key: _plain(entry) for key, entry in value.items()}
        if plain.get("_max_priority") is not None:  # tensors or numbers, by chance
            plain["_max_priority"] = [float(x or 0) for x in plain["_max_priority"]]
        return plain
    if isinstance(value, list | tuple):
        return [*map(_plain, value)]
    if type(value).__name__.endswith(("SegmentTreeFp32", "SegmentTreeFp64")):
        return value.__getstate__()[0].tolist()
    return value


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    found = differences(before, after)
    assert found == [], "\n".join(found)


def without_generations(state: Any) -> Any:
    """A restored memory holds the same items, which may be of a later generation."""
    if isinstance(state, dict):
        return {
            key: without_generations(entry)
            for key, entry in state.items()
            if "generation" not in str(key)
        }
    return state


#: Bad input is answered with one of these, never with what torch happens to raise.
REFUSALS = (TypeError, ValueError, KeyError, IndexError)


@contextlib.contextmanager
def refusing(
    buffer: SelectiveReplayBuffer,
    errors: type[Exception] | tuple[type[Exception], ...] = REFUSALS,
    words: str = "",
) -> Iterator[None]:
    """What is done here raises one line with some words and leaves no trace."""
    buffer.writer.catch_up()  # what it would put off until it is asked
    before = image(buffer)
    try:
        yield
    except errors as error:
        message = str(error.args[0]) if error.args else ""
    else:
        raise AssertionError(f"accepted; it should say {words!r}")
    assert message.strip(), "the message is empty"
    assert "\n" not in message.strip(), f"several lines: {message}"
    assert words in message, f"{words!r} is not in {message!r}"
    assert_same(before, image(buffer))
