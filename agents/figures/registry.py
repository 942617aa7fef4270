"""The figures by name: :data:`FIGURES`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.figures.settings import (
    RelearningSettings,
    SweepFigureSettings,
    ToySettings,
    TsneSettings,
)
from agents.settings import Settings

__all__ = ["FIGURES", "FigureEntry"]


@dataclass(frozen=True)
class FigureEntry:
    """A figure that can be drawn by its name.

    Attributes:
        module: that draws it, imported only then.
        summary: one line about it.
        settings: the type of its settings.
        runs: name of the description of its runs, if it is drawn from a sweep.
    """

    module: str
    summary: str
    settings: type[Settings]
    runs: str | None = None

    def make(self, settings: Settings, out: Path) -> list[str]:
        """Draw the figure.

        Args:
            settings: of the type of this figure's.
            out: the file, with a suffix that :mod:`agents.figures.style` knows.

        Returns:
            Lines that say what the figure shows.
        """
        module: Any = importlib.import_module(self.module)
        draw: Callable[..., list[str]] = module.make
        return draw(*([] if self.runs is None else [self.runs]), settings, out)


def _of_a_sweep(
    runs: str, summary: str, module: str = "against"
) -> dict[str, FigureEntry]:
    """A figure that is drawn from the runs of ``sweeps/RUNS.yaml``."""
    entry = FigureEntry(f"agents.figures.{module}", summary, SweepFigureSettings, runs)
    return {runs.replace("_", "-"): entry}


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
    **_of_a_sweep("timing", "Accuracy against the time of the memory's update"),
    **_of_a_sweep("imbalance", "Accuracy against imbalance, all methods"),
    **_of_a_sweep("budget", "Accuracy against the size of the memory"),
    **_of_a_sweep(
        "reservoir", "Reservoir count along a run; class variance", "reservoir"
    ),
    **_of_a_sweep("running_time", "Time of learning and memory", "running_time"),
    **_of_a_sweep("eta_gamma", "Ablation over eta and gamma_i"),
    **_of_a_sweep("alpha_beta", "Ablation over alpha and beta"),
    **_of_a_sweep("criteria", "InfoRS with MIC, IG and ER"),
    **_of_a_sweep("greedy", "InfoGS, InfoGS-RS and InfoRS against imbalance"),
    **_of_a_sweep("evolution", "Accuracies of tasks along one run", "evolution"),
}
