"""Pictures that go to a folder: :class:`Pictures`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["Pictures"]


class Pictures:
    """Draws into a folder, without a screen.

    Args:
        folder: where the files go.

    Attributes:
        paths: the files so far.
        pyplot: matplotlib's.
    """

    def __init__(self, folder: Path) -> None:
        # matplotlib takes a while to import, and training does not need it.
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt

        self.folder = folder
        self.paths: list[Path] = []
        self.pyplot = plt

    def start(self, **labels: str) -> tuple[Any, Any]:
        """A figure and its axes, with the labels of these."""
        figure, axes = self.pyplot.subplots(figsize=(7, 3.5), layout="constrained")
        axes.set(**labels)
        return figure, axes

    def save(self, figure: Any, name: str) -> None:
        """Write a figure as a PNG file and forget it."""
        path = self.folder / f"{name}.png"
        figure.savefig(path, dpi=120)
        self.pyplot.close(figure)
        self.paths.append(path)
