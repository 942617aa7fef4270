"""``info-replay figure``: a figure of the paper."""

from __future__ import annotations

import argparse

from agents.commands.errors import WrongOption
from agents.figures.registry import FIGURES
from agents.options import add_settings, chosen_settings, format_lists

__all__ = ["DESCRIPTION", "HELP", "add_options", "run"]

HELP = "draw a figure of the paper"
DESCRIPTION = """Draw a figure of the paper, as a PNG or PDF file. Without a name, list
what there is. 'info-replay figure NAME --help' has the options of a figure."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    figures = parser.add_subparsers(metavar="NAME", dest="figure")
    for name, entry in FIGURES.items():
        its = figures.add_parser(
            name, help=entry.summary, description=f"{entry.summary}."
        )
        its.add_argument(
            "--out",
            default=f"figures/{name}.png",
            metavar="FILE",
            help=f"the picture, .png or .pdf (figures/{name}.png)",
        )
        add_settings(its, entry.settings)


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.figure is None:
        print(
            format_lists(
                {"figures": {name: each.summary for name, each in FIGURES.items()}}
            )
        )
        return 0
    entry = FIGURES[options.figure]
    try:
        settings = entry.settings(**chosen_settings(options, entry.settings))
    except ValueError as error:
        raise WrongOption(str(error)) from error
    from agents.figures.style import check_out

    out = check_out(options.out)
    for line in entry.make(settings, out):
        print(line)
    print(out)
    return 0
