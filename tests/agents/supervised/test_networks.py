"""Networks tell features and outputs of one pass; their start depends on the seed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torchvision.models import resnet18

from agents.supervised.networks import NETWORKS, FullyConnected, make_network

SHAPES: dict[str, tuple[int, ...]] = {
    "fc": (1, 8, 8),
    "resnet18": (3, 32, 32),
    "linear": (12,),
    "mlp": (12,),
}


@pytest.mark.parametrize("name", list(NETWORKS))
def test_features_are_what_the_last_linear_layer_sees(name: str) -> None:
    network = make_network(name, SHAPES[name], 7, seed=0).eval()
    features, outputs = network(torch.rand(5, *SHAPES[name]))
    linear = [part for part in network.modules() if isinstance(part, nn.Linear)][-1]
    assert linear.out_features == 7
    assert features.shape == (5, network.feature_dim)
    assert outputs.shape == (5, 7)
    torch.testing.assert_close(outputs, features @ linear.weight.T + linear.bias)


def test_the_fully_connected_network_has_two_hidden_layers_of_100() -> None:
    network = make_network("fc", (1, 28, 28), 10, seed=0)
    linear = [part for part in network.modules() if isinstance(part, nn.Linear)]
    assert [(part.in_features, part.out_features) for part in linear] == [
        (784, 100),
        (100, 100),
        (100, 10),
    ]
    inputs = torch.rand(3, 1, 28, 28)
    hidden = linear[1](linear[0](inputs.flatten(1)).relu()).relu()
    features, outputs = network(inputs)
    torch.testing.assert_close(features, hidden)
    torch.testing.assert_close(outputs, linear[2](hidden))


def test_resnet_18_is_that_of_torchvision_with_the_same_first_weights() -> None:
    network = make_network("resnet18", (3, 32, 32), 10, seed=3).eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        theirs = resnet18(num_classes=10).eval()
    inputs = torch.rand(2, 3, 32, 32)
    assert torch.equal(network(inputs)[1], theirs(inputs))
    ours = [p.shape for p in network.parameters()]
    assert ours == [p.shape for p in theirs.parameters()]


@pytest.mark.parametrize("channels", [1, 3])
def test_resnet_18_begins_with_a_wide_convolution_and_max_pooling(
    channels: int,
) -> None:
    network = make_network("resnet18", (channels, 32, 32), 10, seed=0)
    first = next(part for part in network.modules() if isinstance(part, nn.Conv2d))
    assert first.in_channels == channels
    assert (first.out_channels, first.kernel_size, first.stride) == (64, (7, 7), (2, 2))
    assert first.padding == (3, 3)
    assert first.bias is None
    pools = [part for part in network.modules() if isinstance(part, nn.MaxPool2d)]
    assert len(pools) == 1
    assert network(torch.rand(2, channels, 32, 32))[1].shape == (2, 10)


def test_only_resnet_needs_images_and_company() -> None:
    for name, answer in (("resnet18", True), ("fc", False)):
        network = make_network(name, SHAPES[name], 10, seed=0)
        assert network.depends_on_batch == network.needs_images == answer


class Narrow(FullyConnected):
    """A network of the user's."""

    def __init__(self, input_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__(input_shape, num_outputs, hidden=(7,))


def test_a_network_of_the_users_is_made_like_ours() -> None:
    network = make_network(f"{__name__}:Narrow", (1, 8, 8), 10, seed=0)
    assert network(torch.zeros(3, 1, 8, 8))[0].shape == (3, 7)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_the_first_weights_depend_on_the_seed_alone(name: str) -> None:
    torch.manual_seed(1)
    one = make_network(name, SHAPES[name], 4, seed=5).state_dict()
    torch.manual_seed(2)
    state = torch.get_rng_state()
    two = make_network(name, SHAPES[name], 4, seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    other = make_network(name, SHAPES[name], 4, seed=6).state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
    weights = [key for key in one if one[key].ndim > 1]
    assert not any(torch.equal(one[key], other[key]) for key in weights)


def test_an_unknown_network_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"fc.*resnet18.*'vgg'"):
        make_network("vgg", (1, 8, 8), 10, seed=0)
