"""Where the files of a run go: the options ``--out`` and ``--resume``."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agents.runs.folder import RunFolder

__all__ = ["add_folder_options", "resumed_folder", "tell_folder", "tell_interrupt"]


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


def tell_folder(folder: RunFolder) -> None:
    """Print where a run is, and what has changed since it was started."""
    print(f"run folder: {folder.path}", file=sys.stderr)
    if not folder.is_finished and (changed := folder.changed_versions()):
        print(
            f"warning: {', '.join(changed)}; the run goes on, but what comes out may "
            "differ from that of an uninterrupted one",
            file=sys.stderr,
        )


def tell_interrupt(command: str, moment: str, folder: RunFolder) -> None:
    """Print how a run that a signal ended goes on.

    Args:
        command: that runs it.
        moment: at which it was saved.
        folder: of the run.
    """
    print(
        f"interrupted at {moment}; to go on: info-replay {command} --resume "
        f"{folder.path}",
        file=sys.stderr,
    )
