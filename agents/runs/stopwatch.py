"""Where the time of a run goes: :class:`Stopwatch`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

__all__ = ["Stopwatch"]


@dataclass
class Stopwatch:
    """Seconds spent in each part of the work.

    Attributes:
        seconds: by name of the part.
    """

    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, part: str, start: float) -> None:
        """Add the time since a moment of ``time.perf_counter``.

        On CUDA, where work goes on in the background, parts that wait for nothing look
        shorter than they are.
        """
        spent = time.perf_counter() - start
        self.seconds[part] = self.seconds.get(part, 0.0) + spent
