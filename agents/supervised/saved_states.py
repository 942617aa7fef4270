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

__all__ = [
    "check_learner_state",
    "check_numbers",
    "check_parts",
    "check_weights_fit",
    "check_whole",
    "describe",
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
        raise ValueError(f"{name} must have parts by name, got {describe(state)}")
    for part in parts:
        if part not in state:
            raise ValueError(f"{name} has no {part!r}")


def check_whole(value: Any, name: str) -> None:
    """Refuse what is not a whole number from 0 on.

    Raises:
        ValueError: naming it.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(
            f"{name} must be a whole number from 0 on, got {describe(value)}"
        )


def check_numbers(values: Any, count: int, name: str) -> None:
    """Refuse what is not a list of so many numbers.

    Raises:
        ValueError: naming it.
    """
    if not isinstance(values, list):
        raise ValueError(f"{name} must be a list, got {describe(values)}")
    if len(values) != count:
        raise ValueError(f"{name} must have {count} numbers, got {len(values)}")
    for value in values:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{name} must be numbers, got {describe(value)}")


def check_learner_state(
    state: Any,
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    randomness: OwnRandomness | None,
) -> None:
    """Refuse what is not the state of such a learner; its memory checks its own.

    Args:
        state: that was read.
        network: of the learner.
        optimizer: of the learner.
        generator: of the augmentation.
        randomness: of random layers, ``None`` if there are none.

    Raises:
        ValueError: naming the first part that does not fit.
    """
    parts = ("network", "optimizer", "memory", "generator")
    check_parts(state, *parts, name="the state of a learner")
    check_weights_fit(network, state["network"])
    _check_optimizer(optimizer, state["optimizer"])
    _check_generator(generator.get_state(), state["generator"])
    if randomness is not None and "randomness" in state:
        own, drawn = randomness.state_dict(), state["randomness"]
        check_parts(drawn, "cpu", name="the state of random layers")
        for device in own.keys() & drawn.keys():
            _check_generator(own[device], drawn[device])


def check_weights_fit(network: torch.nn.Module, weights: Any) -> None:
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
            _check_tensor(weights[name], expected, f"weight {name!r}")


def _check_optimizer(optimizer: torch.optim.Optimizer, state: Any) -> None:
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
            f"{describe(groups)}"
        )
    for found, expected in zip(groups, own["param_groups"], strict=True):
        check_parts(found, *expected, name="optimizer")
        for name, value in expected.items():
            if name == "params" and repr(found[name]) != repr(value):
                raise ValueError("optimizer must have the parameters of the network")
            if not _is_alike(found[name], value):
                raise ValueError(
                    f"{name} of the optimizer must be like {value!r}, got "
                    f"{describe(found[name])}"
                )
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    _check_moments(state["state"], parameters)


def _check_moments(moments: Any, parameters: list[Tensor]) -> None:
    """Refuse moments of gradients, say, of other parameters; one more step makes all.

    A number of steps, or one value for each of a parameter's, is what an optimizer
    keeps of it.
    """
    if not isinstance(moments, Mapping):
        raise ValueError(
            f"the state of the optimizer must be by parameter, got {describe(moments)}"
        )
    names = {frozenset(each) for each in moments.values() if isinstance(each, Mapping)}
    for number, kept in moments.items():
        whole = isinstance(number, int) and 0 <= number < len(parameters)
        if not whole or not isinstance(kept, Mapping) or len(names) > 1:
            raise ValueError(
                f"the state of the optimizer does not fit its parameters: {number!r}"
            )
        for name, value in kept.items():
            if isinstance(value, Tensor) and value.ndim:
                _check_tensor(value, parameters[number], f"{name} of the optimizer")
            elif not isinstance(value, Tensor | int | float | None):
                raise ValueError(
                    f"{name} of the optimizer must be numbers, got {describe(value)}"
                )


def _check_generator(own: Tensor, state: Any) -> None:
    """Refuse what is not the state of a generator of random numbers.

    Args:
        own: the state of a generator on the same device.
        state: that was read.

    Raises:
        ValueError: saying what it is.
    """
    _check_tensor(state, own, "the state of random numbers")
    if own.numel() == torch.Generator().get_state().numel():  # of the host
        try:
            torch.Generator().set_state(state)
        except RuntimeError as error:
            text = " ".join(str(error).split())
            raise ValueError(f"the state of random numbers: {text}") from error


def _check_tensor(found: Any, expected: Tensor, name: str) -> None:
    """Refuse what could not be copied into a tensor value by value."""
    if (
        not isinstance(found, Tensor)
        or (found.shape, found.dtype) != (expected.shape, expected.dtype)
        or found.layout != expected.layout
        or found.is_meta
    ):
        raise ValueError(f"{name} must be {describe(expected)}, got {describe(found)}")


def _is_alike(found: Any, expected: Any) -> bool:
    """Whether one option could stand for another."""
    if isinstance(expected, Tensor):
        return isinstance(found, Tensor) and found.shape == expected.shape
    if isinstance(expected, bool) or expected is None or isinstance(found, bool):
        return type(found) is type(expected)
    if isinstance(expected, int | float):
        return isinstance(found, int | float) and abs(found) < _HUGE
    return isinstance(found, type(expected))


def describe(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    if isinstance(value, Mapping | list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return " ".join(f"{value!r:.40}".split())
