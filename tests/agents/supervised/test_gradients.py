"""Gradients of many losses at once are those that autograd finds one by one."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows
from tensordict import TensorDict
from torch import Tensor

from agents.supervised.gradients import LossGradients
from agents.supervised.networks import FeatureNetwork, make_network

SHAPES = {"fc": (1, 8, 8), "resnet18": (3, 8, 8)}
for_each_network = pytest.mark.parametrize("name", list(SHAPES))


def make_items(count: int, shape: tuple[int, ...], num_classes: int | None):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (count, *shape), generator=generator)
    if num_classes is None:
        targets = torch.rand(count, generator=generator)
    else:
        targets = torch.randint(num_classes, (count,), generator=generator)
    return TensorDict(
        {"observation": images.to(torch.uint8), "target": targets}, batch_size=[count]
    )


def one_gradient(
    network: FeatureNetwork, items: TensorDict, num_classes: int | None
) -> Tensor:
    """Gradient of the mean loss of items, written out."""
    twin = copy.deepcopy(network).eval()
    _, outputs = twin(items["observation"].float() / 255)
    if num_classes is None:
        loss = (outputs[:, 0] - items["target"]).square().mean()
    else:
        loss = -F.log_softmax(outputs, 1)[range(len(items)), items["target"]].mean()
    found = torch.autograd.grad(loss, list(twin.parameters()))
    return torch.cat([part.flatten() for part in found])


@pytest.mark.parametrize(
    ("name", "num_classes"), [("fc", 7), ("fc", None), ("resnet18", 7)]
)
def test_every_row_is_what_autograd_finds(name: str, num_classes: int | None) -> None:
    network = make_network(name, SHAPES[name], num_classes or 1, seed=0)
    items = make_items(2, SHAPES[name], num_classes)
    gradients = LossGradients(network, num_classes)
    for groups in (items.unsqueeze(1), items.unsqueeze(0)):
        expected = [one_gradient(network, group, num_classes) for group in groups]
        torch.testing.assert_close(
            gradients(groups), torch.stack(expected), rtol=1e-3, atol=1e-5
        )


@pytest.mark.parametrize("groups", [4, 1])
@pytest.mark.parametrize("training", [True, False])
@for_each_network
def test_the_network_is_left_as_it_was(name: str, training: bool, groups: int) -> None:
    network = make_network(name, SHAPES[name], 7, seed=0).train(training)
    before = copy.deepcopy(network.state_dict())
    items = make_items(4, SHAPES[name], 7).reshape(groups, -1)
    found = LossGradients(network, 7)(items)
    assert network.training == training
    assert all(part.grad is None for part in network.parameters())
    assert not found.requires_grad
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key])


@pytest.mark.parametrize("groups", [4, 1])
def test_the_mode_is_restored_after_an_error(groups: int) -> None:
    network = make_network("fc", (1, 8, 8), 7, seed=0).train()
    with pytest.raises(RuntimeError):
        LossGradients(network, 7)(make_items(4, (1, 9, 9), 7).reshape(groups, -1))
    assert network.training


def test_it_works_without_grad_and_follows_the_network() -> None:
    network = make_network("fc", (1, 8, 8), 7, seed=0)
    items = make_items(3, (1, 8, 8), 7)
    gradients = LossGradients(network, 7)
    with torch.no_grad():
        first = gradients(items.unsqueeze(1))
        network.head.weight.mul_(2)
        second = gradients(items.unsqueeze(1))
    expected = torch.stack([one_gradient(network, items[k : k + 1], 7) for k in (0, 1)])
    assert not torch.equal(first, second)
    torch.testing.assert_close(second[:2], expected)


def test_rows_of_several_numbers_are_what_autograd_finds() -> None:
    network = make_network("mlp", (5,), 3, seed=0)
    generator = torch.Generator().manual_seed(0)
    items = TensorDict(
        {
            "observation": torch.rand(6, 5, generator=generator),
            "target": torch.rand(6, 3, generator=generator),
        },
        batch_size=[6],
    )
    found = LossGradients(network, None)(items.reshape(2, 3))
    for row, group in zip(found, items.reshape(2, 3), strict=True):
        error = network(group["observation"])[1] - group["target"]
        loss = error.square().sum() / error.numel()
        slopes = torch.autograd.grad(loss, list(network.parameters()))
        expected = torch.cat([slope.flatten() for slope in slopes])
        torch.testing.assert_close(row, expected)


def test_parameters_that_are_not_trained_have_no_gradient() -> None:
    network = make_network("fc", (1, 8, 8), 7, seed=0)
    items = make_items(3, (1, 8, 8), 7).unsqueeze(1)
    whole = LossGradients(network, 7)(items)
    network.body.requires_grad_(False)
    head = LossGradients(network, 7)(items)
    assert head.shape == (3, 7 * 101)
    torch.testing.assert_close(head, whole[:, -7 * 101 :])


@pytest.mark.parametrize("count", [3, 1])
def test_parameters_that_are_not_used_have_gradient_0(count: int) -> None:
    network = make_network("fc", (1, 8, 8), 7, seed=0)
    items = make_items(count, (1, 8, 8), 7).unsqueeze(1)
    used = LossGradients(network, 7)(items)
    network.unused = torch.nn.Parameter(torch.ones(2))
    found = LossGradients(network, 7)(items)
    assert torch.equal(found, torch.cat([torch.zeros(count, 2), used], 1))


def test_one_group_needs_no_grad_mode_and_is_a_row_of_several() -> None:
    gradients = LossGradients(make_network("fc", (1, 8, 8), 7, seed=0), 7)
    items = make_items(6, (1, 8, 8), 7).reshape(2, 3)
    with torch.no_grad():
        one, several = gradients(items[:1]), gradients(items)
    torch.testing.assert_close(one, several[:1])


@pytest.mark.parametrize("groups", [4, 1])
def test_inference_mode_is_no_trouble(groups: int) -> None:
    gradients = LossGradients(make_network("fc", (1, 8, 8), 7, seed=0), 7)
    expected = gradients(make_items(4, (1, 8, 8), 7).reshape(groups, -1))
    with torch.inference_mode():
        items = make_items(4, (1, 8, 8), 7).reshape(groups, -1)
        inside = gradients(items)
    torch.testing.assert_close(inside, expected)
    torch.testing.assert_close(gradients(items), expected)
