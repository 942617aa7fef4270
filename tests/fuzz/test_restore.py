"""A state with anything wrong is refused as a whole, or the memory goes on with it."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from info_replay import SelectiveReplayBuffer

from ..buffer.helpers import (
    COMPACTING,
    POLICIES,
    complete_state,
    differences,
    make_buffer,
    make_stream,
)
from .buffers import SAMPLERS, STORAGES, assert_same, fuzzed_buffer, image, samplers_of
from .items import make_items

Path = tuple[Any, ...]
Kind = tuple[str, str, str]

#: Every policy; the storages and samplers take turns.
KINDS: list[Kind] = [
    *((policy, "dense", "uniform") for policy in POLICIES),
    *(("infors", storage, "uniform") for storage in [*STORAGES][1:]),
    *(("infors", "dense", sampler) for sampler in [*SAMPLERS][1:]),
    ("recent-rs", "memory-mapped", "prioritized"),
    ("rs", "given", "without replacement"),
]


def make(kind: Kind, first: int = 0, **options: Any) -> SelectiveReplayBuffer:
    buffer = fuzzed_buffer(*kind, **options)
    for batch in make_items(range(first, first + 40)).split(8):
        buffer.extend(batch)
        buffer.sample()
    return buffer


# -- edited states --------------------------------------------------------------------


def places(state: Any, path: Path = ()) -> Iterator[Path]:
    """Where every container and leaf of a state is."""
    if path:
        yield path
    if isinstance(state, dict):
        for key, entry in state.items():
            yield from places(entry, (*path, key))
    elif isinstance(state, list | tuple):
        for number, entry in enumerate(state):
            yield from places(entry, (*path, number))


def at(state: Any, path: Path) -> Any:
    for key in path:
        state = state[key]
    return state


def edited(state: Any, path: Path, value: Any) -> Any:
    """A copy of a state with one place replaced, or deleted if the value says so."""
    key, *rest = path
    twin = [*state] if isinstance(state, list | tuple) else copy.copy(state)
    if rest:
        twin[key] = edited(state[key], tuple(rest), value)
    elif value is DELETED:
        del twin[key]
    else:
        twin[key] = value
    return tuple(twin) if isinstance(state, tuple) else twin


DELETED = object()


def replacements(value: Any) -> Iterator[Any]:
    """What somebody may have put in the place of a value."""
    yield from (DELETED, None, "text", -7, 2**70, math.nan, [], {}, torch.zeros(3))
    if isinstance(value, Tensor):
        yield value[..., None].clone()
        yield value.to("meta")
        yield value.to_sparse()
        yield value.bool() if value.dtype != torch.bool else value.int()
        if value.ndim:
            yield value[:-1].clone()
        if value.is_floating_point():
            yield torch.full_like(value, math.nan)
        elif value.dtype != torch.bool:
            yield torch.full_like(value, 2**6) - 99
    elif isinstance(value, list | tuple) and value:
        yield value[:-1]
        yield (*value, value[-1])
    elif isinstance(value, dict) and value:
        yield dict([*value.items()][:-1])
        yield {**value, "unknown": 1}
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, float(value) + 0.5)
    elif isinstance(value, str):
        yield value + "x"


def use(buffer: SelectiveReplayBuffer) -> None:
    """Go on with a memory; a clear error is all right, anything else is not."""
    for operation in (
        lambda: buffer.extend(make_items(range(900, 909))),
        lambda: len(buffer) and buffer.update_tensordict_priority(buffer.sample()),
        lambda: buffer.state_dict(),
    ):
        try:
            operation()
        except ValueError:
            return
        except RuntimeError as error:
            if "batch_size not specified" not in str(error):
                raise


def load_or_refuse(
    buffer: SelectiveReplayBuffer, before: dict[str, Any], state: Any
) -> str | None:
    """What is wrong with loading a state; ``None`` if nothing is."""
    try:
        buffer.load_state_dict(state)
    except ValueError as error:
        message = str(error).strip()
        if not message or "\n" in message:
            return f"not one line: {message!r}"
        try:
            assert_same(before, image(buffer))
        except AssertionError as changed:
            return f"refused but changed: {str(changed)[:200]}"
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    try:
        use(buffer)
    except Exception as error:
        return f"loaded, then {type(error).__name__}: {str(error)[:200]}"
    return ""  # it has changed


def findings(
    kind: Kind, states: Iterator[tuple[str, Any]], *, used: bool = True, **options: Any
) -> list[str]:
    """All states that were neither refused as a whole nor usable."""
    found: list[str] = []
    fresh = make(kind, 500, **options) if used else fuzzed_buffer(*kind, **options)
    buffer, before = None, image(fresh)
    for name, state in states:
        if buffer is None:
            buffer = copy.deepcopy(fresh)
        wrong = load_or_refuse(buffer, before, state)
        if wrong is not None:
            buffer = None
        if wrong:
            found.append(f"{name}: {wrong}")
    return found


def _edits(state: Any) -> Iterator[tuple[str, Any]]:
    for path in places(state):
        for value in replacements(at(state, path)):
            shown = "deleted" if value is DELETED else f"= {value!r}"[:60]
            yield f"{'/'.join(map(str, path))} {shown}", edited(state, path, value)


def _short(found: list[str]) -> str:
    return f"{len(found)} findings:\n" + "\n".join(found[:40])


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_an_edited_state_is_refused_as_a_whole_or_can_be_used(kind: Kind) -> None:
    found = findings(kind, _edits(make(kind).state_dict()))
    assert not found, _short(found)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if kind[1] != "given" and kind[2] == "uniform"],
    ids="-".join,
)
def test_an_edited_state_leaves_a_buffer_that_was_never_used_so(kind: Kind) -> None:
    found = findings(kind, _edits(make(kind).state_dict()), used=False)
    assert not found, _short(found)


def test_an_edited_state_with_prefetched_samples_is_no_exception() -> None:
    kind = KINDS[0]
    state = make(kind, prefetch=2).state_dict()
    prefetched = {
        name: value for name, value in _edits(state) if name.startswith("_prefetch")
    }
    assert prefetched
    found = findings(kind, iter(prefetched.items()), prefetch=2)
    assert not found, _short(found)


# -- states of others -----------------------------------------------------------------


def _others(kind: Kind) -> Iterator[tuple[str, Any]]:
    """States of memories that differ in one thing."""
    policy, storage, sampler = kind
    for other in POLICIES:
        yield other, make((other, storage, "uniform")).state_dict()
    for other in STORAGES:
        yield other, make((policy, other, sampler)).state_dict()
    for other in samplers_of(policy):
        yield other, make((policy, storage, other)).state_dict()
    yield "prefetch", make(kind, prefetch=3).state_dict()
    yield "no prefetch", make(kind, prefetch=None).state_dict()
    yield "capacity", make(kind, capacity=9).state_dict()
    yield "batch_size", make(kind, batch_size=3).state_dict()
    yield "new", fuzzed_buffer(*kind).state_dict()
    emptied = make(kind)
    emptied.empty()
    yield "emptied", emptied.state_dict()


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("policy", ["rs", "infors", "fss-clust", "recent-infors"])
def test_a_state_of_another_memory_is_refused_as_a_whole_or_can_be_used(
    policy: str, sampler: str
) -> None:
    if sampler == "prioritized" and policy in COMPACTING:
        return
    found = findings((policy, "dense", sampler), _others((policy, "dense", sampler)))
    assert not found, _short(found)


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("edit", ["schema", "meta", "sparse", "width"])
def test_items_that_do_not_fit_leave_any_buffer_as_it_was(
    edit: str, used: bool
) -> None:
    source, buffer = make_buffer("infors"), make_buffer("infors", seed=5)
    source.extend(make_stream(40))
    if used:
        buffer.extend(make_stream(40, seed=3))
    state = copy.deepcopy(source.state_dict())
    entries = state["_storage"]["_storage"]
    if edit == "schema":
        state["_writer"]["settings"]["item"] = {"feature": "float32[9]"}
    elif edit == "width":
        entries["feature"] = torch.zeros(16, 9)
        state["_writer"]["settings"]["item"] = {}
    else:
        zeros = torch.zeros_like(entries["feature"])
        entries["feature"] = zeros.to("meta") if edit == "meta" else zeros.to_sparse()
    before = complete_state(buffer)
    with pytest.raises(ValueError, match="cannot restore"):
        buffer.load_state_dict(state)
    assert differences(before, complete_state(buffer)) == []
