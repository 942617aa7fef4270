"""Signals that wait for a good moment: :func:`deferred_interrupt`."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["Interrupted", "deferred_interrupt"]

#: Ctrl-C, and what Slurm and Kubernetes send before they kill.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A signal ended a run.

    Args:
        number: of the signal.
        moment: when that was, ``"step 3"``; empty in the middle of a step.
        saved: whether the run was saved then.

    Attributes:
        number: of the signal.
        when: as words to go on with, ``" at step 3"`` or nothing.
    """

    def __init__(self, number: int, moment: str = "", *, saved: bool = False) -> None:
        self.number = number
        self.when = f" at {moment}" if moment else ""
        name = signal.Signals(number).name
        super().__init__(f"{name}{self.when}{', saved' * saved}")


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Callable[[], int]]:
    """Let Ctrl-C and SIGTERM be asked for instead of striking in the middle of a step.

    A second signal strikes at once. Outside the main thread nothing changes.

    Yields:
        A function that tells the number of the signal that came, 0 if none did.
    """
    came: list[int] = []

    def number() -> int:
        return came[0] if came else 0

    if threading.current_thread() is not threading.main_thread():
        yield number
        return

    def note(number: int, frame: FrameType | None) -> None:
        if came:
            raise Interrupted(number)
        came.append(number)

    before = {each: signal.signal(each, note) for each in _SIGNALS}
    try:
        yield number
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
