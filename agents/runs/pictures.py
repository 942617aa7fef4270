"""Pictures that go to a folder: :class:`Pictures`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from agents.runs.files import replace_file

__all__ = ["Pictures", "as_bytes"]


def as_bytes(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Images of bytes as they are, others from their least to their largest value.

    Args:
        images: of any shape and type.

    Example:
        >>> as_bytes(np.array([-1.0, 0.0, 1.0])).tolist()
        [0, 128, 255]
    """
    if images.dtype == np.uint8:
        return images
    low, high = images.min(), images.max()
    scaled = 255 * (images - low) / max(high - low, 1e-12)
    return scaled.round().astype(np.uint8)


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
        self.pyplot: Any = plt

    def start(self, **labels: str) -> tuple[Any, Any]:
        """A figure and its axes, with the labels of these."""
        figure, axes = self.pyplot.subplots(figsize=(7, 3.5), layout="constrained")
        axes.set(**labels)
        return figure, axes

    def save(self, figure: Any, name: str) -> None:
        """Write a figure as a PNG file and forget it."""
        with self._replace(name) as file:
            figure.savefig(file, format="png", dpi=120)
        self.pyplot.close(figure)

    def save_image(self, image: NDArray[np.uint8], name: str) -> None:
        """Write an image, shape ``(height, width, 3)``, as a PNG file."""
        with self._replace(name) as file:
            self.pyplot.imsave(file, image, format="png")

    @contextlib.contextmanager
    def _replace(self, name: str) -> Iterator[IO[bytes]]:
        path = self.folder / f"{name}.png"
        with replace_file(path) as file:
            yield file
        self.paths.append(path)
