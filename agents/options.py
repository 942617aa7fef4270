"""Options and help of the command line, made from typed settings and registries."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from agents.settings import Settings

if TYPE_CHECKING:
    from info_replay.registry import Registry

__all__ = [
    "add_settings",
    "add_values",
    "chosen_settings",
    "first_lines",
    "format_lists",
]

_WIDTH = 80
_METAVARS = {int: "N", float: "X", str: "NAME"}
_WORDS = {int: "a whole number", float: "a number"}


def add_settings(parser: argparse.ArgumentParser, settings: type[Settings]) -> None:
    """Add an option for every field of the settings, in the groups of the fields.

    Args:
        parser: of the command.
        settings: whose fields have a line of help each.
    """
    hints = typing.get_type_hints(settings)
    groups: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        group = field.metadata["group"]
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        text = field.metadata["help"]
        if field.default is not None:
            text = f"{text} ({field.default})"
        kind, optional = hints[field.name], False
        if isinstance(kind, types.UnionType):  # with None
            kind, optional = typing.get_args(kind)[0], True
        reader = _reader(kind, optional=optional)
        how: dict[str, Any] = {"type": reader, "metavar": _METAVARS.get(kind)}
        if kind is bool:
            how = {"action": argparse.BooleanOptionalAction}
        # Unless given, it is not in the namespace at all.
        groups[group].add_argument(
            f"--{field.name.replace('_', '-')}",
            default=argparse.SUPPRESS,
            help=text.replace("%", "%%"),
            **how,
        )


def add_values(
    group: argparse._ArgumentGroup,
    settings: type[Settings],
    *,
    metavar: str,
    without: Collection[str] = (),
) -> None:
    """Add an option of text for fields of the settings, which is read later.

    The option of a field that is true or false needs no text: without it is true.

    Args:
        group: of options of a command.
        settings: whose fields have a line of help each.
        metavar: what the help calls the text.
        without: fields that are no options here.
    """
    hints = typing.get_type_hints(settings)
    for field in dataclasses.fields(settings):
        if field.name not in without:
            kind = hints[field.name]
            if isinstance(kind, types.UnionType):  # with None
                kind = typing.get_args(kind)[0]
            how: dict[str, Any] = {}
            if kind is bool:
                how = {"nargs": "?", "const": "true"}
            group.add_argument(
                f"--{field.name.replace('_', '-')}",
                default=argparse.SUPPRESS,
                metavar=metavar,
                help=field.metadata["help"].replace("%", "%%"),
                **how,
            )


def _reader(kind: type, *, optional: bool) -> Callable[[str], Any]:
    """Reads a value from the command line; says what was expected of a wrong one.

    A number that may be missing can be ``none``, where a preset has one.
    """

    def read(text: str) -> Any:
        if optional and kind is not str and text.lower() == "none":
            return None
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"must be {_WORDS[kind]}, got {text!r}"
            ) from None

    return read


def chosen_settings(
    options: argparse.Namespace, settings: type[Settings]
) -> dict[str, Any]:
    """The settings that were given on the command line.

    Args:
        options: that were parsed.
        settings: that were added by :func:`add_settings`.
    """
    names = {field.name for field in dataclasses.fields(settings)}
    return {name: value for name, value in vars(options).items() if name in names}


def first_lines(registry: Registry[Any] | Mapping[str, Any]) -> dict[str, str]:
    """The first line of each entry's documentation, by its name.

    Args:
        registry: of policies, say.

    Example:
        >>> from info_replay.registry import POLICIES
        >>> print(first_lines(POLICIES)["rs"])
        Keeps a uniform sample of the stream (Appendix, Alg. "Reservoir Sampling").
    """
    found = {}
    for name in registry:
        entry: Any = registry.get(name)
        given = ""
        if isinstance(entry, functools.partial):
            given = "".join(f" {key}={value}." for key, value in entry.keywords.items())
            entry = entry.func
        found[name] = (inspect.getdoc(entry) or "").partition("\n")[0] + given
    return found


def format_lists(lists: dict[str, dict[str, str]]) -> str:
    """Lists of what can be chosen, for the end of a help text.

    Args:
        lists: names and what they mean, by the title of the list.

    Example:
        >>> print(format_lists({"colors": {"red": "like fire", "blue": "like water"}}))
        colors:
          red   like fire
          blue  like water
    """
    lines = []
    for title, entries in lists.items():
        lines.append(f"{title}:")
        width = max(map(len, entries)) + 2
        for name, text in entries.items():
            lines += textwrap.wrap(
                f"{name:<{width}}{text}",
                _WIDTH,
                initial_indent="  ",
                subsequent_indent=" " * (width + 2),
            )
        lines.append("")
    return "\n".join(lines[:-1])
