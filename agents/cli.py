"""The command line, ``info-replay COMMAND``; commands are in ``agents.commands``."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NoReturn

from agents.commands.errors import is_users, missing_extra

__all__ = ["main"]

_COMMANDS = (
    "train",
    "dqn",
    "sweep",
    "tune",
    "report",
    "figure",
    "features",
    "show",
    "list",
)
_DESCRIPTION = """Learn from an online stream with a small memory that chooses what to
keep, and see what came out. Your own data is one line: info-replay train --data
FILE."""


class _Parser(argparse.ArgumentParser):
    """One line for a wrong option; options are never abbreviated."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **options,
        )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; a negative number after an option is its value."""
        given = sys.argv[1:] if args is None else args
        return super().parse_known_args(_join_negative(given), namespace)

    def error(self, message: str) -> NoReturn:
        print(f"info-replay: error: {message}", file=sys.stderr)
        sys.exit(2)


def _join_negative(arguments: Sequence[str]) -> list[str]:
    """Arguments in which ``--gamma -1e-1``, say, is ``--gamma=-1e-1``.

    argparse takes negative numbers with an exponent, and lists of numbers, for options.
    """
    joined: list[str] = []
    for argument in arguments:
        before = joined[-1] if joined else ""
        is_option = before.startswith("--") and "=" not in before and before != "--"
        if is_option and argument.startswith("-") and _are_numbers(argument):
            joined[-1] = f"{before}={argument}"
        else:
            joined.append(argument)
    return joined


def _are_numbers(text: str) -> bool:
    try:
        [*map(float, text.split(","))]
    except ValueError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: of the command line, by default those of the process.

    Returns:
        The exit status: 0 if all went well, 2 after a wrong option, 130 after Ctrl-C,
        143 after SIGTERM.
    """
    options = _make_parser().parse_args(arguments)
    # TorchRL tells of every storage that it makes, on the standard output. It may be
    # loaded already, or reads this when it is.
    logging.getLogger("torchrl").setLevel(logging.WARNING)
    os.environ.setdefault("RL_LOGGING_LEVEL", "WARNING")
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Whoever read our output has seen enough; nor can anything be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("info-replay: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        error = missing_extra(error) or error
        if not is_users(error):
            raise
        print(f"info-replay: error: {error}", file=sys.stderr)
        return 2


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="info-replay", description=_DESCRIPTION)
    parser.add_argument(
        "--version", action="version", version=f"info-replay {version('info-replay')}"
    )
    commands = parser.add_subparsers(
        required=True, metavar="COMMAND", parser_class=_Parser
    )
    for name in _COMMANDS:
        command = importlib.import_module(f"agents.commands.{name}")
        its = commands.add_parser(
            name, help=command.HELP, description=command.DESCRIPTION
        )
        command.add_options(its)
        its.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
