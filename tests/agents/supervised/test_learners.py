"""Learners by name, and what is common to all of them.

What each one minimizes is in ``test_derpp.py`` and ``test_er.py``.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from agents.runs.stopwatch import Stopwatch
from agents.supervised.gradients import LossGradients
from agents.supervised.learner import LEARNERS, Learner, make_learner
from agents.supervised.networks import make_network
from agents.supervised.replay_learner import ReplayLearner
from info_replay import SelectiveReplayBuffer
from tests.agents.supervised.helpers import (
    Batch,
    assert_same_state,
    batches,
    make_memory,
    parameters,
)

ALL = ("der++", "er", "er-ace", "finetune")
for_each_learner = pytest.mark.parametrize("name", ALL)
#: Options of all learners and of a run.
COMMON: dict[str, Any] = {
    "learning_rate": 0.05,
    "alpha": 0.3,
    "beta": 0.5,
    "join": "mean",
    "replay_batch_size": 6,
    "prediction_range": (-1.0, 1.0),
    "device": "cpu",
}


def make(
    name: Any, policy: str | None = "infors", *, network: Any = "fc", **options: Any
) -> Any:
    feature, init = options.pop("feature", None), options.pop("init", 0)
    made = make_network(network, (1, 8, 8), 10, seed=init, feature=feature)
    memory = None
    if policy is not None:
        memory = make_memory(policy, seed=init, gradients=LossGradients(made, 10))
    options = {**COMMON, "num_classes": 10, **options}
    return make_learner(name, made, memory, **options)


def follow(learner: Learner, stream: list[Batch]) -> None:
    for observation, target in stream:
        learner.act(observation)
        learner.learn(observation, target)


# -- by name --------------------------------------------------------------------------


def test_our_learners_are_found_by_their_names() -> None:
    assert LEARNERS.names() == list(ALL)
    made = [make(name) for name in ALL]
    assert len({type(learner) for learner in made}) == len(ALL)
    assert all(isinstance(learner, ReplayLearner) for learner in made)


def test_a_learner_gets_the_options_that_it_asks_for() -> None:
    learner = make("der++")
    assert (learner.alpha, learner.beta) == (0.3, 0.5)
    assert learner.optimizer.param_groups[0]["lr"] == 0.05
    assert make("er", join="sum").join == "sum"


class Own(ReplayLearner):
    """A learner of the user's, which replays with a weight of its own."""

    def __init__(self, *parts: Any, weight: float, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.weight = weight

    def learn(self, observation: Any, target: Any, mask: Any = None) -> None:
        batch = self.receive(observation, target, mask)
        if batch is None:
            return
        self.forward(batch)
        loss = self.loss(batch.outputs, batch.targets)
        draws = self.draw()
        self.forward(*draws)
        for draw in draws:
            loss = loss + self.weight * self.loss(draw.outputs, draw.targets)
        self.step(loss)
        self.write_back(draws)
        self.offer(batch)


@pytest.mark.parametrize("name", [Own, f"{__name__}:Own"])
def test_a_learner_of_the_users_is_made_and_learns_like_ours(name: Any) -> None:
    own, ours = make(name, weight=0.5), make("er", join="sum")
    for learner in (own, ours):
        follow(learner, batches(5))
    assert_same_state(own.state_dict(), ours.state_dict())


class Majority:
    """Follows the protocol and nothing else: predicts the most frequent label."""

    def __init__(self, network: nn.Module, memory: Any, num_classes: int) -> None:
        self.network, self.memory, self.stopwatch = network, memory, Stopwatch()
        self.counts = np.zeros(num_classes)

    def act(self, observation: Any) -> Any:
        return np.full(len(observation), self.counts.argmax())

    predict = act

    def learn(self, observation: Any, target: Any, mask: Any = None) -> None:
        self.counts += np.bincount(target, minlength=len(self.counts))

    def check_finite(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {"counts": torch.from_numpy(self.counts)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.counts = state_dict["counts"].numpy()


def test_a_class_that_follows_the_protocol_is_a_learner() -> None:
    learner = make(Majority, None)
    follow(learner, [(np.zeros((3, 64), np.float32), np.array([7, 2, 7]))])
    assert learner.act(np.zeros((2, 64))).tolist() == [7, 7]


class NoLearner:
    """Lacks most of the protocol."""

    def __init__(self, network: Any, memory: Any) -> None:
        self.network = network

    def act(self) -> None: ...


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("er-acr", {}, "learner must be 'der.*got 'er-acr'; did you mean 'er-ace'"),
        ("er", {"jion": "sum"}, "no learner has an option 'jion'.*mean 'join'"),
        (Own, {}, "learner 'Own' needs the option 'weight'"),
        (NoLearner, {}, "'NoLearner' must follow.*it has no learn, state_dict"),
    ],
)
def test_a_learner_that_cannot_be_made_is_refused(
    name: Any, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValueError, match=expected):
        make(name, **options)


# -- what all have in common ----------------------------------------------------------


def normalizing(num_outputs: int) -> nn.Module:
    layers = nn.Flatten(), nn.Linear(64, 20), nn.BatchNorm1d(20), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(20, num_outputs))


