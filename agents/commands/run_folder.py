"""What ``train`` and ``dqn`` share: ``--out``, ``--resume``, and a run in a folder."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agents.commands.errors import WrongOption

if TYPE_CHECKING:
    from agents.runs.folder import RunFolder

__all__ = ["add_folder_options", "resumed_folder", "run_in_folder"]


def add_folder_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--out`` and ``--resume``."""
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="of the run (default: runs/ and a name made of the settings)",
    )
    parser.add_argument(
        "--resume",
        nargs="?",
        const="",
        metavar="FOLDER",
        help="continue the run in the folder, with its settings",
    )


def resumed_folder(options: argparse.Namespace) -> RunFolder | None:
    """The folder of the run to continue, if one was named.

    Raises:
        ValueError: if two were.
    """
    from agents.runs.folder import RunFolder

    if options.resume is None:
        return None
    given = [path for path in (options.resume, options.out) if path]
    if len({os.path.abspath(path) for path in given}) > 1:
        raise ValueError(
            f"--resume and --out must be the same folder, got {' and '.join(given)}"
        )
    return RunFolder(given[0]) if given else None


def run_in_folder(
    command: str,
    make: Callable[[], Any],
    run: Callable[[Any, Any], object],
    show: Callable[[RunFolder], str],
) -> int:
    """Make a run, go on to its end, and print what came out.

    Args:
        command: of ``info-replay`` that does it.
        make: makes the run, with its folder.
        run: goes on to the end, and shows the progress with ``tqdm``.
        show: the result of the run in a folder, as text.

    Returns:
        The exit status: 0, or more after a signal.

    Raises:
        WrongOption: if the run cannot be made.
    """
    from tqdm import tqdm  # before there is a folder: it may not be installed

    from agents.runs.interrupts import Interrupted

    try:
        made = make()
    except (ValueError, TypeError, OSError) as error:
        raise WrongOption(str(error)) from error
    folder: RunFolder = made.folder
    _tell_folder(folder)
    try:
        run(made, tqdm)
    except Interrupted as interrupt:
        print(
            f"interrupted{interrupt.when}; to go on: {folder.how_to_resume(command)}",
            file=sys.stderr,
        )
        return 128 + interrupt.number
    with folder.expecting_a_run():
        print(show(folder))
    return 0


def _tell_folder(folder: RunFolder) -> None:
    """Print where a run is, and what has changed since it was started."""
    print(f"run folder: {folder.path}", file=sys.stderr)
    if not folder.is_finished and (changed := folder.changed_versions()):
        print(
            f"warning: {', '.join(changed)}; the run goes on, but what comes out may "
            "differ from that of an uninterrupted one",
            file=sys.stderr,
        )
