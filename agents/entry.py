"""Where the command ``info-replay`` begins: :func:`main`."""

from __future__ import annotations

import contextlib
import os
import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line; Ctrl-C while it is still being loaded gets one line, too.

    Policies and criteria of the user's are found in the current folder, after
    everything that is installed.

    Returns:
        The exit status, as of :func:`agents.cli.main`.
    """
    with contextlib.suppress(OSError):  # the current folder may be gone
        sys.path.append(os.getcwd())
    try:
        # This takes seconds, in which a user may think better of it.
        from agents.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("info-replay: interrupted", file=sys.stderr)
        return 130
