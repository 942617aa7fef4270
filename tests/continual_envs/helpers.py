"""What the tests of the streams share: slow references and numbered data."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from continual_envs import BENCHMARKS, Dataset, Part, StreamEnv, make_stream

Array = NDArray[Any]
Policy = Callable[[Array, int], Any]

_SIDE = 3
_PLACES = _SIDE * _SIDE
_BASE = 28  # digits of a number in one pixel: 28 * 9 values fit into a byte

#: Where each data set that is not installed with the package lies.
FOLDERS = {
    "MNIST": "MNIST/raw",
    "CIFAR10": "cifar-10-batches-py",
    "MiniImageNet": "mini-imagenet",
}


def require_data(dataset: str) -> Path | None:
    """The folder of a data set; skips the test where it is not prepared."""
    if dataset not in FOLDERS:
        return None
    root = os.environ.get("CONTINUAL_ENVS_DATA")
    if not root:
        pytest.skip(f"{dataset} needs CONTINUAL_ENVS_DATA")
    if not (Path(root) / FOLDERS[dataset]).is_dir():
        pytest.skip(f"{dataset} is not in {root}")
    return Path(root)


def numbered_dataset(
    train: int = 80, test: int = 30, classes: int = 10, labels: Array | None = None
) -> Dataset:
    """Images that tell their own number, however their pixels are permuted.

    Pixel ``p`` is ``9 d + p``, with ``d`` a digit of the number of the image. Training
    images have the numbers from 0, test images those that follow.
    """
    numbers = np.arange(train + test)
    places = np.arange(_PLACES)
    digits = (numbers[:, None] // _BASE ** places[:3]) % _BASE
    digits = np.pad(digits, ((0, 0), (0, _PLACES - 3)))
    images = (digits * _PLACES + places).astype(np.uint8)
    images = images.reshape(-1, 1, _SIDE, _SIDE)
    if labels is None:
        # Every class at least six times in training, so that a tenth of it can be held
        # out, and once in the test part; of different sizes, in no order.
        random = np.random.default_rng(7)
        labels = np.concatenate(
            [
                random.permutation(
                    np.r_[
                        np.repeat(np.arange(classes), least),
                        random.integers(classes // 2, classes, size - least * classes),
                    ]
                )
                for size, least in ((train, 6), (test, 1))
            ]
        )
    return Dataset(
        "Numbers",
        Part(images[:train].copy(), labels[:train].copy()),
        Part(images[train:].copy(), labels[train:].copy()),
        classes,
    )


def numbers_of(images: Array) -> Array:
    """The numbers of images, by looking at their pixels only."""
    flat = images.reshape(-1, _PLACES).astype(np.int64)
    digits = np.zeros_like(flat)
    np.put_along_axis(digits, flat % _PLACES, flat // _PLACES, axis=1)
    return (digits[:, :3] * _BASE ** np.arange(3)).sum(1)


def permutation_of(image: Array) -> tuple[int, ...]:
    """Where each pixel of one image comes from, by looking at its pixels only."""
    return tuple((image.reshape(-1) % _PLACES).tolist())


def make_numbered(
    benchmark: str, dataset: Dataset | None = None, **options: Any
) -> StreamEnv:
    """A benchmark's way of making tasks, on numbered data instead of its own."""
    data = numbered_dataset() if dataset is None else dataset
    return make_stream(data, **{**BENCHMARKS[benchmark].options, **options})


@dataclass
class Episode:
    """What a learner saw: N + 1 observations and infos, N rewards."""

    observations: list[Array]
    infos: list[dict[str, Array]]
    rewards: list[float]
    ends: list[bool]
    input_shape: tuple[int, ...]

    def _joined(self, key: str) -> Array:
        keep = "mask" if "mask" in self.infos[0] else "label"
        parts = []
        for info in self.infos[1:]:
            known = np.atleast_1d(info[keep])
            known = known if keep == "mask" else known != -1
            parts.append(np.atleast_1d(info[key])[known])
        return np.concatenate(parts)

    @property
    def labels(self) -> Array:
        """Labels of all samples in order, padding left out."""
        return self._joined("label")

    @property
    def targets(self) -> Array:
        """Target numbers of all samples in order, padding left out."""
        return self._joined("target")

    @property
    def task_ids(self) -> Array:
        """Tasks of all samples in order, padding left out."""
        return self._joined("task_id")

    @property
    def inputs(self) -> Array:
        """All samples in order, padding left out."""
        batches = [batch.reshape(-1, *self.input_shape) for batch in self.observations]
        count = len(self.targets if "target" in self.infos[0] else self.labels)
        return np.concatenate(batches[:-1])[:count]

    @property
    def digest(self) -> str:
        """Differs if a bit of what was seen differs."""
        return digest(self.observations, self.infos, self.rewards, self.ends)


def digest(*parts: Any) -> str:
    """A checksum of arrays and plain values, with their types and shapes."""
    found = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                found.update(key.encode())
                add(value[key])
        elif isinstance(value, list | tuple):
            found.update(f"list {len(value)}".encode())
            for one in value:
                add(one)
        elif isinstance(value, np.ndarray):
            found.update(f"{value.dtype} {value.shape}".encode())
            found.update(value.tobytes())
        else:
            found.update(repr(value).encode())

    add(parts)
    return found.hexdigest()


def still(env: Any) -> Array:
    """The action that is all zeros."""
    return np.zeros(env.action_space.shape, dtype=env.action_space.dtype)


def play(env: Any, seed: int | None = None, policy: Policy | None = None) -> Episode:
    """One stream from its beginning to its end."""
    observation, info = env.reset(seed=seed)
    return play_on(env, observation, info, policy)


def play_on(
    env: Any, observation: Array, info: dict[str, Array], policy: Policy | None = None
) -> Episode:
    """The rest of a stream, from what was seen last."""
    shape = env.unwrapped.dataset.input_shape
    episode = Episode([observation], [info], [], [], shape)
    action = still(env)
    while not (episode.ends and episode.ends[-1]):
        if policy is not None:
            action = policy(observation, len(episode.rewards))
        observation, reward, terminated, truncated, info = env.step(action)
        assert truncated is False
        episode.observations.append(observation)
        episode.rewards.append(reward)
        episode.ends.append(terminated)
        episode.infos.append(info)
    return episode


def assert_same(one: Any, other: Any) -> None:
    """Equal to the bit, with types and shapes."""
    assert digest(one) == digest(other)


def guess(env: Any) -> Policy:
    """A policy that answers what it sees, so that rewards depend on observations."""
    shape = env.action_space.shape
    batch = () if env.options.batch_size is None else shape[:1]
    columns = [1] * (len(shape) - len(batch))

    def predict(observation: Array, step: int) -> Array:
        seen = observation.reshape(*batch, -1).astype(np.int64).sum(-1)
        if env.dataset.num_classes:
            return np.asarray(seen % env.dataset.num_classes)
        return np.broadcast_to(np.reshape(seen / 100, (*batch, *columns)), shape)

    return predict


def rest(env: Any, observation: Array, info: dict[str, Array]) -> str:
    """A checksum of all that is to come, also of the next stream's first batch."""
    episode = play_on(env, observation, info, guess(env))
    return digest(episode.digest, env.reset())
