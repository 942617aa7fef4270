"""Looks after a run on Ray from outside: tells that its learner died, ends its Ray.

A program of its own, ``python ray_watchdog.py MARK``, that imports nothing that takes
time. The driver starts it before Ray, and all processes of a Ray that the driver starts
inherit an environment variable, the mark, that nothing else has; so a cluster that the
driver joins is let alone. Each line of its standard input is what to tell if the driver
ends now, an empty one if there is nothing to tell. Needed because

* Ray ends the process of the learner, without a word, if that asks for an object when
  its node is dead;
* of a Ray whose driver was killed, head and workers end within seconds, but agents wait
  for minutes for a head that does not answer any more. (These are found on Linux only.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator

_LONGEST_SECONDS = 30.0


def find_marked(mark: str) -> Iterator[int]:
    """Processes that were started with an environment variable.

    Args:
        mark: its name.

    Yields:
        Their numbers.
    """
    if not os.path.exists("/proc/self/environ"):
        return
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # of somebody else, or gone
            with open(f"/proc/{name}/environ", "rb") as file:
                is_marked = f"{mark}=".encode() in file.read()
            if is_marked:
                yield int(name)


def end_processes(mark: str) -> None:
    """End all processes that were started with an environment variable.

    Args:
        mark: its name.
    """
    deadline = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < deadline:
        # A process that is just being started does not have the variable yet.
        time.sleep(0.1)
        left = [*find_marked(mark)]
        if not left:
            return
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)


def main(mark: str) -> None:
    """Wait for the driver's end, then tell it and end its Ray."""
    told = ""
    for line in sys.stdin:
        told = line.strip()
    if told:
        print(f"info-replay: error: {told}", file=sys.stderr, flush=True)
    end_processes(mark)


if __name__ == "__main__":
    main(sys.argv[1])