NORMALIZING: dict[str, Any] = {"network": normalizing, "feature": "3"}


@pytest.mark.parametrize("augmented", [False, True])
@pytest.mark.parametrize("options", [{}, NORMALIZING])
@for_each_learner
def test_predicting_first_changes_nothing(
    name: str, options: dict[str, Any], augmented: bool
) -> None:
    one, two = (make(name, **options, augmented=augmented) for _ in range(2))
    for observation, label in batches(3):
        one.act(observation)
        one.predict(observation)
        one.learn(observation, label)
        two.learn(observation, label)
    assert_same_state(one.state_dict(), two.state_dict())


@pytest.mark.parametrize("options", [{}, NORMALIZING])
@for_each_learner
def test_padding_is_neither_learned_nor_stored(
    name: str, options: dict[str, Any]
) -> None:
    one, two = (make(name, **options) for _ in range(2))
    for observation, label in batches(4):
        padded = np.concatenate([observation, np.full_like(observation[:2], 99)])
        assert one.act(padded).shape == (10,)
        one.learn(padded, np.concatenate([label, [-1, -1]]))
        one.learn(padded, np.full(10, -1))
        two.learn(observation, label)
    assert_same_state(one.state_dict(), two.state_dict())


def saved(learner: Learner) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(learner.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


class Dropping(nn.Module):
    """A network of the user's with random layers of two kinds."""

    def __init__(self, input_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(64, 20)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(20, num_outputs)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.drop(self.first(inputs.flatten(1)).relu())
        return self.last(nn.functional.dropout(hidden, 0.1, self.training))


class AlwaysDropping(Dropping):
    """Random in evaluation too; normalizes, so that a batch of one is at rest."""

    def __init__(self, input_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__(input_shape, num_outputs)
        self.norm = nn.BatchNorm1d(64)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        inputs = self.norm(inputs.flatten(1))
        return super().forward(nn.functional.dropout(inputs, 0.5))


DROPPING: dict[str, Any] = {"network": Dropping, "feature": "drop"}
ALWAYS_DROPPING: dict[str, Any] = {"network": AlwaysDropping, "feature": "drop"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"augmented": True, "policy": "gss"},
        {"policy": None},
        {**NORMALIZING, "augmented": True, "policy": "rs"},
        DROPPING,
        ALWAYS_DROPPING,
    ],
)
@for_each_learner
def test_a_saved_learner_goes_on_bit_for_bit(
    name: str, options: dict[str, Any]
) -> None:
    stream = batches(6)
    learner = make(name, **options)
    follow(learner, stream[:3])
    other = make(name, **options, init=9, seed=9)
    other.act(stream[0][0])
    other.load_state_dict(saved(learner))
    for each in (learner, other):
        torch.manual_seed(id(each) % 1000)  # what others draw does not matter
        follow(each, stream[3:])
    assert_same_state(other.state_dict(), learner.state_dict())


@pytest.mark.parametrize("options", [DROPPING, ALWAYS_DROPPING])
def test_random_layers_draw_from_the_learners_own_numbers(
    options: dict[str, Any],
) -> None:
    one, two, three = (make("er", **options, seed=seed) for seed in (1, 1, 2))
    before = torch.get_rng_state()
    for each in (one, two, three):
        follow(each, batches(4) + batches(1, size=1))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(parameters(one.network), parameters(two.network))
    assert not torch.allclose(parameters(one.network), parameters(three.network))


def test_each_training_pass_drops_something_else_and_none_does_at_rest() -> None:
    learner = make("finetune", None, **DROPPING, learning_rate=0.0)
    inputs, labels = batches(1)[0]
    passes = []
    for _ in range(2):
        batch = learner.receive(inputs, labels, None)
        learner.forward(batch)
        passes.append(batch.outputs.detach())
    assert not torch.equal(*passes)
    at_rest = learner.network.eval()(torch.from_numpy(inputs) / 255)[1]
    assert learner.predict(inputs).tolist() == at_rest.argmax(1).tolist()
    assert learner.act(inputs).tolist() == at_rest.argmax(1).tolist()


def test_a_network_that_is_random_at_rest_predicts_by_the_seed() -> None:
    inputs, labels = batches(1, size=200)[0]
    acted, predicted = [], []
    for torchs in (1, 2):
        learner = make("er", **ALWAYS_DROPPING)
        torch.manual_seed(torchs)
        acted.append([learner.act(inputs).tolist() for _ in range(2)])
        predicted += [learner.predict(inputs).tolist() for _ in range(2)]
    assert acted[0] == acted[1]
    assert acted[0][0] != acted[0][1]
    # The same whenever it is asked for, unless the network has learned.
    assert all(each == predicted[0] for each in predicted)
    learner.learn(inputs, labels)
    assert learner.predict(inputs).tolist() != predicted[0]


def test_predictions_of_a_network_that_is_random_at_rest_change_no_later_step() -> None:
    one, two = (make("der++", **ALWAYS_DROPPING) for _ in range(2))
    for observation, label in batches(3):
        one.predict(observation)
        follow(one, [(observation, label)])
        follow(two, [(observation, label)])
    assert_same_state(one.state_dict(), two.state_dict())


def test_a_state_of_a_learner_without_randomness_still_loads() -> None:
    learner, other = (make("der++", **NORMALIZING, init=n) for n in (0, 1))
    follow(learner, batches(2))
    state = saved(learner)
    del state["randomness"]  # as older versions saved it
    other.load_state_dict(state)
    for each in (learner, other):
        follow(each, batches(3)[2:])
    assert_same_state(other.state_dict(), learner.state_dict())


def test_time_is_counted_for_learning_and_for_the_memory() -> None:
    learner = make("er")
    assert learner.stopwatch.seconds == {}
    follow(learner, batches(2))
    assert set(learner.stopwatch.seconds) == {"learning", "memory"}
    assert min(learner.stopwatch.seconds.values()) > 0


def test_fine_tuning_leaves_a_memory_alone() -> None:
    memory = make_memory("rs")
    network = make_network("fc", (1, 8, 8), 10, seed=0)
    learner = make_learner("finetune", network, memory, num_classes=10)
    follow(learner, batches(2))
    assert learner.memory is None
    assert len(memory) == 0
    other = make("der++", None, learning_rate=0.1)
    follow(other, batches(2))
    assert torch.equal(parameters(network), parameters(other.network))


# -- several numbers to predict -------------------------------------------------------


def several(count: int) -> list[Batch]:
    """Batches whose targets are three numbers."""
    rng = np.random.default_rng(0)
    shapes = [(8, 5), (8, 3)]
    return [
        (inputs, targets)
        for inputs, targets in (
            (rng.standard_normal(shape, np.float32) for shape in shapes)
            for _ in range(count)
        )
    ]


def regression(name: str, policy: str | None, outputs: int = 3, **options: Any) -> Any:
    network = make_network("mlp", (5,), outputs, seed=0)
    memory = None
    if policy is not None:
        gradients = LossGradients(network, None)
        memory = make_memory(policy, num_classes=None, gradients=gradients)
    return make_learner(name, network, memory, num_classes=None, **options)


@pytest.mark.parametrize("policy", ["rs", "gss", "infors", "infogs"])
@pytest.mark.parametrize("name", ["der++", "er", "finetune"])
def test_several_numbers_are_predicted_learned_and_stored(
    name: str, policy: str
) -> None:
    learner = regression(name, policy)
    follow(learner, several(6))
    assert learner.act(several(1)[0][0]).shape == (8, 3)
    if learner.memory is not None:
        assert learner.memory[:]["target"].shape == (20, 3)


def test_the_loss_of_several_numbers_is_the_mean_over_all_of_them() -> None:
    learner = regression("finetune", None, learning_rate=0.1)
    ((inputs, targets),) = several(1)
    weight = learner.network.head.weight
    outputs = learner.network(torch.from_numpy(inputs))[1]
    error = (outputs - torch.from_numpy(targets)).square().sum() / (8 * 3)
    expected = weight.detach() - 0.1 * torch.autograd.grad(error, weight)[0]
    learner.learn(inputs, targets)
    torch.testing.assert_close(weight.detach(), expected)


def test_a_mask_leaves_out_rows_of_several_numbers() -> None:
    one, two = (regression("er", "rs") for _ in range(2))
    for inputs, targets in several(3):
        one.learn(inputs, targets, np.arange(8) < 5)
        two.learn(inputs[:5], targets[:5])
    assert_same_state(one.state_dict(), two.state_dict())


@pytest.mark.parametrize(
    ("outputs", "target", "expected"),
    [
        (3, np.zeros((8, 2), np.float32), r"shape \(8, 3\), got \(8, 2\)"),
        (3, np.zeros(8, np.float32), r"shape \(8, 3\), got \(8,\)"),
        (1, np.zeros((8, 1), np.float32), r"shape \(8,\), got \(8, 1\)"),
        (3, np.zeros((8, 3)), "float32, got float64"),
    ],
)
def test_numbers_of_another_shape_or_type_are_refused(
    outputs: int, target: Any, expected: str
) -> None:
    learner = regression("er", None, outputs)
    before = parameters(learner.network)
    with pytest.raises(ValueError, match=expected):
        learner.learn(several(1)[0][0], target)
    assert torch.equal(parameters(learner.network), before)


def test_predictions_are_cut_to_their_range() -> None:
    inputs = np.zeros((2, 5), np.float32)
    low, high = np.array([-1.0, 0.0, 2.0]), np.array([1.0, 0.5, 3.0])
    learner = regression("er", None, prediction_range=(low, high))
    learner.network.head.bias.data.copy_(torch.tensor([9.0, -9.0, 2.5]))
    learner.network.head.weight.data.zero_()
    assert learner.predict(inputs).tolist() == [[1.0, 0.0, 2.5]] * 2
    learner = regression("er", None, 1, prediction_range=(5, 6))
    assert learner.act(inputs).tolist() == [5, 5]


@pytest.mark.parametrize(
    "wrong", [(1.0, -1.0), ([0.0, 1.0], [1.0]), (0.0, float("nan"))]
)
def test_a_range_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="prediction_range must be the lowest"):
        regression("er", None, prediction_range=wrong)


# -- features that never change -------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "options", "written"),
    [
        ("linear", {}, False),
        ("mlp", {}, True),
        ("linear", {"augmented": True}, True),  # another feature each time
    ],
)
@pytest.mark.parametrize("name", ["der++", "er", "er-ace"])
def test_features_are_written_back_only_where_they_change(
    name: str,
    network: str,
    options: dict[str, Any],
    written: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(
        SelectiveReplayBuffer, "update_features", lambda *given: calls.append(given)
    )
    learner = make(name, network=network, **options)
    follow(learner, batches(3))
    assert bool(calls) == written
    assert len(learner.memory) == 20


def test_a_learner_of_fixed_features_does_what_one_that_writes_them_does() -> None:
    one, two = (make("er", network="linear") for _ in range(2))
    two.network.fixed_features = False
    two = make_learner(
        "er", two.network, two.memory, num_classes=10, **{**COMMON, "join": "mean"}
    )
    for each in (one, two):
        follow(each, batches(8))
    assert torch.equal(parameters(one.network), parameters(two.network))
    assert torch.equal(one.memory[:]["target"], two.memory[:]["target"])
