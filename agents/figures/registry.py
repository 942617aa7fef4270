"""The figures by name: :data:`FIGURES`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.figures.settings import RelearningSettings, ToySettings, TsneSettings
from agents.settings import Settings

__all__ = ["FIGURES", "FigureEntry"]


@dataclass(frozen=True)
class FigureEntry:
    """A figure that can be drawn by its name.

    Attributes:
        module: that draws it, imported only then.
        summary: one line about it.
        settings: the type of its settings.
    """

    module: str
    summary: str
    settings: type[Settings]

    def make(self, settings: Settings, out: Path) -> list[str]:
        """Draw the figure.

        Args:
            settings: of the type of this figure's.
            out: the file, with a suffix that :mod:`agents.figures.style` knows.

        Returns:
            Lines that say what the figure shows.
        """
        module: Any = importlib.import_module(self.module)
        draw: Callable[[Any, Path], list[str]] = module.make
        return draw(settings, out)


FIGURES: dict[str, FigureEntry] = {
    "toy": FigureEntry(
        "agents.figures.toy",
        "Surprise, learnability and MIC of a Gaussian process",
        ToySettings,
    ),
    "relearning": FigureEntry(
        "agents.figures.relearning",
        "Accuracy of a classifier that learned from the memory only",
        RelearningSettings,
    ),
    "tsne": FigureEntry(
        "agents.figures.tsne",
        "Memories of two sizes over a t-SNE of the training data",
        TsneSettings,
    ),
}
