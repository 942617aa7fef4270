"""What memories hold, as images that a page can embed: :func:`memory_images`."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.report.runs import Run

__all__ = ["memory_images"]

_MOST_ITEMS = 200
_LARGEST_SIDE = 48  # pixels of one image; larger ones are thinned out
_MOST_BYTES = 8_000_000  # of all images; a page should open at once on a phone
_COLUMNS = 20


def memory_images(folder: Path, runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """The images in the memories of runs whose folders were kept.

    The first seed of each method comes first: where there are too many runs for one
    page, all methods have some.

    Args:
        folder: of the sweep.
        runs: of the sweep.

    Returns:
        By key of the run: ``png``, all images as one PNG data URI, ``columns`` and
        ``rows`` of these, ``width`` and ``height`` of one, ``labels`` of each (``None``
        where targets are not classes), ``total`` number of items in the memory.

    Raises:
        CheckpointError: if a memory is damaged.
    """
    found: dict[str, dict[str, Any]] = {}
    size = 0
    for run in sorted(runs, key=lambda run: run.seed):
        if size > _MOST_BYTES:
            break
        if (folder / "runs" / run.key / "memory.pt").exists():
            images = _images_of(folder / "runs" / run.key)
            if images is not None:
                found[run.key] = images
                size += len(images["png"])
    return found


def _images_of(folder: Path) -> dict[str, Any] | None:
    from agents.runs.folder import RunFolder
    from agents.supervised.saved_run import stored_items

    items = stored_items(RunFolder(folder))
    images, targets = items.get("observation"), items.get("target")
    if images is None or targets is None or not len(images):
        return None
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        return None  # vectors
    has_classes = targets.ndim == 1 and not targets.is_floating_point()
    order = np.arange(len(targets))
    if has_classes:
        order = np.argsort(targets.numpy(), kind="stable")
    if len(order) > _MOST_ITEMS:
        places = np.linspace(0, len(order) - 1, _MOST_ITEMS).round().astype(int)
        order = order[places]
    thin = math.ceil(max(images.shape[2:]) / _LARGEST_SIDE)
    shown = _as_bytes(images.numpy()[order][:, :, ::thin, ::thin])
    count, _, height, width = shown.shape
    columns = min(_COLUMNS, count)
    rows = math.ceil(count / columns)
    return {
        "png": _png(_side_by_side(shown, rows, columns)),
        "columns": columns,
        "rows": rows,
        "width": width,
        "height": height,
        "labels": targets.numpy()[order].tolist() if has_classes else None,
        "count": count,
        "total": len(targets),
    }


def _as_bytes(images: NDArray[Any]) -> NDArray[np.uint8]:
    """Images of bytes as they are, others from their least to their largest value."""
    if images.dtype == np.uint8:
        return images
    low, high = images.min(), images.max()
    scaled = 255 * (images - low) / max(high - low, 1e-12)
    return scaled.round().astype(np.uint8)


def _side_by_side(
    images: NDArray[np.uint8], rows: int, columns: int
) -> NDArray[np.uint8]:
    """All images as one, shape ``(height, width, channels)``."""
    count, channels, height, width = images.shape
    grid = np.zeros((rows * columns, channels, height, width), dtype=np.uint8)
    grid[:count] = images
    return (
        grid.reshape(rows, columns, channels, height, width)
        .transpose(0, 3, 1, 4, 2)
        .reshape(rows * height, columns * width, channels)
    )


def _png(image: NDArray[np.uint8]) -> str:
    """A PNG as a data URI."""
    from PIL import Image

    file = io.BytesIO()
    flat = image[:, :, 0] if image.shape[2] == 1 else image
    Image.fromarray(flat).save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
