"""Layers that are said to do the same in training and evaluation do so."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import spectral_norm

from agents.supervised.module_traits import differs_in_training, modules_up_to

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "Linear": (6, 4),
    "LayerNorm": (6,),
    "RMSNorm": (6,),
    "GroupNorm": (2, 4),
    "LocalResponseNorm": (2,),
    "Unflatten": (1, (2, 2)),
    "PixelShuffle": (2,),
    "Threshold": (0.1, 20.0),
    "Upsample": (None, 2),
    "Softmax": (1,),
    "Softmin": (1,),
    "LogSoftmax": (1,),
}


def made(kind: type[nn.Module]) -> nn.Module | None:
    """A layer for inputs of 4 channels, ``None`` if it is not for one input."""
    name = kind.__name__
    if name.startswith("Conv"):
        return kind(4, 4, 1)
    if name.startswith(("MaxPool", "AvgPool", "AdaptiveMax", "AdaptiveAvg")):
        return kind(1)
    if name.startswith("LPPool"):
        return kind(2, 1)
    if "Pad" in name:
        return kind(1, 0.5) if name.startswith("Constant") else kind(1)
    try:
        return kind(*ARGUMENTS.get(name, ()))
    except TypeError:
        return None


def outputs(layer: nn.Module) -> list[Any]:
    """Of one, two and three dimensions, where the layer takes them."""
    found = []
    for dimensions in (1, 2, 3):
        shape = (3, 4, *[6] * dimensions)
        inputs = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        with contextlib.suppress(RuntimeError, ValueError, NotImplementedError):
            found.append(layer(inputs))
    return found


def known_layers() -> list[nn.Module]:
    """All layers of torch for one input that count as the same in training."""
    kinds = [kind for kind in vars(nn).values() if isinstance(kind, type)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old names
        layers = [made(kind) for kind in kinds if issubclass(kind, nn.Module)]
    known = [
        each for each in layers if each is not None and not differs_in_training(each)
    ]
    return [layer for layer in known if outputs(layer)]


KNOWN = known_layers()


def test_most_layers_of_torch_are_known() -> None:
    names = {type(layer).__name__ for layer in KNOWN}
    assert len(names) > 50
    assert {"Linear", "Conv2d", "ReLU", "GELU", "LayerNorm", "MaxPool2d"} <= names
    assert not names & {"Dropout", "Dropout2d", "AlphaDropout", "RReLU", "BatchNorm1d"}


@pytest.mark.parametrize("layer", KNOWN, ids=lambda layer: type(layer).__name__)
def test_a_known_layer_does_the_same_in_training(layer: nn.Module) -> None:
    state, random = copy.deepcopy(layer.state_dict()), torch.get_rng_state()
    at_rest = outputs(layer.eval())
    for found, expected in zip(outputs(layer.train()), at_rest, strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(state[key], layer.state_dict()[key]) for key in state)


@pytest.mark.parametrize(
    "change",
    [
        spectral_norm,  # a hook that updates a buffer in training
        lambda layer: layer.register_forward_hook(print) and layer,
        lambda layer: layer.register_forward_pre_hook(print) and layer,
    ],
)
def test_a_layer_with_a_hook_may_do_anything(
    change: Callable[[nn.Module], nn.Module],
) -> None:
    layer = nn.Linear(3, 3)
    assert not differs_in_training(layer)
    assert differs_in_training(nn.Sequential(change(layer)))


def test_modules_before_a_layer_are_known_in_sequences_alone() -> None:
    relu = nn.ReLU()  # comes twice
    inner = nn.Sequential(nn.Tanh(), relu)
    network = nn.Sequential(nn.Flatten(), relu, inner, nn.ReLU())
    assert modules_up_to(network, "0") == [network[0]]
    assert modules_up_to(network, "2.1") == [network[0], relu, inner[0], relu]
    assert modules_up_to(nn.ModuleDict({"net": network}), "net.1") is None
