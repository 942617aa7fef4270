"""Training that cannot go on: :class:`DivergenceError`."""

from __future__ import annotations

__all__ = ["DivergenceError"]


class DivergenceError(RuntimeError):
    """The network's numbers have grown beyond what can be computed with.

    Args:
        reason: how that shows.
        settings: of which smaller values may help.
    """

    def __init__(
        self, reason: object, settings: str = "learning_rate, alpha or beta"
    ) -> None:
        super().__init__(
            f"learning has diverged: {reason}. A smaller {settings} may help"
        )
