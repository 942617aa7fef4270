"""What goes wrong in other processes: :class:`EngineError`."""

__all__ = ["EngineError"]


class EngineError(RuntimeError):
    """Something in another process failed in a way that a new one would not mend."""
