"""``info-replay show``: print and draw a run's results."""

from __future__ import annotations

import argparse

__all__ = ["DESCRIPTION", "HELP", "add_options", "run"]

HELP = "print and draw a run's results"
DESCRIPTION = """Print the result of a run and draw its pictures (PNG) into its folder:
the accuracy (or return) of every task and what the memory holds along the run, and
images in memory at its end."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("folder", metavar="RUN", help="folder of a finished run")


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from agents.q_learning.show import draw_q_pictures, format_q_result, is_q_learning
    from agents.runs.folder import RunError, RunFolder
    from agents.supervised.show import draw_pictures, format_result

    folder = RunFolder(options.folder)
    q_learning = is_q_learning(folder)
    try:
        with folder.expecting_a_run():
            print((format_q_result if q_learning else format_result)(folder))
            paths = (draw_q_pictures if q_learning else draw_pictures)(folder)
    except OSError as error:
        raise RunError(f"cannot draw into {folder.path} ({error})") from error
    for path in paths:
        print(path)
    return 0
