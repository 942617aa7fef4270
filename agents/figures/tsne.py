"""Memories over the training data (Figures "TSNE visualizations", 200 and 25 points).

All panels share one t-SNE of a part of the training features and of all memory points.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.figures.feature_files import Features, read_features
from agents.figures.memories import check_size, select_memory
from agents.figures.settings import (
    METHODS,
    TsneSettings,
    parse_methods,
    parse_numbers,
)
from agents.figures.style import CLASS_COLORS, COLORS, drawing
from agents.runs.folder import RunError

__all__ = ["embed", "make"]

Items = NDArray[np.int64]


def make(settings: TsneSettings, out: Path) -> list[str]:
    """Select the memories, embed and draw.

    Args:
        settings: of the figure.
        out: the file.

    Returns:
        What each memory has of each class, one line per memory.

    Raises:
        RunError: if a size is larger than the stream, or the perplexity is not less
            than the number of points.
        DatasetError: if the features cannot be read.
    """
    features = read_features(settings.features)
    methods = parse_methods(settings.methods)
    sizes = parse_numbers("sizes", settings.sizes)
    count = min(settings.points, len(features.train))
    try:
        check_size(features, max(sizes))
        if settings.perplexity >= count:
            raise ValueError(
                f"perplexity must be less than the number of points, {count}, got "
                f"{settings.perplexity:g}"
            )
    except ValueError as error:
        raise RunError(str(error)) from error
    memories = {
        (size, method): select_memory(features, method, size, settings.seed, settings)
        for size in sizes
        for method in methods
    }
    generator = np.random.default_rng(settings.seed)
    background = generator.choice(len(features.train), count, replace=False)
    items = np.unique(np.concatenate([background, *memories.values()]))
    places = embed(
        features.train[items], perplexity=settings.perplexity, seed=settings.seed
    )
    _draw(out, features, memories, items, places, np.sort(background))
    lines = [f"{'size':>5}  {'method':<28}  items of each class"]
    for (size, method), memory in memories.items():
        counts = np.bincount(
            features.train_labels[memory], minlength=len(features.names)
        )
        lines.append(f"{size:5}  {METHODS[method]:<28}  {' '.join(map(str, counts))}")
    return lines


def embed(
    points: NDArray[np.float32], *, perplexity: float, seed: int
) -> NDArray[np.float32]:
    """Places of points in the plane, by t-SNE from their principal components.

    Args:
        points: shape ``(n, width)``, more points than ``perplexity``.
        perplexity: about how many neighbors count.
        seed: of scikit-learn's.

    Returns:
        Shape ``(n, 2)``.
    """
    from sklearn.manifold import TSNE

    # Features that are only one wide have only one principal component.
    init = "pca" if points.shape[1] > 1 else "random"
    method = TSNE(perplexity=perplexity, init=init, random_state=seed)
    found: NDArray[np.float32] = method.fit_transform(points)
    return found


def _draw(
    out: Path,
    features: Features,
    memories: dict[tuple[int, str], Items],
    items: Items,
    places: NDArray[np.float32],
    background: Items,
) -> None:
    sizes = [*dict.fromkeys(size for size, _ in memories)]
    methods = [*dict.fromkeys(method for _, method in memories)]
    shape = len(sizes), len(methods)
    inches = 3.0 * shape[1], 3.1 * shape[0] + 0.3
    labels = features.train_labels
    shown = places[np.searchsorted(items, background)]
    with drawing(out, *shape, inches) as (figure, axes):
        for row, size in enumerate(sizes):
            for column, method in enumerate(methods):
                axis = axes[row, column]
                axis.set_title(f"{METHODS[method]}, {size} points")
                _draw_classes(axis, shown, labels[background], features.names)
                memory = memories[size, method]
                there = places[np.searchsorted(items, memory)]
                _draw_digits(axis, there, labels[memory], features.names)
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set_visible(False)
        handles, names = axes[0, 0].get_legend_handles_labels()
        legend = figure.legend(
            handles,
            names,
            loc="outside lower center",
            ncols=min(len(names), 10),
            markerscale=4,
            handletextpad=0.1,
            columnspacing=1.2,
        )
        for handle in legend.legend_handles:
            handle.set_alpha(1)


def _draw_classes(
    axis: Any, places: NDArray[np.float32], labels: Items, names: list[int]
) -> None:
    """The training data, one color per class."""
    for number, name in enumerate(names):
        own = places[labels == number]
        axis.scatter(
            *own.T,
            s=3,
            color=CLASS_COLORS[number % len(CLASS_COLORS)],
            alpha=0.5,
            linewidths=0,
            label=str(name),
            rasterized=True,  # thousands of dots make a slow PDF
        )


def _draw_digits(
    axis: Any, places: NDArray[np.float32], labels: Items, names: list[int]
) -> None:
    """The memory points, each as the label of its class."""
    from matplotlib.patheffects import withStroke

    for place, label in zip(places, labels, strict=True):
        axis.text(
            *place,
            str(names[label]),
            color=COLORS["black"],
            ha="center",
            va="center",
            path_effects=[withStroke(linewidth=1.5, foreground="white")],
        )
