"""Where the command ``info-replay`` begins: :func:`main`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line; Ctrl-C while it is still being loaded is no error, either.

    Returns:
        The exit status, as of :func:`agents.cli.main`.
    """
    try:
        # This takes seconds, in which a user may think better of it.
        from agents.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("info-replay: interrupted", file=sys.stderr)
        return 130
