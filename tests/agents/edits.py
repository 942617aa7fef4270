"""States with one value edited, and what becomes of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Place = tuple[Any, ...]
DELETED = object()


def places(value: Any, without: str, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """All values in a state but for one part, and where they are."""
    if place:
        yield place, value
    if isinstance(value, dict | list):
        for name in value if isinstance(value, dict) else range(len(value)):
            if name != without:
                yield from places(value[name], without, (*place, name))


def edits(place: Place, value: Any) -> Iterator[tuple[str, Any]]:
    """What a value is replaced by; never by the same."""
    if isinstance(place[-1], str):
        yield "deleted", DELETED
    if value is not None:
        yield "None", None
    yield from (
        ("text", "text"),
        ("nan", float("nan")),
        ("negative", -7),
        ("tensor", torch.zeros(2, 3)),
        ("list", [[]]),
    )
    if isinstance(value, list):
        yield "cut short", value[:-1]
        yield "too long", [*value, *value[-1:], 0]
    if isinstance(value, Tensor):
        yield "cut short", value.flatten()[:-1].clone()
        yield "another dtype", value.to(torch.complex64)
        yield "meta", value.to("meta")
    if isinstance(value, int) and not isinstance(value, bool):
        yield from (("less", value - 7), ("more", value + 7))
        if value:
            yield "zero", 0


def edited_states(
    state: Any,
    *,
    without: str = "",
    still_fits: Callable[[Place, str, Any], bool] = lambda *_: False,
) -> Iterator[tuple[tuple[Place, str], Any]]:
    """All states with one edit, and what it was.

    Args:
        state: that is edited.
        without: name of parts that are not.
        still_fits: whether what comes of an edit is the state of such a run, too; told
            the place, the name of the edit and the value that was there.
    """
    for place, value in places(state, without):
        for name, new in edits(place, value):
            if still_fits(place, name, value):
                continue
            changed = copy.deepcopy(state)
            owner = changed
            for part in place[:-1]:
                owner = owner[part]
            if new is DELETED:
                del owner[place[-1]]
            else:
                owner[place[-1]] = new
            yield (place, name), changed


def refused(attempt: Callable[[], Any], *kinds: type[Exception]) -> str | None:
    """The error of an attempt; ``None`` if it has none, or another than expected."""
    try:
        attempt()
    except kinds as error:
        return str(error)
    except Exception:
        return None
    return None
