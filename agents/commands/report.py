"""``info-replay report``: a sweep as one HTML page."""

from __future__ import annotations

import argparse

__all__ = ["DESCRIPTION", "HELP", "add_options", "run"]

HELP = "show a sweep as one HTML page"
DESCRIPTION = """Write one HTML page about a sweep, which needs no network: tables with
the paper's numbers beside ours, plots along the stream and against the imbalance, what
the memories hold, times, settings, and the command of each run. Images of the memories
need a sweep with --keep, and curves along the stream one with --evaluations."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("folder", metavar="FOLDER", help="folder of a sweep")
    parser.add_argument(
        "--out", metavar="FILE", help="the page (default: FOLDER/report.html)"
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from agents.report.page import write_report

    print(write_report(options.folder, options.out))
    return 0
