"""Draws the pictures of the page on streams into ``docs/_static``.

Run ``python docs/make_stream_pictures.py`` for all of them, or name some of them:
``python docs/make_stream_pictures.py stream_blur``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from make_pictures import INK, MUTED, draw_all
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from continual_envs import StreamEnv, load_dataset, make_stream

# Paul Tol's "muted" colors, which color-blind readers can tell apart, and a gray.
COLORS = [
    "#332288",
    "#88CCEE",
    "#44AA99",
    "#117733",
    "#999933",
    "#DDCC77",
    "#CC6677",
    "#882255",
    "#AA4499",
    "#BBBBBB",
]
BATCH_SIZE = 50
WIDTH = 8


def infos(env: StreamEnv, key: str, seed: int) -> list[NDArray[Any]]:
    """What each step of a stream tells, padding left out."""
    env.reset(seed=seed)
    action = np.zeros(env.action_space.shape or (), dtype=env.action_space.dtype)
    found, terminated = [], False
    while not terminated:
        *_, terminated, _, info = env.step(action)
        known = info["mask"] if "mask" in info else info["label"] >= 0
        found.append(info[key][known])
    return found


def draw_shares(axes: Axes, values: list[NDArray[Any]], what: str) -> None:
    """The share of each number along a stream, with a key above the right end."""
    count = max(int(some.max()) for some in values) + 1
    counts = np.array([np.bincount(some, minlength=count) for some in values])
    shares = counts / counts.sum(1, keepdims=True)
    edges = np.arange(len(values) + 1)
    below = np.zeros(len(values))
    for number, share in enumerate(shares.T):
        axes.stairs(
            below + share,
            edges,
            baseline=below,
            fill=True,
            color=COLORS[number],
            linewidth=0,
        )
        below = below + share
    axes.set(xlim=(0, len(values)), ylim=(0, 1), yticks=[])
    axes.spines["left"].set_visible(False)
    key = [*((str(n), COLORS[n], "bold") for n in range(count))]
    for place, (text, color, weight) in enumerate(reversed(key)):
        write_above(axes, 1 - 0.022 * place, text, color=color, weight=weight)
    write_above(axes, 1 - 0.022 * count - 0.012, what, color=MUTED, fontsize=9.5)


def write_above(axes: Axes, place: float, text: str, **style: Any) -> None:
    """A word in line with the title, its right end at a share of the width."""
    axes.annotate(
        text,
        (place, 1),
        (0, 6),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        va="baseline",
        **style,
    )


def strips(
    panels: dict[str, tuple[str, dict[str, Any]]], seed: int = 2, key: str = "label"
) -> Figure:
    """One stream below the other, as shares of classes (or of ``key``).

    Args:
        panels: titles, and the data and options of each stream.
        seed: of all streams.
        key: of the info that is drawn.
    """
    figure, rows = plt.subplots(
        len(panels),
        1,
        figsize=(WIDTH, 0.55 + 1.25 * len(panels)),
        layout="constrained",
        squeeze=False,
    )
    for axes, (title, (data, options)) in zip(rows[:, 0], panels.items(), strict=True):
        env = make_stream(data, batch_size=BATCH_SIZE, epochs=4, **options)
        what = "class" if key == "label" else "task"
        draw_shares(axes, infos(env, key, seed), what)
        axes.set_title(title, fontsize=10.5)
    rows[-1, 0].set_xlabel("step")
    return figure


def overview_picture() -> Figure:
    """Three streams of one data set."""
    return strips(
        {
            "tasks of two classes": ("SplitDigits", {}),
            "imbalance=5": ("SplitDigits", {"imbalance": 5}),
            "cut='drift'": ("DriftDigits", {}),
        }
    )


def label_picture() -> Figure:
    """Tasks by label, and with an order and sizes."""
    return strips(
        {
            "cut='label', tasks=5": ("Digits", {"tasks": 5}),
            "class_order=[9, ..., 0], class_sizes=[1, 2, 3, 4]": (
                "Digits",
                {"class_order": range(9, -1, -1), "class_sizes": [1, 2, 3, 4]},
            ),
        }
    )


def column_picture() -> Figure:
    """The values of the column by which patients are cut into tasks."""
    env = make_stream("Diabetes", column=2, tasks=4, batch_size=10, epochs=4)
    observation, _ = env.reset(seed=2)
    steps = env.num_steps
    assert steps is not None
    seen = []
    for _ in range(steps):
        seen.append(observation[:, 2])
        observation = env.step(np.zeros(10, dtype=np.float32))[0]
    figure, axes = plt.subplots(figsize=(WIDTH, 2.1), layout="constrained")
    lengths = [4 * len(task.train) for task in env.tasks]
    values = np.concatenate(seen)[: sum(lengths)]
    step = np.arange(len(values)) / 10
    start = 0
    for number, length in enumerate(lengths):
        mine = slice(start, start + length)
        color = COLORS[2 * number]
        axes.scatter(step[mine], values[mine], s=6, color=color, linewidths=0)
        start += length
    axes.set(xlim=(0, steps), xlabel="step", ylabel="column 2", yticks=[])
    axes.set_title("cut='column', column=2, tasks=4", fontsize=10.5)
    return figure


def given_picture() -> Figure:
    """Tasks by given ids: classes stay, the share of each is the task's own."""
    labels = load_dataset("Digits").train.targets
    # Three places, each of which sees some digits more often than the others do.
    random = np.random.default_rng(0)
    ids = (labels // 4 + (random.random(len(labels)) < 0.35) * 1) % 3
    test_ids = load_dataset("Digits").test.targets // 4
    options = {"task_ids": ids, "test_task_ids": test_ids}
    return strips({"task_ids=place": ("Digits", options)})


def permuted_picture() -> Figure:
    """The same digits as five tasks show them."""
    env = make_stream("Digits", cut="permuted", tasks=4)
    images = env.dataset.train.inputs[[1, 2, 3]]
    panels = {"data": images} | {
        f"task {number}": task.show(images) for number, task in enumerate(env.tasks)
    }
    figure, rows = plt.subplots(1, 5, figsize=(WIDTH, 1.0), layout="constrained")
    for axes, (title, shown) in zip(rows, panels.items(), strict=True):
        row = np.concatenate(
            list(np.pad(shown[:, 0], ((0, 0), (0, 0), (0, 1)))), axis=1
        )
        axes.imshow(row[:, :-1], cmap="gray_r")
        axes.set_title(title, fontsize=10.5, color=INK)
        axes.axis("off")
    return figure


def drift_picture() -> Figure:
    """Classes that come and go, of two widths."""
    return strips(
        {
            f"cut='drift', width={width}": ("Digits", {"cut": "drift", "width": width})
            for width in (0.2, 1.0)
        }
    )


def imbalance_picture() -> Figure:
    """One task three times as often."""
    options = {"imbalance": 3, "imbalanced_task": 1}
    return strips({"imbalance=3, imbalanced_task=1": ("SplitDigits", options)})


def longtail_picture() -> Figure:
    """Classes of exponentially different sizes, for two seeds."""
    figure, rows = plt.subplots(
        2, 1, figsize=(WIDTH, 3.05), layout="constrained", squeeze=False
    )
    for seed, axes in zip((0, 2), rows[:, 0], strict=True):
        env = make_stream("SplitDigits", batch_size=20, epochs=4, longtail=100)
        draw_shares(axes, infos(env, "label", seed), "class")
        axes.set_title(f"longtail=100 (seed {seed})", fontsize=10.5)
    rows[-1, 0].set_xlabel("step")
    return figure


def blur_picture() -> Figure:
    """A tenth and half of each task in other tasks."""
    return strips(
        {f"blur={share}": ("SplitDigits", {"blur": share}) for share in (0.1, 0.5)}
    )


def label_noise_picture() -> Figure:
    """Labels as they are told, a fifth of them wrong."""
    return strips({"label_noise=0.2": ("SplitDigits", {"label_noise": 0.2})})


def together_picture() -> Figure:
    """Everything at once."""
    options = {"imbalance": 3, "longtail": 10, "blur": 0.2, "label_noise": 0.1}
    title = ", ".join(f"{name}={value}" for name, value in options.items())
    return strips({title: ("SplitDigits", options)})


PICTURES: dict[str, Callable[[], Figure]] = {
    "streams": overview_picture,
    "stream_label": label_picture,
    "stream_column": column_picture,
    "stream_given": given_picture,
    "stream_permuted": permuted_picture,
    "stream_drift": drift_picture,
    "stream_imbalance": imbalance_picture,
    "stream_longtail": longtail_picture,
    "stream_blur": blur_picture,
    "stream_label_noise": label_noise_picture,
    "stream_together": together_picture,
}


if __name__ == "__main__":
    plt.rcParams.update(
        {
            "figure.constrained_layout.h_pad": 0.08,
            "figure.constrained_layout.w_pad": 0.1,
        }
    )
    draw_all(PICTURES)
