"""All items that a memory held along a run, as one image: :func:`make_sheet`."""

from __future__ import annotations

import base64
import hashlib
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.runs.pictures import as_bytes

__all__ = ["Snapshots", "make_sheet"]

#: By step: ``observation`` and ``target`` of the items in memory.
Snapshots = Mapping[int, Mapping[str, NDArray[Any]]]

_LARGEST_SIDE = 48  # pixels of one image; larger ones are thinned out
_COLUMNS = 20


def make_sheet(
    snapshots: Snapshots, most_snapshots: int = 8, most_items: int = 200
) -> dict[str, Any] | None:
    """Snapshots of a memory as one image that has each item once.

    Items stay in memory from one snapshot to the next, so that one image of all is much
    smaller than one for each snapshot.

    Args:
        snapshots: of one run, in order.
        most_snapshots: to show, evenly chosen; the last is always there.
        most_items: to show of a snapshot, evenly over the classes. An item that is
            shown stays while it is in memory, as far as possible.

    Returns:
        ``sheet``, all items as one data URI, ``columns`` and ``rows`` of these,
        ``width`` and ``height`` of one, ``labels`` of each (``None`` where targets are
        not classes), and ``snapshots``: the ``step``, the ``items`` that are shown
        (numbers in the sheet, sorted by class), those of them that are ``new`` since
        the snapshot before, and the ``total`` number of items in memory. ``None`` if
        items are not images.
    """
    steps = [step for step, items in snapshots.items() if _are_images(items)]
    if not steps:
        return None
    chosen = [steps[place] for place in _evenly(len(steps), most_snapshots)]
    images, targets, numbers = _distinct([snapshots[step] for step in chosen])
    has_classes = targets.ndim == 1 and targets.dtype.kind in "iub"
    labels = targets if has_classes else np.zeros(len(targets), dtype=int)
    # Always the same order of preference, so that the same items are shown again.
    preference = np.random.default_rng(0).permutation(len(labels))
    shown = [_thinned(each, labels, preference, most_items) for each in numbers]
    used = np.unique(np.concatenate(shown))
    # Nothing is known before the first snapshot: none of it is told as new.
    before = [numbers[0], *numbers[:-1]]
    return {
        **_drawn(images[used]),
        "labels": labels[used].tolist() if has_classes else None,
        "snapshots": [
            {
                "step": step,
                "items": np.searchsorted(used, shown[n]).tolist(),
                "new": np.searchsorted(
                    used, np.setdiff1d(shown[n], before[n])
                ).tolist(),
                "total": len(numbers[n]),
            }
            for n, step in enumerate(chosen)
        ],
    }


def _are_images(items: Mapping[str, NDArray[Any]]) -> bool:
    images = items["observation"]
    return images.ndim == 4 and images.shape[1] in (1, 3) and len(images) > 0


def _evenly(count: int, most: int) -> NDArray[np.int_]:
    """At most so many places, the first and the last among them; of one, the last."""
    if most == 1:
        return np.array([count - 1])
    return np.linspace(0, count - 1, min(count, most)).round().astype(int)


def _distinct(
    snapshots: Sequence[Mapping[str, NDArray[Any]]],
) -> tuple[NDArray[Any], NDArray[Any], list[NDArray[np.int_]]]:
    """Images and targets of all items, each once, and their numbers by snapshot."""
    known: dict[bytes, int] = {}
    images, targets, numbers = [], [], []
    for items in snapshots:
        of_snapshot = []
        for image, target in zip(items["observation"], items["target"], strict=True):
            # Large images are not kept a second time as keys.
            content = hashlib.blake2b(image.tobytes() + target.tobytes()).digest()
            if content not in known:
                known[content] = len(known)
                images.append(image)
                targets.append(target)
            of_snapshot.append(known[content])
        numbers.append(np.array(of_snapshot))
    return np.stack(images), np.stack(targets), numbers


def _thinned(
    numbers: NDArray[np.int_],
    labels: NDArray[Any],
    preference: NDArray[np.int_],
    most: int,
) -> NDArray[np.int_]:
    """Items sorted by class, and by when they came; at most so many.

    Each class keeps its share.
    """
    by_preference = numbers[np.lexsort((preference[numbers], labels[numbers]))]
    sorted_labels = labels[by_preference]
    shares = Counter(sorted_labels[_evenly(len(numbers), most)].tolist())
    kept = np.concatenate(
        [by_preference[sorted_labels == label][:n] for label, n in shares.items()]
    )
    return kept[np.lexsort((kept, labels[kept]))]


def _drawn(images: NDArray[Any]) -> dict[str, Any]:
    thin = math.ceil(max(images.shape[2:]) / _LARGEST_SIDE)
    tiles = as_bytes(images[:, :, ::thin, ::thin])
    count, _, height, width = tiles.shape
    columns = min(_COLUMNS, count)
    rows = math.ceil(count / columns)
    return {
        "sheet": _data_uri(_side_by_side(tiles, rows, columns)),
        "columns": columns,
        "rows": rows,
        "width": width,
        "height": height,
    }


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


def _data_uri(image: NDArray[np.uint8]) -> str:
    """A PNG without colors; with colors a JPEG, which is six times smaller then."""
    from PIL import Image

    file = io.BytesIO()
    if image.shape[2] == 1:
        kind = "png"
        Image.fromarray(image[:, :, 0]).save(file, "PNG", optimize=True)
    else:
        kind = "jpeg"
        # Full resolution of colors: they would run from one item into the next.
        Image.fromarray(image).save(file, "JPEG", quality=75, subsampling=0)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
