"""``info-replay show``: print and draw a run's results, or compare several."""

from __future__ import annotations

import argparse

__all__ = ["DESCRIPTION", "HELP", "add_options", "run"]

HELP = "print and draw a run's results, or compare runs and sweeps"
DESCRIPTION = """Print the result of a run and draw its pictures (PNG) into its folder:
the accuracy (or return) of every task and what the memory holds along the run, and
images in memory at its end. Of several runs, or of sweeps, print tables of means and
standard errors over seeds, with the paper's numbers where there are some."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "folders",
        metavar="FOLDER",
        nargs="+",
        help="of finished runs or of sweeps",
    )
    parser.add_argument(
        "--transfers",
        action="store_true",
        help="compare backward and forward transfer, too",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    from agents.report.comparison import compare
    from agents.report.places import check_place, is_sweep

    folders = options.folders
    if len(folders) > 1 or is_sweep(folders[0]) or options.transfers:
        more = ["backward_transfer", "forward_transfer"] if options.transfers else []
        print(compare(folders, ["average", *more]))
        return 0
    check_place(folders[0])
    return _show_run(folders[0])


def _show_run(path: str) -> int:
    from agents.q_learning.show import draw_q_pictures, format_q_result, is_q_learning
    from agents.runs.folder import RunError, RunFolder
    from agents.supervised.show import draw_pictures, format_result

    folder = RunFolder(path)
    q_learning = is_q_learning(folder)
    try:
        with folder.expecting_a_run():
            print((format_q_result if q_learning else format_result)(folder))
            paths = (draw_q_pictures if q_learning else draw_pictures)(folder)
    except OSError as error:
        raise RunError(f"cannot draw into {folder.path} ({error})") from error
    for each in paths:
        print(each)
    return 0
