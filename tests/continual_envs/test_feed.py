"""What yields the samples of a live stream is opened no more often than needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from continual_envs import make_stream


class Camera:
    """Counts how often it is opened, and how many are open at once."""

    def __init__(self) -> None:
        self.opened = 0
        self.open = 0

    def __iter__(self) -> Iterator[Any]:
        self.opened += 1
        self.open += 1
        assert self.open == 1
        try:
            for number in itertools.count():
                yield np.array([number, 1.0]), number % 5
        finally:
            self.open -= 1


TEST = {"test": (np.ones((5, 2)), np.arange(5))}


def numbers(observation: Any) -> list[int]:
    return observation[:, 0].astype(int).tolist()


@pytest.mark.parametrize("options", [{"num_classes": 5}, TEST], ids=["no test", "test"])
@pytest.mark.parametrize("returns", ["iterator", "iterable"])
def test_a_function_is_called_once_for_each_start(
    returns: str, options: dict[str, Any]
) -> None:
    calls: list[Camera] = []

    def connect() -> Any:
        calls.append(Camera())
        return iter(calls[-1]) if returns == "iterator" else calls[-1]

    env = make_stream(connect, batch_size=2, **options)
    assert len(calls) == 1
    assert numbers(env.reset(seed=3)[0]) == [0, 1]
    assert len(calls) == 1
    assert calls[0].opened == 1
    assert numbers(env.reset(seed=3)[0]) == [0, 1]
    assert len(calls) == 2


def test_what_was_opened_for_another_seed_is_closed_first() -> None:
    camera = Camera()

    def connect(seed: int) -> Iterator[Any]:
        return iter(camera)

    env = make_stream(connect, num_classes=5, batch_size=2)
    env.reset(seed=0)
    assert camera.opened == 1  # opened for this seed already
    other = Camera()
    camera = other
    env = make_stream(connect, num_classes=5, batch_size=2)
    env.reset(seed=1)
    assert (other.opened, other.open) == (2, 1)
