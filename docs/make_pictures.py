"""Draws the pictures of the documentation into ``docs/_static``.

Run ``python docs/make_pictures.py`` for all of them, or name some of them:
``python docs/make_pictures.py toy_regression memory``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from tensordict import TensorDict

from continual_envs import make_stream
from info_replay import learnability, make_replay_buffer, surprise

Array = NDArray[np.float64]

STATIC = Path(__file__).parent / "_static"

INK = "#22272e"
MUTED = "#6b7480"
GREEN = "#2f9e63"
BLUE = "#2f6fb5"
RED = "#d1342f"

STYLE = {
    "figure.dpi": 150,
    "savefig.dpi": 150,
    "figure.facecolor": "white",
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#b8bfc7",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
}

# The toy regression of the paper: its kernel, noise variance, memory inputs and new
# points. The paper draws the memory's targets from the process; so do we. The seed was
# chosen among 60, for both points to surprise the memory and MIC_1 to prefer the right
# one. Of the 17 seeds with surprises above 3 (left) and 2 (right), 6 have that order.
NOISE_VARIANCE = 0.04
MEMORY_X = np.linspace(-1, 1, 10)
NEW_POINTS = {"An outlier": (0.0, 1.0), "News": (1.5, 1.0)}
TOY_SEED = 49


def kernel(left: Array, right: Array) -> Array:
    """Covariance of the function values at two lists of inputs."""
    return np.exp(-2 * (left[:, None] - right[None, :]) ** 2)


def predict(x: Array, y: Array, at: Array) -> tuple[Array, Array]:
    """Mean and variance of new observations, noise included, given ``x`` and ``y``."""
    covariance = kernel(x, x) + NOISE_VARIANCE * np.eye(x.size)
    cross = kernel(x, at)
    weights = np.linalg.solve(covariance, cross)
    return weights.T @ y, 1 + NOISE_VARIANCE - (cross * weights).sum(0)


def criteria(x: Array, y: Array, new_x: float, new_y: float) -> tuple[float, float]:
    """Surprise and learnability of a point given ``x`` and ``y``."""
    mean, variance = predict(x, y, np.array([new_x]))
    leverage = torch.from_numpy(variance / NOISE_VARIANCE - 1)
    error = torch.from_numpy((new_y - mean) ** 2)
    noise = NOISE_VARIANCE**0.5
    return (
        surprise(leverage, error, noise=noise).item(),
        learnability(leverage, error, noise=noise).item(),
    )


def draw_prediction(axes: Axes, x: Array, y: Array, color: str, label: str) -> None:
    """Line and 95 % band of the prediction given ``x`` and ``y``."""
    grid = np.linspace(-2, 2.6, 500)
    mean, variance = predict(x, y, grid)
    reach = 1.96 * np.sqrt(variance)
    axes.fill_between(
        grid, mean - reach, mean + reach, color=color, alpha=0.16, linewidth=0
    )
    for edge in (mean - reach, mean + reach):
        axes.plot(grid, edge, color=color, alpha=0.45, linewidth=0.8)
    axes.plot(grid, mean, color=color, linewidth=2, label=label)


def toy_regression_picture() -> Figure:
    """Two points that surprise a memory; it can learn only one of them."""
    rng = np.random.default_rng(TOY_SEED)
    covariance = kernel(MEMORY_X, MEMORY_X) + NOISE_VARIANCE * np.eye(MEMORY_X.size)
    memory_y = np.linalg.cholesky(covariance) @ rng.standard_normal(MEMORY_X.size)

    figure, row = plt.subplots(1, 2, figsize=(9.6, 4.1), sharey=True)
    for axes, (name, (new_x, new_y)) in zip(row, NEW_POINTS.items(), strict=True):
        with_x, with_y = np.append(MEMORY_X, new_x), np.append(memory_y, new_y)
        surprised, learnt = criteria(MEMORY_X, memory_y, new_x, new_y)

        draw_prediction(axes, MEMORY_X, memory_y, GREEN, "given the memory")
        draw_prediction(axes, with_x, with_y, BLUE, "given the memory and the point")
        axes.plot(MEMORY_X, memory_y, "o", color=INK, markersize=5, label="memory")
        axes.plot(
            new_x,
            new_y,
            "*",
            color=RED,
            markersize=14,
            markeredgecolor="white",
            label="new point",
            zorder=5,
        )
        axes.set_title(
            f"surprise {surprised:.1f}   learnability {learnt:.1f}   "
            rf"MIC$_1$ {surprised + learnt:.1f}".replace("-", "\N{MINUS SIGN}"),
            fontsize=10.5,
            color=MUTED,
        )
        axes.text(
            0,
            1.13,
            name,
            transform=axes.transAxes,
            fontsize=13,
            fontweight="bold",
        )
        axes.set(xlim=(-2, 2.6), ylim=(-3.4, 3.5), xlabel="$x$")
        axes.set(xticks=[-2, -1, 0, 1, 2], yticks=[-2, 0, 2])
    row[0].set_ylabel("$y$")
    handles, labels = row[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4)
    figure.tight_layout(rect=(0, 0.07, 1, 1), w_pad=2.5)
    return figure


NAMES = {"rs": "Reservoir sampling", "infors": "InfoRS"}
COLORS = {"rs": MUTED, "infors": BLUE}


def memory_picture() -> Figure:
    """Class counts of two memories after the same imbalanced stream of digits."""
    stream = make_stream(
        "DriftDigits", batch_size=128, width=1e6, imbalance=30, imbalanced_task=3
    )
    capacity = 100
    figure, row = plt.subplots(1, 2, figsize=(9.6, 3.6), sharey=True)
    for axes, policy in zip(row, NAMES, strict=True):
        options = {"num_classes": 10} if policy == "infors" else {}
        generator = torch.Generator().manual_seed(0)
        memory = make_replay_buffer(policy, capacity, generator=generator, **options)
        images, _ = stream.reset(seed=0)
        for _ in range(stream.num_steps):
            batch = torch.from_numpy(images)
            images, _, _, _, info = stream.step(np.zeros(128, dtype=np.int64))
            labels = torch.from_numpy(info["label"])
            known = labels >= 0
            features = batch[known].flatten(1) / 255
            item = {"feature": features, "target": labels[known]}
            memory.extend(TensorDict(item, batch_size=[len(features)]))
        counts = memory[:]["target"].bincount(minlength=10).tolist()
        bars = axes.bar(range(10), counts, color=COLORS[policy], width=0.75)
        axes.bar_label(bars, color=MUTED, fontsize=9, padding=2)
        axes.set_title(NAMES[policy], fontsize=13, fontweight="bold")
        axes.set(xlabel="class", xticks=range(10))
    row[0].margins(y=0.12)
    row[0].set_ylabel(f"items in a memory of {capacity}")
    figure.tight_layout()
    return figure


#: Memories in the picture of Q-learning, and their colours.
Q_MEMORIES = {
    "FIFO": MUTED,
    "RS": BLUE,
    "everything": INK,
    "InfoRS dyn": GREEN,
    "FIFO + InfoRS": RED,
}
Q_RESULTS = Path(__file__).parent / "results" / "q_learning.jsonl"


def q_learning_picture() -> Figure:
    """Learning curves of Q-learning with several memories, means over seeds."""
    curves: dict[tuple[str, str], list[Array]] = {}
    frames: dict[str, Array] = {}
    for line in Q_RESULTS.read_text().splitlines():
        entry = json.loads(line)
        job, events = entry["job"], entry["result"]["evaluations"]
        if job["capacity"] == 1000:
            returns = np.array([event["returns"] for event in events])
            curves.setdefault((job["setting"], job["method"]), []).append(returns)
            frames[job["setting"]] = np.array([event["frame"] for event in events])
    figure, grid = plt.subplots(
        2, 2, figsize=(9, 5.2), sharex="col", sharey=True, layout="constrained"
    )
    for column, (setting, title) in enumerate(
        (("balanced", "10k / 10k / 10k frames"), ("imbalanced", "5k / 5k / 30k"))
    ):
        for method, colour in Q_MEMORIES.items():
            runs = np.stack(curves[setting, method])
            for axes, values in zip(
                grid[:, column], (runs[:, :, :-1].mean(2), runs[:, :, -1]), strict=True
            ):
                mean = values.mean(0)
                error = values.std(0, ddof=1) / len(values) ** 0.5
                steps = frames[setting] / 1000
                axes.plot(steps, mean, color=colour, label=method)
                axes.fill_between(
                    steps, mean - error, mean + error, color=colour, alpha=0.15, lw=0
                )
        grid[0, column].set_title(title)
        grid[1, column].set_xlabel("thousand frames")
    grid[0, 0].set_ylabel("return, first two tasks")
    grid[1, 0].set_ylabel("return, last task")
    grid[0, 0].legend(fontsize=8.5)
    return figure


def architecture_picture() -> Figure:
    """The packages, their rooms, and the direction in which data flows."""
    figure, axes = plt.subplots(figsize=(10, 5.2), layout="constrained")
    axes.set(xlim=(0, 100), ylim=(0, 54))
    axes.axis("off")

    def box(
        x: float, y: float, width: float, height: float, title: str, text: str = ""
    ) -> None:
        frame = plt.Rectangle((x, y), width, height, facecolor="#f4f6f8", edgecolor=INK)
        axes.add_patch(frame)
        place = {"ha": "center", "va": "center"}
        middle = x + width / 2
        up = 1.9 if text else 0
        weight = "bold" if text else "normal"
        axes.text(middle, y + height / 2 + up, title, weight=weight, **place)
        if text:
            lower = y + height / 2 - 1.5
            axes.text(middle, lower, text, color=MUTED, fontsize=8.5, **place)

    def arrow(start: tuple[float, float], end: tuple[float, float]) -> None:
        style = {"arrowstyle": "-|>", "color": BLUE, "linewidth": 1.6}
        axes.annotate("", xy=end, xytext=start, arrowprops=style)

    for x, y, width, height, name, color in (
        (1, 40, 98, 13, "continual_envs: what arrives", GREEN),
        (1, 23, 98, 14, "agents: who learns", BLUE),
        (1, 1, 98, 19, "info_replay: what to keep", RED),
    ):
        frame = plt.Rectangle(
            (x, y), width, height, facecolor="none", edgecolor=color, linewidth=1.6
        )
        axes.add_patch(frame)
        axes.text(x + 1, y + height - 1, name, color=color, weight="bold", va="top")
    for x, title, text in (
        (4, "datasets/", "samples and targets"),
        (36, "streams, tasks", "the order of samples"),
        (68, "environment", "test, then train"),
    ):
        box(x, 41.5, 26, 7, title, text)
    arrow((30, 45), (36, 45))
    arrow((62, 45), (68, 45))
    box(68, 24.5, 26, 8, "supervised/, q_learning/", "learner, network, run")
    box(36, 24.5, 26, 8, "runs/", "folder, checkpoint, files")
    box(4, 24.5, 26, 8, "result.json, pictures", "show, reports")
    arrow((81, 41.5), (81, 32.5))
    arrow((68, 28.5), (62, 28.5))
    arrow((36, 28.5), (30, 28.5))
    box(77, 3, 20, 9, "buffers.py", "TorchRL's interface")
    box(53, 3, 20, 9, "writers/", "one policy per file")
    box(29, 3, 20, 9, "model/", "criteria, posterior")
    box(5, 3, 20, 9, "storage/", "slots, generations")
    arrow((87, 24.5), (87, 12))
    arrow((77, 7.5), (73, 7.5))
    arrow((53, 7.5), (49, 7.5))
    axes.annotate(
        "",
        xy=(15, 12),
        xytext=(63, 12),
        arrowprops={
            "arrowstyle": "-|>",
            "color": BLUE,
            "linewidth": 1.6,
            "connectionstyle": "arc3,rad=0.16",
        },
    )
    axes.text(39, 17.2, "decisions are written", color=MUTED, fontsize=8.5, ha="center")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "architecture": architecture_picture,
    "toy_regression": toy_regression_picture,
    "memory": memory_picture,
    "q_learning": q_learning_picture,
}


def draw_all(pictures: dict[str, Callable[[], Figure]]) -> None:
    """Draw the pictures that the command line names, or all of them."""
    parser = argparse.ArgumentParser(description="Draw the documentation's pictures.")
    parser.add_argument("names", nargs="*", metavar="name", help=" or ".join(pictures))
    names = parser.parse_args().names or list(pictures)
    unknown = sorted(set(names) - set(pictures))
    if unknown:
        parser.error(f"no picture is called {', '.join(unknown)}")
    STATIC.mkdir(exist_ok=True)
    plt.rcParams.update(STYLE)
    for name in names:
        path = STATIC / f"{name}.png"
        figure = pictures[name]()
        # No software version in the file: the same picture gives the same bytes.
        figure.savefig(path, metadata={"Software": None})
        plt.close(figure)
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    draw_all(PICTURES)
