"""What goes wrong in other processes: :class:`EngineError`."""

from __future__ import annotations

__all__ = ["EngineError", "last_line"]


class EngineError(RuntimeError):
    """Something in another process failed in a way that a new one would not mend."""


def last_line(error: BaseException) -> str:
    """What an error says, without a traceback that Ray puts in front of it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
