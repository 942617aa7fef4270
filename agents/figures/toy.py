"""The toy problem (Figure "Visualization of the toy problem").

A Gaussian process has ten points in its memory. Two new points are both outside of its
95 % interval, but only one of them can be learned.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from agents.figures.settings import ToySettings
from agents.figures.style import COLORS, drawing
from info_replay.model.criteria import MIC, learnability, surprise

__all__ = [
    "NEW_POINTS",
    "NOISE_VARIANCE",
    "Scores",
    "kernel",
    "make",
    "predict",
    "sample_memory",
    "score",
]

Array = NDArray[np.float64]

#: Appendix "Experimental Details": the variance of the noise and the new points.
NOISE_VARIANCE = 0.04
NEW_POINTS = ((0.0, 1.0), (1.5, 1.0))

_ETAS = (0.0, 1.0, 3.0)  # of the paper's grids
_GRID = (-2.5, 2.5, 501)
_TWO_SIDED_95 = 1.96


class Scores(NamedTuple):
    """What the memory learns from points, one number per point.

    Attributes:
        surprise: before the point is memorized.
        learnability: after it is.
        mic: the criterion for each ``eta`` that was asked for, shape ``(etas, n)``.
    """

    surprise: Array
    learnability: Array
    mic: Array


def kernel(first: Array, second: Array) -> Array:
    """The covariance ``exp(-2 (x - x')^2)`` of the paper.

    Args:
        first: inputs, shape ``(n,)``.
        second: inputs, shape ``(m,)``.

    Returns:
        Shape ``(n, m)``.

    Example:
        >>> kernel(np.array([0.0]), np.array([0.0, 1.0])).round(3)
        array([[1.   , 0.135]])
    """
    return np.exp(-2 * (first[:, None] - second) ** 2)


def sample_memory(seed: int) -> tuple[Array, Array]:
    """The memory: ten inputs, and noisy values of a function drawn from the process.

    Args:
        seed: of the values.

    Example:
        >>> x, y = sample_memory(0)
        >>> x.shape, y.shape
        ((10,), (10,))
    """
    x = np.linspace(-1, 1, 10)
    covariance = kernel(x, x) + NOISE_VARIANCE * np.eye(len(x))
    normals = np.random.default_rng(seed).standard_normal(len(x))
    return x, np.linalg.cholesky(covariance) @ normals


def predict(x: Array, y: Array, at: Array) -> tuple[Array, Array]:
    """Predictive mean and variance of observations, noise included.

    Args:
        x: inputs of the memory, shape ``(n,)``.
        y: its values, shape ``(n,)``.
        at: where to predict, shape ``(m,)``.

    Returns:
        Mean and variance, each of shape ``(m,)``.
    """
    covariance = kernel(x, x) + NOISE_VARIANCE * np.eye(len(x))
    across = kernel(x, at)
    weights = np.linalg.solve(covariance, across)
    variance = 1 + NOISE_VARIANCE - (across * weights).sum(0)
    return weights.T @ y, variance


def score(
    x: Array, y: Array, new_x: Array, new_y: Array, etas: tuple[float, ...] = (1.0,)
) -> Scores:
    """Scores of new points, each as if it were the only one.

    Args:
        x: inputs of the memory.
        y: its values.
        new_x: inputs of the new points, shape ``(m,)``.
        new_y: their values, shape ``(m,)``.
        etas: weights of the learnability in the criterion.

    Example:
        >>> x, y = sample_memory(0)
        >>> found = score(x, y, *np.array(NEW_POINTS).T)
        >>> bool(found.learnability[0] < found.learnability[1])
        True
    """
    noise = math.sqrt(NOISE_VARIANCE)
    mean, variance = predict(x, y, new_x)
    leverage = variance / NOISE_VARIANCE - 1
    error = (new_y - mean) ** 2
    tensors = [torch.from_numpy(each) for each in (new_y, mean, variance)]
    mic = [MIC(eta).from_prediction(*tensors, noise=noise).numpy() for eta in etas]
    return Scores(
        surprise(leverage, error, noise=noise),
        learnability(leverage, error, noise=noise),
        np.stack(mic),
    )


def make(settings: ToySettings, out: Path) -> list[str]:
    """Draw the figure.

    Args:
        settings: of the figure.
        out: the file.

    Returns:
        The scores of the two new points, as lines of a table.
    """
    x, y = sample_memory(settings.seed)
    grid = np.linspace(*_GRID)
    with drawing(out, 2, 2, (7.5, 5.4), sharex=True) as (figure, axes):
        for axis, point, side in zip(
            axes[0], NEW_POINTS, ("Left", "Right"), strict=True
        ):
            _draw_process(axis, x, y, grid, point)
            axis.set_title(f"{side} point ({point[0]:g}, {point[1]:g})")
        axes[0, 0].sharey(axes[0, 1])
        axes[0, 0].set_ylabel("y")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper center", ncols=4, columnspacing=1.2
        )
        _draw_scores(axes[1], x, y, grid)
    return _table(x, y)


def _draw_process(
    axis: Any, x: Array, y: Array, grid: Array, point: tuple[float, float]
) -> None:
    """The predictions with and without a new point."""
    more_x, more_y = np.append(x, point[0]), np.append(y, point[1])
    for known_x, known_y, color, label in (
        (x, y, COLORS["green"], "given the memory"),
        (more_x, more_y, COLORS["blue"], "given both"),
    ):
        mean, variance = predict(known_x, known_y, grid)
        spread = _TWO_SIDED_95 * np.sqrt(variance)
        axis.fill_between(
            grid, mean - spread, mean + spread, color=color, alpha=0.18, linewidth=0
        )
        axis.plot(grid, mean, color=color, label=f"{label} (mean, 95 %)")
    axis.plot(x, y, "o", color=COLORS["black"], markersize=4, label="memory")
    axis.plot(*point, "*", color=COLORS["vermillion"], markersize=12, label="new point")


def _draw_scores(axes: Any, x: Array, y: Array, grid: Array) -> None:
    """Scores of a new point over its input; its value is that of the two points."""
    value = NEW_POINTS[0][1]
    scores = score(x, y, grid, np.full_like(grid, value), _ETAS)
    left, right = axes
    left.plot(grid, scores.surprise, color=COLORS["vermillion"], label="surprise")
    left.plot(
        grid, scores.learnability, color=COLORS["blue"], ls="--", label="learnability"
    )
    styles = zip(_ETAS, scores.mic, ("-", "--", ":"), strict=True)
    colors = (COLORS["vermillion"], COLORS["purple"], COLORS["black"])
    for (eta, mic, line), color in zip(styles, colors, strict=True):
        right.plot(grid, mic, line, color=color, label=rf"MIC, $\eta$ = {eta:g}")
    left.set_ylabel("nats")
    for axis in axes:
        for place, _ in NEW_POINTS:
            axis.axvline(place, color=COLORS["gray"], linewidth=0.8, zorder=0)
        axis.set_xlabel(f"x of a new point (x, {value:g})")
        # Above the axes: curves are everywhere in them.
        axis.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, columnspacing=1
        )


def _table(x: Array, y: Array) -> list[str]:
    places, values = np.array(NEW_POINTS).T
    scores = score(x, y, places, values, _ETAS)
    names = ["point", "surprise", "learnability", *(f"MIC eta={e:g}" for e in _ETAS)]
    lines = ["".join(f"{name:>14}" for name in names)]
    columns = np.column_stack([scores.surprise, scores.learnability, scores.mic.T])
    for (place, value), numbers in zip(NEW_POINTS, columns, strict=True):
        point = f"({place:g}, {value:g})"
        lines.append(f"{point:>14}" + "".join(f"{each:14.3f}" for each in numbers))
    return lines
