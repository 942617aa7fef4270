"""ER and ER-ACE learn by their losses, as plain loops with the same draws do."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import Tensor, nn

from agents.supervised.er import ExperienceReplay
from agents.supervised.er_ace import AsymmetricReplay
from agents.supervised.networks import make_network
from info_replay import SelectiveReplayBuffer
from tests.agents.supervised.helpers import Batch, batches, make_memory, parameters

SIZE = 6  # of a draw

#: Gives the loss from the network, the batch and the draw, ``None`` at first.
PlainLoss = Callable[[Any, Tensor, Tensor, TensorDict | None], Tensor]


def entropies(outputs: Tensor, labels: Tensor, among: set[int]) -> list[Tensor]:
    """Cross-entropies, one sample after the other, over some classes."""
    found = []
    for row, label in zip(outputs, labels.tolist(), strict=True):
        total = torch.stack([row[each].exp() for each in sorted(among)]).sum()
        found.append(total.log() - row[label])
    return found


def mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).sum() / len(values)


def plain_run(
    network: Any, memory: SelectiveReplayBuffer, stream: list[Batch], loss_of: PlainLoss
) -> None:
    """Replay without anything of the learners."""
    for batch in stream:
        inputs, labels = (torch.from_numpy(part) for part in batch)
        draw = memory.sample(SIZE) if len(memory) else None
        loss = loss_of(network, inputs / 255, labels, draw)
        weights = list(network.parameters())
        slopes = torch.autograd.grad(loss, weights)
        items = {"observation": inputs, "target": labels}
        memory.extend(TensorDict(items, batch_size=[len(labels)]))
        for weight, slope in zip(weights, slopes, strict=True):
            weight.data -= 0.1 * slope


def joined_mean(
    network: Any, inputs: Tensor, labels: Tensor, draw: TensorDict | None
) -> Tensor:
    if draw is not None:
        inputs = torch.cat([inputs, draw["observation"] / 255])
        labels = torch.cat([labels, draw["target"]])
    return mean(entropies(network(inputs)[1], labels, set(range(10))))


def sum_of_means(beta: float) -> PlainLoss:
    def loss(
        network: Any, inputs: Tensor, labels: Tensor, draw: TensorDict | None
    ) -> Tensor:
        total = mean(entropies(network(inputs)[1], labels, set(range(10))))
        if draw is not None:
            outputs = network(draw["observation"] / 255)[1]
            total += beta * mean(entropies(outputs, draw["target"], set(range(10))))
        return total

    return loss


def asymmetric(
    network: Any, inputs: Tensor, labels: Tensor, draw: TensorDict | None
) -> Tensor:
    total = mean(entropies(network(inputs)[1], labels, set(labels.tolist())))
    if draw is not None:
        outputs = network(draw["observation"] / 255)[1]
        total += mean(entropies(outputs, draw["target"], set(range(10))))
    return total


def normalizing(num_outputs: int) -> nn.Module:
    """Batch normalization makes a difference between one batch and two."""
    layers = nn.Flatten(), nn.Linear(64, 20), nn.BatchNorm1d(20), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(20, num_outputs))


@pytest.mark.parametrize(("network", "feature"), [("fc", None), (normalizing, "3")])
@pytest.mark.parametrize(
    ("make", "options", "loss"),
    [
        (ExperienceReplay, {}, joined_mean),
        (ExperienceReplay, {"join": "sum"}, sum_of_means(1.0)),
        (ExperienceReplay, {"join": "sum", "beta": 0.3}, sum_of_means(0.3)),
        (AsymmetricReplay, {}, asymmetric),
    ],
)
def test_parameters_are_those_of_a_plain_loop(
    make: Callable[..., Any],
    options: dict[str, Any],
    loss: PlainLoss,
    network: Any,
    feature: str | None,
) -> None:
    start = make_network(network, (1, 8, 8), 10, seed=0, feature=feature)
    memory, plain = make_memory("rs"), copy.deepcopy(start)
    learner = make(start, memory, num_classes=10, replay_batch_size=SIZE, **options)
    stream = batches(12)
    for observation, label in stream:
        learner.act(observation)
        learner.learn(observation, label)
    same = make_memory("rs")
    plain_run(plain, same, stream, loss)
    torch.testing.assert_close(parameters(start), parameters(plain), rtol=0, atol=1e-5)
    assert torch.equal(memory[:]["observation"], same[:]["observation"])


def test_the_mean_over_both_is_half_the_sum_of_the_means() -> None:
    """With as many replayed samples as new ones, and a network without curvature."""
    moved = []
    for options in ({"join": "mean"}, {"join": "sum"}):
        network = make_network("linear", (10,), 1, seed=0)
        memory = make_memory("rs", num_classes=None)
        learner = ExperienceReplay(
            network, memory, num_classes=None, replay_batch_size=8, **options
        )
        first, second = batches(2, env="SplitDiabetes")
        learner.remember(*first)
        before = parameters(network)
        learner.learn(*second)
        moved.append(parameters(network) - before)
    torch.testing.assert_close(2 * moved[0], moved[1])


def test_new_samples_leave_the_outputs_of_absent_classes_alone() -> None:
    network = make_network("fc", (1, 8, 8), 10, seed=0)
    learner = AsymmetricReplay(network, None, num_classes=10)
    inputs, _ = batches(1)[0]
    before = copy.deepcopy(network.head)
    learner.learn(inputs, np.array([3, 3, 5, 5, 3, 5, 3, -1]))
    changed = (network.head.weight != before.weight).any(1)
    assert changed.nonzero().flatten().tolist() == [3, 5]
    # Of one class alone there is nothing to compare.
    before = copy.deepcopy(network.head)
    learner.learn(inputs, np.full(8, 4))
    assert torch.equal(network.head.weight, before.weight)


@pytest.mark.parametrize("make", [ExperienceReplay, AsymmetricReplay])
def test_features_of_the_draw_are_written_back_and_no_others(
    make: Callable[..., Any],
) -> None:
    network = make_network("fc", (1, 8, 8), 10, seed=0)
    memory = make_memory("infors", 40)
    learner = make(
        network, memory, num_classes=10, replay_batch_size=3, learning_rate=0.5
    )
    first, second = batches(2, size=16)
    learner.learn(*first)
    stale = memory[:]["feature"].clone()
    fresh = network(memory[:]["observation"] / 255)[0].detach()
    learner.learn(*second)
    found = memory[:]["feature"][:16]
    renewed = (found != stale).any(1)
    assert renewed.sum() == 3
    torch.testing.assert_close(found[renewed], fresh[renewed])


@pytest.mark.parametrize(
    ("make", "options", "expected"),
    [
        (ExperienceReplay, {"join": "max"}, "join must be 'mean' or 'sum', got 'max'"),
        (
            ExperienceReplay,
            {"beta": -1.0},
            "beta must be at least 0 and at most 1e.30, got -1.0",
        ),
        (AsymmetricReplay, {"num_classes": None}, "'er-ace' needs classes"),
    ],
)
def test_a_wrong_option_is_refused(
    make: Callable[..., Any], options: dict[str, Any], expected: str
) -> None:
    network = make_network("fc", (4,), 3, seed=0)
    with pytest.raises(ValueError, match=expected):
        make(network, None, **{"num_classes": 3, **options})


def test_a_network_whose_parameters_are_all_frozen_is_refused() -> None:
    network: nn.Module = make_network("fc", (4,), 3, seed=0).requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter to train"):
        ExperienceReplay(network, None, num_classes=3)  # type: ignore[arg-type]
