"""Whether a saved state fits, told before anything is changed.

A checkpoint may be of another run, or edited. What is read from it is checked here, in
full, before any of it is used: what does not fit is one error, and nothing is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from agents.runs.randomness import OwnRandomness
from info_replay.validation import told

__all__ = [
    "check_generator",
    "check_network_state",
    "check_numbers",
    "check_optimizer",
    "check_parts",
    "check_randomness",
    "check_seconds",
    "check_tensor",
    "check_whole",
]

_HUGE = sys.float_info.max


def check_parts(state: Any, *parts: str, name: str) -> None:
    """Refuse what does not have the parts of a state.

    Args:
        state: that was read.
        *parts: their names.
        name: of the state, for messages.

    Raises:
        ValueError: naming the first that is missing.
    """
    if not isinstance(state, Mapping):
        raise ValueError(f"{name} must have parts by name, got {told(state)}")
    for part in parts:
        if part not in state:
            raise ValueError(f"{name} has no {part!r}")


def check_whole(value: Any, name: str) -> None:
    """Refuse what is not a whole number from 0 on.

    Raises:
        ValueError: naming it.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} must be a whole number from 0 on, got {told(value)}")


def check_numbers(values: Any, count: int, name: str) -> None:
    """Refuse what is not a list of so many numbers.

    Raises:
        ValueError: naming it.
    """
    if not isinstance(values, list):
        raise ValueError(f"{name} must be a list, got {told(values)}")
    if len(values) != count:
        raise ValueError(f"{name} must have {count} numbers, got {len(values)}")
    for value in values:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{name} must be numbers, got {told(value)}")


def check_seconds(seconds: Any) -> None:
    """Refuse what is not the time that each part of the work took.

    Raises:
        ValueError: naming what is wrong.
    """
    check_parts(seconds, name="seconds")
    for part, spent in seconds.items():
        if not isinstance(part, str):
            raise ValueError(f"seconds must be by name, got {told(part)}")
        check_numbers([spent], 1, "seconds")


def check_network_state(network: torch.nn.Module, weights: Any) -> None:
    """Refuse what is not the ``state_dict`` of such a network.

    Args:
        network: that would be given the weights.
        weights: that were read.

    Raises:
        ValueError: naming the first weight that does not fit.
    """
    own = network.state_dict()
    check_parts(weights, *own, name="network")
    for name in weights:
        if name not in own:
            raise ValueError(f"network has no {name!r}, the weights have")
    for name, expected in own.items():
        if isinstance(expected, Tensor):  # a module may have other state of its own
            check_tensor(weights[name], expected, f"weight {name!r}")


def check_optimizer(optimizer: torch.optim.Optimizer, state: Any) -> None:
    """Refuse what is not the ``state_dict`` of such an optimizer.

    Args:
        optimizer: that would be given the state.
        state: that was read.

    Raises:
        ValueError: naming the first value that does not fit.
    """
    own = optimizer.state_dict()
    check_parts(state, "param_groups", "state", name="optimizer")
    groups = state["param_groups"]
    if not isinstance(groups, list) or len(groups) != len(own["param_groups"]):
        raise ValueError(
            f"optimizer must have {len(own['param_groups'])} groups of parameters, got "
            f"{told(groups)}"
        )
    for found, expected in zip(groups, own["param_groups"], strict=True):
        check_parts(found, *expected, name="optimizer")
        for name, value in expected.items():
            if name == "params" and repr(found[name]) != repr(value):
                raise ValueError("optimizer must have the parameters of the network")
            if not _is_alike(found[name], value):
                raise ValueError(
                    f"{name} of the optimizer must be like {value!r}, got "
                    f"{told(found[name])}"
                )
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    _check_moments(state["state"], parameters)


def _check_moments(moments: Any, parameters: list[Tensor]) -> None:
    """Refuse moments of gradients, say, of other parameters; one more step makes all.

    A number of steps, or one value for each of a parameter's, is what an optimizer
    keeps of it: the same kinds of values for all that it has stepped.
    """
    check_parts(moments, name="the state of the optimizer")
    kinds = None
    for number, kept in moments.items():
        whole = isinstance(number, int) and 0 <= number < len(parameters)
        if not whole or not isinstance(kept, Mapping):
            raise ValueError(
                "the state of the optimizer does not fit its parameters: "
                f"{told(number)}"
            )
        found = {
            name: _kind_of(value, parameters[number], f"{name} of the optimizer")
            for name, value in kept.items()
        }
        kinds = found if kinds is None else kinds
        if found != kinds:
            raise ValueError(
                f"the state of the optimizer must be alike for all parameters, got "
                f"{told(found)} for one and {told(kinds)} for another"
            )


def _kind_of(value: Any, parameter: Tensor, name: str) -> str:
    """What an optimizer keeps of a parameter: nothing, a number or one per weight."""
    if value is None:
        return "nothing"
    if isinstance(value, Tensor) and value.ndim:
        check_tensor(value, parameter, name)
        return "a value per weight"
    if isinstance(value, Tensor):
        check_tensor(value, torch.zeros((), dtype=value.real.dtype), name)
        return f"a number of {value.dtype}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be numbers, got {told(value)}")
    return "a number"


def check_generator(own: Tensor, state: Any) -> None:
    """Refuse what is not the state of a generator of random numbers.

    Args:
        own: the state of a generator on the same device.
        state: that was read.

    Raises:
        ValueError: saying what it is.
    """
    check_tensor(state, own, "the state of random numbers")
    if own.numel() == torch.Generator().get_state().numel():  # of the host
        try:
            torch.Generator().set_state(state)
        except RuntimeError as error:
            text = " ".join(str(error).split())
            raise ValueError(f"the state of random numbers: {text}") from error


def check_randomness(randomness: OwnRandomness, state: Any) -> None:
    """Refuse what is not the state of such random numbers.

    Args:
        randomness: that would be given the state.
        state: that was read; it may lack the part of another device.

    Raises:
        ValueError: saying what it is.
    """
    own = randomness.state_dict()
    check_parts(state, "cpu", name="the state of random numbers")
    for device in own.keys() & state.keys():
        check_generator(own[device], state[device])


def check_tensor(found: Any, expected: Tensor, name: str) -> None:
    """Refuse what could not be copied into a tensor value by value."""
    if (
        not isinstance(found, Tensor)
        or (found.shape, found.dtype) != (expected.shape, expected.dtype)
        or found.layout != expected.layout
        or found.is_meta
    ):
        raise ValueError(f"{name} must be {told(expected)}, got {told(found)}")


def _is_alike(found: Any, expected: Any) -> bool:
    """Whether one option could stand for another."""
    if isinstance(expected, Tensor):
        return isinstance(found, Tensor) and found.shape == expected.shape
    if isinstance(expected, bool) or expected is None or isinstance(found, bool):
        return type(found) is type(expected)
    if isinstance(expected, int | float):
        return isinstance(found, int | float) and abs(found) < _HUGE
    return isinstance(found, type(expected))
