"""Networks tell features and outputs of one pass; their start depends on the seed."""

from __future__ import annotations

import functools
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import resnet18

from agents.supervised.networks import (
    NETWORKS,
    FullyConnected,
    MLPHead,
    make_network,
)

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


def test_heads_see_the_input_or_one_hidden_layer() -> None:
    inputs = torch.rand(3, 4, 3)
    network = make_network("linear", (4, 3), 2, seed=0)
    assert torch.equal(network(inputs)[0], inputs.flatten(1))
    assert network.fixed_features
    network = make_network(functools.partial(MLPHead, width=9), (4, 3), 2, seed=0)
    first = network.body[1]  # type: ignore[index]
    hidden = first(inputs.flatten(1)).relu()
    assert hidden.shape == (3, 9)
    assert torch.equal(network(inputs)[0], hidden)
    assert not network.fixed_features


def test_without_torchvision_only_resnet_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(ImportError, match=r"pip install 'info-replay\[streams\]'"):
        make_network("resnet18", (3, 8, 8), 10, seed=0)
    make_network("fc", (3, 8, 8), 10, seed=0)


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


# -- networks of the user's -----------------------------------------------------------


class Own(nn.Module):
    """Counts its passes and draws random numbers in all of them."""

    def __init__(self, width: int = 4, num_outputs: int = 3) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.last = nn.Linear(width, num_outputs)
        self.still = nn.Dropout().eval()
        self.seen: list[torch.Size] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.append(inputs.shape)
        assert not self.norm.training or inputs.any()  # at rest while it is tried
        torch.rand(3)
        outputs: Tensor = self.last(self.norm(inputs.flatten(1)))
        return outputs


def by_position(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return Own(shape[0], outputs)


def by_shape(input_shape: tuple[int, ...], *, num_outputs: int = 99) -> nn.Module:
    return Own(input_shape[0], num_outputs)


def by_outputs(num_classes: int, depth: int = 2) -> nn.Module:
    assert depth == 2
    return Own(4, num_classes)


@pytest.mark.parametrize(
    "factory",
    [
        Own,
        by_position,
        by_shape,
        by_outputs,
        lambda: Own(),
        lambda shape: Own(shape[0]),
        functools.partial(Own, 4),
        f"{__name__}:by_position",
        Own(),
    ],
)
def test_any_factory_or_module_is_a_network(factory: Any) -> None:
    before = torch.get_rng_state()
    network = make_network(factory, (4,), 3, seed=0, feature="norm")
    assert torch.equal(torch.get_rng_state(), before)
    assert (network.feature_dim, network.num_outputs) == (4, 3)
    model: Any = network.model
    assert model.seen == [(2, 4)]
    assert model.norm.num_batches_tracked == 0
    # Every module is in the mode that it was in.
    assert network.training
    assert model.norm.training
    assert not model.still.training


def test_the_first_weights_of_a_factory_depend_on_the_seed() -> None:
    one, two, other = (
        make_network(Own, (4,), 3, seed, "norm").state_dict() for seed in (0, 0, 1)
    )
    assert torch.equal(one["model.last.weight"], two["model.last.weight"])
    assert not torch.equal(one["model.last.weight"], other["model.last.weight"])


def test_a_module_is_copied_so_that_another_run_begins_where_this_one_did() -> None:
    model = Own()
    network = make_network(model, (4,), 3, seed=0, feature="norm")
    network.model.last.weight.data.zero_()  # type: ignore[union-attr, operator]
    assert model.last.weight.any()
    assert model.seen == []


def test_a_network_that_tells_its_features_is_not_wrapped() -> None:
    made = make_network(lambda: FullyConnected((4,), 3), (4,), 3, seed=0)
    assert type(made) is FullyConnected


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(3))


def test_layers_whose_size_is_found_in_use_are_made_from_the_seed() -> None:
    one, two, other = (make_network(lazy, (4,), 3, n, "1") for n in (0, 0, 1))
    assert one.feature_dim == 6
    assert [tuple(part.shape) for part in one.parameters()] == [
        (6, 4),
        (6,),
        (3, 6),
        (3,),
    ]
    assert all(part.requires_grad for part in one.parameters())
    assert all(map(torch.equal, one.parameters(), two.parameters()))
    assert not any(map(torch.equal, one.parameters(), other.parameters()))


class Deep(nn.Module):
    """Features with too many dimensions."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return inputs[:, None], inputs[:, :3]


@pytest.mark.parametrize(
    ("network", "feature", "expected"),
    [
        (by_position, None, r"Own must return \(features, outputs\).*got one tensor"),
        (by_position, "nrom", "submodule of Own, such as 'norm'.*; got 'nrom'"),
        (lambda: Own(4, 7), "norm", r"outputs of shape \(2, 3\).*got \(2, 7\)"),
        (lambda: Own(5), "norm", r"cannot take inputs of shape \(4,\)"),
        (Deep, None, r"Deep must give features of shape \(2, d\).*\(2, 1, 4\)"),
        (lambda: "fc", None, "must be an nn.Module or make one, got 'fc'"),
        (lambda a, b, c: None, None, r"or from fewer arguments.*needs \(a, b, c\)"),
        ("fc", "body", "'fc' tells its features itself; leave feature='body' out"),
        (f"{__name__}:nothing", None, "cannot import the network"),
    ],
)
def test_a_network_that_does_not_fit_is_refused_in_one_line(
    network: Any, feature: str | None, expected: str
) -> None:
    with pytest.raises(ValueError, match=expected) as caught:
        make_network(network, (4,), 3, seed=0, feature=feature)
    assert "\n" not in str(caught.value)
