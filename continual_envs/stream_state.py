"""Whether a saved state is that of a stream: :func:`check_state`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from continual_envs.checks import is_whole

__all__ = ["StreamState", "check_state"]


class StreamState(NamedTuple):
    """Where a stream was.

    Attributes:
        seed: of the stream.
        position: number of samples before the batch that is shown.
        random: what draws the seeds of later streams.
    """

    seed: int
    position: int
    random: np.random.Generator


def check_state(state: Any, identity: dict[str, Any], step_size: int) -> StreamState:
    """Read a state; refuse anything else, and that of another stream.

    Args:
        state: that was saved.
        identity: what it must have in common with the stream that goes on.
        step_size: samples of a batch.

    Returns:
        Where the stream was.

    Raises:
        ValueError: naming what is wrong.
    """
    if not isinstance(state, dict):
        raise ValueError(f"the state of a stream is a dictionary, got {type(state)}")
    for key, expected in identity.items():
        found = state.get(key)
        if _is_equal(found, expected):
            continue
        if key == "fingerprint":
            raise ValueError("cannot continue a stream: its data has changed")
        raise ValueError(
            f"cannot continue a stream with {key}={_text(found)} as one with "
            f"{key}={expected!r}"
        )
    for key in ("seed", "position", "np_random"):
        if key not in state:
            raise ValueError(f"this is not the state of a stream: it has no {key}")
    for key in ("seed", "position"):
        if not is_whole(state[key]) or state[key] < 0:
            raise ValueError(
                f"the {key} of a stream is a whole number from 0 on, got "
                f"{_text(state[key])}"
            )
    seed, position = int(state["seed"]), int(state["position"])
    if position % step_size:
        raise ValueError(
            f"the position of this stream is a multiple of {step_size}, got {position}"
        )
    return StreamState(seed, position, _generator(state["np_random"]))


def _generator(state: Any) -> np.random.Generator:
    random = np.random.Generator(np.random.PCG64())
    try:
        random.bit_generator.state = state
    except Exception as error:  # NumPy raises whatever its conversions do
        text = " ".join(str(error).split())
        raise ValueError(f"np_random is not a generator's state: {text}") from error
    return random


def _is_equal(found: Any, expected: Any) -> bool:
    """Whether a value, which may be anything, is the expected one."""
    try:
        return bool(found == expected)
    except Exception:  # arrays of several numbers are neither
        return False


def _text(value: Any) -> str:
    """A value in one short line."""
    return " ".join(f"{value!r:.40}".split())
