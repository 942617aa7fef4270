"""Names and values of settings, as people write them: :func:`parse_values`."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from agents.supervised.config import ExperimentConfig

__all__ = ["MOST_RUNS", "check_setting", "did_you_mean", "parse_values"]

#: Of a sweep; no setting has more values either.
MOST_RUNS = 100_000
_NAMES = tuple(field.name for field in dataclasses.fields(ExperimentConfig))
_HINTS = typing.get_type_hints(ExperimentConfig)
# Their values are lists with commas themselves.
_WITH_COMMAS = ("class_order", "class_sizes", "image_size", "input_key", "metrics")
_WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The end of a message about a name that is wrong.

    Args:
        name: the wrong one.
        known: the names that there are.

    Example:
        >>> did_you_mean("polcy", ["policy", "seed"]), did_you_mean("x", ["policy"])
        ("; did you mean 'policy'?", '')
    """
    close = difflib.get_close_matches(str(name), [*known], 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_setting(name: object, others: Collection[str] = ()) -> None:
    """Refuse a name that no setting has.

    Args:
        name: of a setting.
        others: what else could have been meant.

    Raises:
        ValueError: with the name that is the nearest, if one is near.
    """
    if name not in _NAMES:
        hint = did_you_mean(name, [*_NAMES, *others])
        hint = hint or ": expected an option of 'info-replay train', with _ for -"
        raise ValueError(f"{name!r:.80} is not a setting{hint}")


def parse_values(name: str, given: Any) -> list[Any]:
    """The values of a setting.

    Args:
        name: of the setting.
        given: one value or a list of them; text is read, ``"none"`` too.

    Returns:
        At least one value, each only once.

    Raises:
        ValueError: naming the setting, if there is none of the name, or it has no value
            or too many.

    Example:
        >>> parse_values("seed", "0-2,7"), parse_values("decay", "none,0.99")
        ([0, 1, 2, 7], [None, 0.99])
    """
    check_setting(name)
    parts: Iterable[Any] = given if isinstance(given, list | tuple) else [given]
    found: dict[Any, None] = {}
    for part in parts:
        for value in _read(name, part):
            found.setdefault(value)
            if len(found) > MOST_RUNS:
                raise _too_many(name, given)
    if not found:
        raise ValueError(f"{name} must have at least one value, got {given!r}")
    return [*found]


def _too_many(name: str, given: Any) -> ValueError:
    return ValueError(f"{name} must have at most {MOST_RUNS} values, got {given!r:.60}")


def _read(name: str, given: Any) -> Iterator[Any]:
    """The values that one piece of text, or anything else, stands for."""
    hint = _HINTS[name]
    kinds = typing.get_args(hint) or (hint,)
    if not isinstance(given, str):
        if isinstance(given, Collection):
            words = f"{_WORDS[kinds[0]]}, or a list of such values"
            raise ValueError(f"{name} must be {words}, got {given!r:.80}")
        yield given
        return
    pieces = [given] if name in _WITH_COMMAS else given.split(",")
    for piece in map(str.strip, pieces):
        if not piece:
            continue
        if str in kinds:
            yield piece
        elif piece.lower() == "none" and type(None) in kinds:
            yield None
        else:
            yield from _numbers(name, piece, kinds[0])


def _numbers(name: str, piece: str, kind: type) -> Iterator[Any]:
    if kind is bool:
        flags = dict.fromkeys(("true", "yes", "on"), True)
        flags |= dict.fromkeys(("false", "no", "off"), False)
        if piece.lower() not in flags:
            raise ValueError(f"{name} must be true or false, got {piece!r}")
        yield flags[piece.lower()]
        return
    ends = [each.strip() for each in piece.split("-")]
    if kind is int and len(ends) == 2 and all(map(str.isdecimal, ends)):
        yield from _range(name, piece, *(_number(name, each, int) for each in ends))
    else:
        yield _number(name, piece, kind)


def _number(name: str, piece: str, kind: type) -> Any:
    try:
        return kind(piece)
    except ValueError:
        raise ValueError(f"{name} must be {_WORDS[kind]}, got {piece!r:.60}") from None


def _range(name: str, piece: str, first: int, last: int) -> range:
    if first > last:
        raise ValueError(f"{name} must go up, got {piece!r:.60}")
    if last - first >= MOST_RUNS:
        raise _too_many(name, piece)
    return range(first, last + 1)
