"""Looks after a run on Ray from outside: tells that its learner died, ends its Ray.

A program of its own, ``python ray_watchdog.py DRIVER [SESSION_FOLDER]``, that imports
nothing that takes time. Each line of its standard input is what to tell if the driver
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


def find_processes(session: str) -> Iterator[int]:
    """Processes that write to files in the folder of a Ray: all of its logs are there.

    Args:
        session: the folder.

    Yields:
        Their numbers.
    """
    if not os.path.exists("/proc/self/fd"):
        return
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # of somebody else, or gone
            files = os.listdir(f"/proc/{name}/fd")
            if any(_writes(name, each, session) for each in files):
                yield int(name)


def _writes(process: str, descriptor: str, session: str) -> bool:
    """Whether an open file is in a folder, and open for more than reading."""
    if not os.readlink(f"/proc/{process}/fd/{descriptor}").startswith(f"{session}/"):
        return False
    with open(f"/proc/{process}/fdinfo/{descriptor}") as file:
        flags = dict(line.split(":", 1) for line in file if ":" in line)["flags"]
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def end_processes(session: str, driver: int) -> None:
    """End all processes of a Ray.

    Args:
        session: its folder.
        driver: the process that started it, which is let alone if it goes on.
    """
    deadline = time.monotonic() + _LONGEST_SECONDS
    while time.monotonic() < deadline:
        left = {*find_processes(session)} - {driver}
        if not left:
            return
        for process in left:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.1)


def main(driver: str, session: str | None = None) -> None:
    """Wait for the driver's end, then tell it and end its Ray."""
    told = ""
    for line in sys.stdin:
        told = line.strip()
    if told:
        print(f"info-replay: error: {told}", file=sys.stderr, flush=True)
    if session is not None:
        end_processes(os.path.realpath(session), int(driver))


if __name__ == "__main__":
    main(*sys.argv[1:])
