"""DER++ learns by its loss, and the memory gets what it saw in passing."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import Tensor
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import RandomSampler

from agents.supervised.derpp import DERPlusPlusAgent
from agents.supervised.learner import DivergenceError
from agents.supervised.networks import FeatureNetwork
from agents.supervised.samplers import SubsetSampler
from info_replay import (
    InfoReservoirWriter,
    ReservoirWriter,
    SelectiveReplayBuffer,
    make_replay_buffer,
)
from tests.agents.supervised.helpers import (
    Batch,
    assert_same_state,
    batches,
    copied,
    make_agent,
    make_memory,
    parameters,
)

REGRESSION: dict[str, Any] = {"shape": (10,), "num_classes": None}


class RecordingSampler(SubsetSampler):
    """Remembers the slots of every draw."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[Tensor] = []

    def sample(self, storage: Any, batch_size: int) -> tuple[Any, dict[str, Any]]:
        slots, info = super().sample(storage, batch_size)
        self.draws.append(slots.clone())
        return slots, info


def criterion(outputs: Tensor, targets: Tensor, num_classes: int | None) -> Tensor:
    if num_classes is None:
        return (outputs[:, 0] - targets).square().mean()
    return -outputs.log_softmax(1)[range(len(targets)), targets].mean()


def plain_step(
    network: FeatureNetwork,
    memory: SelectiveReplayBuffer | None,
    batch: Batch,
    *,
    num_classes: int | None = 10,
    learning_rate: float = 0.1,
    alpha: float = 0.3,
    beta: float = 1.0,
    size: int = 6,
) -> None:
    """One step of DER++ as the paper writes it, without anything of the agent."""
    inputs, targets = (torch.from_numpy(part) for part in batch)

    def outputs_of(stored: Tensor) -> Tensor:
        bound = 255.0 if stored.dtype == torch.uint8 else 1.0
        outputs: Tensor = network(stored.float() / bound)[1]
        return outputs

    outputs = outputs_of(inputs)
    loss = criterion(outputs, targets, num_classes)
    if memory is not None and len(memory) and alpha:
        draw = memory.sample(size)
        error = outputs_of(draw["observation"]) - draw["logits"]
        loss = loss + alpha * error.square().mean()
    if memory is not None and len(memory) and beta:
        draw = memory.sample(size)
        again = outputs_of(draw["observation"])
        loss = loss + beta * criterion(again, draw["target"], num_classes)
    weights = list(network.parameters())
    for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
        weight.data -= learning_rate * slope
    if memory is not None:
        items = {"observation": inputs, "target": targets, "logits": outputs.detach()}
        memory.extend(TensorDict(items, batch_size=[len(targets)]))


@pytest.mark.parametrize(
    ("policy", "alpha", "beta"),
    [
        ("rs", 0.3, 1.0),
        ("rs", 0.0, 1.0),
        ("rs", 0.7, 0.0),
        ("rs", 0.0, 0.0),
        ("wrs", 1.0, 0.3),
        ("cbrs", 0.3, 1.0),
        (None, 0.3, 1.0),
    ],
)
def test_parameters_are_those_of_a_plain_loop(
    policy: str | None, alpha: float, beta: float
) -> None:
    agent = make_agent(policy, alpha=alpha, beta=beta)
    network, memory = copied(agent.network), make_memory(policy) if policy else None
    for batch in batches(20):
        agent.learn(*batch)
        plain_step(network, memory, batch, alpha=alpha, beta=beta)
    torch.testing.assert_close(
        parameters(agent), parameters(network), rtol=0, atol=1e-6
    )
    if agent.memory is not None and memory is not None:
        held, expected = agent.memory[:], memory[:]
        assert torch.equal(held["observation"], expected["observation"])
        torch.testing.assert_close(held["logits"], expected["logits"])


def test_parameters_are_those_of_a_plain_loop_for_regression() -> None:
    agent, memory = make_agent("rs", **REGRESSION), make_memory("rs")
    network = copied(agent.network)
    for batch in batches(10, env="SplitDiabetes"):
        agent.learn(*batch)
        plain_step(network, memory, batch, num_classes=None)
    torch.testing.assert_close(
        parameters(agent), parameters(network), rtol=0, atol=1e-6
    )


def test_each_step_makes_two_draws_that_differ() -> None:
    sampler = RecordingSampler()
    agent = make_agent(make_memory("rs", 50, sampler=sampler))
    for batch in batches(10):
        agent.learn(*batch)
    # None from the empty memory, then two per step.
    assert len(sampler.draws) == 2 * 9
    pairs = zip(sampler.draws[::2], sampler.draws[1::2], strict=True)
    assert sum(torch.equal(one, two) for one, two in pairs) < 2
    assert all(len(draw.unique()) == 6 for draw in sampler.draws)


# -- draws that have the whole memory --------------------------------------------------


def draws_of(agent: DERPlusPlusAgent, steps: int = 3) -> list[Any]:
    """What the agent would draw next, after some steps with batches of 8."""
    for batch in batches(steps):
        agent.learn(*batch)
    return agent.draw(2)


def test_draws_that_would_both_have_all_items_are_one_and_passed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampler = RecordingSampler()
    agent = make_agent(make_memory("rs", 20, sampler=sampler), replay_batch_size=20)
    one, two = draws_of(agent)
    assert one is two
    assert sorted(one.items["index"].tolist()) == [*range(20)]
    sampler.draws.clear()
    sizes: list[int] = []
    forward = agent.network.forward

    def counted(inputs: Tensor) -> tuple[Tensor, Tensor]:
        sizes.append(len(inputs))
        return forward(inputs)

    monkeypatch.setattr(agent.network, "forward", counted)
    agent.learn(*batches(4)[3])
    assert sizes == [8, 20]  # the batch, and the memory once
    assert len(sampler.draws) == 1


def with_dropout(shape: tuple[int, ...], num_outputs: int) -> FeatureNetwork:
    layers = torch.nn.Flatten(), torch.nn.Linear(64, 20), torch.nn.Dropout()
    model = torch.nn.Sequential(*layers, torch.nn.Linear(20, num_outputs))
    return FeatureNetwork.wrap(model, "2")


@pytest.mark.parametrize(
    ("sampler", "chosen"),
    [
        (SubsetSampler, {"network": "resnet18"}),
        (SubsetSampler, {"network": f"{__name__}:with_dropout"}),
        (SubsetSampler, {"augmented": True}),
        (SubsetSampler, {"replay_batch_size": 19}),
        (RandomSampler, {}),  # with replacement
    ],
    ids=["batch normalization", "dropout", "augmentation", "smaller", "with repeats"],
)
def test_draws_that_may_differ_stay_two(
    sampler: Callable[[], Any], chosen: dict[str, Any]
) -> None:
    memory = make_memory("rs", 20, sampler=sampler())
    agent = make_agent(memory, **{"replay_batch_size": 20, **chosen})
    one, two = draws_of(agent)
    assert one is not two
    assert not torch.equal(one.items["index"], two.items["index"])


def test_another_sampler_that_the_memory_gets_later_counts() -> None:
    memory = make_memory("rs", 20)
    agent = make_agent(memory, replay_batch_size=20)
    one, two = draws_of(agent)
    assert one is two
    memory.set_sampler(RandomSampler())
    one, two = agent.draw(2)
    assert one is not two


@pytest.mark.parametrize("problem", ["classes", "numbers"])
@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 1.0), (0.7, 0.0), (0.0, 0.5)])
def test_the_step_is_that_of_two_draws_on_their_own(
    problem: str, alpha: float, beta: float
) -> None:
    chosen = REGRESSION if problem == "numbers" else {}
    env = "SplitDiabetes" if problem == "numbers" else "SplitDigits"
    weights = {"alpha": alpha, "beta": beta}
    agent = make_agent("rs", **chosen, **weights, replay_batch_size=64)
    memory, network = make_memory("rs"), copied(agent.network)
    num_classes = None if problem == "numbers" else 10
    for batch in batches(8, env=env):
        agent.learn(*batch)
        plain_step(network, memory, batch, num_classes=num_classes, size=64, **weights)
        torch.testing.assert_close(
            parameters(agent), parameters(network), rtol=0, atol=1e-6
        )
    # In any order: the policy chose the same items with as many numbers of its own.
    held, expected = agent.memory[:], memory[:]
    assert torch.equal(held["observation"], expected["observation"])


def test_gradients_are_those_of_two_passes_up_to_rounding() -> None:
    agent = make_agent("rs", replay_batch_size=20, learning_rate=0.0)
    draws_of(agent)
    inputs, targets = batches(4)[3]
    network = copied(agent.network).double()

    def outputs_of(stored: Tensor) -> Tensor:
        outputs: Tensor = network(stored.double() / 255)[1]
        return outputs

    first = agent.memory[:].clone()
    second = first[torch.arange(20).flip(0)]  # another order, another pass
    error = outputs_of(first["observation"]) - first["logits"]
    again = criterion(outputs_of(second["observation"]), second["target"], 10)
    new = criterion(outputs_of(torch.from_numpy(inputs)), torch.from_numpy(targets), 10)
    loss = new + 0.3 * error.square().mean() + again
    expected = torch.autograd.grad(loss, list(network.parameters()))
    agent.learn(inputs, targets)
    for parameter, slope in zip(agent.network.parameters(), expected, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad.double(), slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("augmented", [False, True])
def test_after_a_draw_of_all_items_each_has_the_feature_of_its_own_pass(
    augmented: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = make_memory("infors", 40)
    agent = make_agent(
        memory, replay_batch_size=40, learning_rate=0.5, augmented=augmented
    )
    for batch in batches(3):
        agent.learn(*batch)
    stale = memory[:]["feature"].clone()
    fresh = copied(agent.network)(memory[:]["observation"] / 255)[0].detach()
    drawn: list[Any] = []
    draw = agent.draw
    monkeypatch.setattr(agent, "draw", lambda n: drawn.extend(draw(n)) or drawn[-n:])
    agent.learn(*batches(4)[3])
    found = memory[:]["feature"][:24]
    last = drawn[-1]
    torch.testing.assert_close(found[last.items["index"]], last.features.detach())
    assert (found != stale).any(1).all()
    if not augmented:
        torch.testing.assert_close(found, fresh)


# -- the memory -----------------------------------------------------------------------


@pytest.mark.parametrize("way", ["learn", "remember"])
def test_the_memory_gets_what_the_network_gave_before_the_step(way: str) -> None:
    agent = make_agent("infors")
    before = copied(agent.network)
    ((inputs, targets),) = batches(1)
    getattr(agent, way)(inputs, targets)
    features, outputs = before(torch.from_numpy(inputs) / 255)
    held = agent.memory[:]
    assert torch.equal(held["observation"], torch.from_numpy(inputs))
    assert held["observation"].dtype == torch.uint8
    assert torch.equal(held["target"], torch.from_numpy(targets))
    torch.testing.assert_close(held["logits"], outputs.detach())
    torch.testing.assert_close(held["feature"], features.detach())
    after = agent.network(torch.from_numpy(inputs) / 255)[1]
    assert torch.allclose(held["logits"], after, atol=1e-4) == (way == "remember")


def test_the_memory_gets_inputs_that_are_not_augmented() -> None:
    agent = make_agent("infors", augmented=True)
    before = copied(agent.network)
    ((inputs, targets),) = batches(1)
    agent.act(inputs)
    agent.learn(inputs, targets)
    held = agent.memory[:]
    assert torch.equal(held["observation"], torch.from_numpy(inputs))
    # But the outputs are those of the augmented ones that it learned from.
    plain = before(torch.from_numpy(inputs) / 255)[1]
    assert not torch.allclose(held["logits"], plain, atol=1e-4)


def test_features_of_replayed_items_are_refreshed_and_no_others() -> None:
    sampler = RecordingSampler()
    memory = make_memory("infors", 40, sampler=sampler)
    agent = make_agent(memory, replay_batch_size=3, learning_rate=0.5)
    first, second = batches(2, size=16)
    agent.learn(*first)
    stale = memory[:]["feature"].clone()
    before = copied(agent.network)
    fresh = before(memory[:]["observation"] / 255)[0].detach()
    agent.learn(*second)
    drawn = torch.zeros(16, dtype=torch.bool)
    drawn[torch.cat(sampler.draws)] = True
    assert 3 <= drawn.sum() <= 6
    found = memory[:]["feature"][:16]
    torch.testing.assert_close(found[drawn], fresh[drawn])
    assert torch.equal(found[~drawn], stale[~drawn])
    assert not torch.allclose(stale[drawn], fresh[drawn], atol=1e-4)


@pytest.mark.parametrize("alpha", [0.3, 0.0])
@pytest.mark.parametrize("subsets", [True, False])
@pytest.mark.parametrize("recent", [None, 4])
def test_every_slot_of_all_draws_gets_new_features(
    subsets: bool, recent: int | None, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"sampler": SubsetSampler()} if subsets else {}
    memory = make_replay_buffer("infors", 12, num_classes=10, recent=recent, **options)
    agent = make_agent(memory, replay_batch_size=12, alpha=alpha)
    for batch in batches(4):
        agent.learn(*batch)
    drawn: list[Any] = []
    draw = memory.sample
    monkeypatch.setattr(memory, "sample", lambda n: drawn.append(draw(n)) or drawn[-1])
    before = memory[:]["feature"].clone()
    agent.learn(*batches(5)[4])
    slots = torch.cat([each["index"] for each in drawn]).unique()
    changed = (memory[:]["feature"] != before).any(1)
    assert changed[slots].all()


@pytest.mark.parametrize("writer", [None, ReservoirWriter, InfoReservoirWriter])
def test_a_buffer_of_torchrl_is_a_memory_too(
    writer: Callable[..., Any] | None,
) -> None:
    options: dict[str, Any] = {}
    if writer is not None:
        made = writer(num_classes=10) if writer is InfoReservoirWriter else writer()
        made.seed = 0
        options["writer"] = made
    memory = TensorDictReplayBuffer(storage=LazyTensorStorage(12), **options)
    agent = make_agent(memory, replay_batch_size=12)
    for batch in batches(4):
        agent.learn(*batch)
    assert len(memory) == 12
    if writer is InfoReservoirWriter:
        # The next step writes features of the network as it is now.
        before = memory[:].clone()
        fresh = agent.network(before["observation"] / 255)[0].detach()
        agent.learn(*batches(5)[-1])
        same = (memory[:]["observation"] == before["observation"]).flatten(1).all(1)
        now = memory[:]["feature"]
        rows = [row for row in range(12) if same[row]]
        found = [torch.allclose(now[row], fresh[row], atol=1e-5) for row in rows]
        assert sum(found) >= 6  # draws are with replacement: most slots are in one


# -- padding and wrong batches --------------------------------------------------------


def padded(batch: Batch) -> Batch:
    """A batch with two samples of padding at its end."""
    inputs, targets = batch
    more = np.full((2, *inputs.shape[1:]), 99, dtype=inputs.dtype)
    none = np.full(2, -1, dtype=targets.dtype)
    return np.concatenate([inputs, more]), np.concatenate([targets, none])


def test_a_mask_tells_padding_where_targets_are_numbers() -> None:
    one, two = (make_agent("rs", **REGRESSION) for _ in range(2))
    for batch in batches(3, env="SplitDiabetes"):
        one.learn(*padded(batch), np.arange(10) < 8)
        two.learn(*batch)
    assert torch.equal(one.memory[:]["target"], two.memory[:]["target"])
    torch.testing.assert_close(parameters(one), parameters(two), rtol=0, atol=1e-6)


def test_a_batch_of_padding_alone_changes_nothing() -> None:
    agent = make_agent("infors", augmented=True)
    agent.learn(*batches(1)[0])
    state = torch.load(saved(agent), weights_only=True)
    for way in (agent.learn, agent.remember):
        way(batches(1)[0][0], np.full(8, -1))
    assert_same_state(agent.state_dict(), state)


def test_a_last_batch_of_one_is_learned_and_offered_with_batch_normalization() -> None:
    agent = make_agent("rs", network="resnet18")
    first, last = batches(2)
    agent.learn(*first)
    before = parameters(agent)
    buffers = [buffer.clone() for buffer in agent.network.buffers()]
    agent.act(last[0])
    agent.learn(last[0], np.where(np.arange(8) == 3, last[1], -1))
    assert len(agent.memory) == len(first[1]) + 1
    held = agent.memory[-1:]
    assert torch.equal(held["observation"], torch.from_numpy(last[0][3:4]))
    # Its outputs are those of the network at rest; its draws are still batches.
    network = copied(agent.network)
    torch.nn.utils.vector_to_parameters(before, network.parameters())
    for buffer, value in zip(network.buffers(), buffers, strict=True):
        buffer.copy_(value)
    expected = network.eval()(held["observation"] / 255)[1]
    torch.testing.assert_close(held["logits"], expected.detach())
    assert not torch.equal(parameters(agent), before)
    assert agent.network.training


@pytest.mark.parametrize(
    ("chosen", "target", "expected"),
    [
        ({}, np.zeros((8, 1), dtype=np.int64), r"shape \(8,\), got \(8, 1\)"),
        ({}, np.zeros(7, dtype=np.int64), r"shape \(8,\), got \(7,\)"),
        ({}, np.zeros(8, dtype=np.int32), "int64 labels from 0 to 9.*got int32"),
        ({}, np.full(8, 10), "from 0 to 9.*from 10 to 10"),
        ({}, np.full(8, -2), "from 0 to 9.*from -2 to -2"),
        ({"num_classes": None}, np.zeros(8), "must be float32, got float64"),
    ],
)
def test_wrong_targets_are_refused_and_nothing_changes(
    chosen: dict[str, Any], target: Any, expected: str
) -> None:
    agent = make_agent("rs", **chosen)
    before = parameters(agent)
    with pytest.raises(ValueError, match=expected):
        agent.learn(batches(1)[0][0], target)
    assert torch.equal(parameters(agent), before)
    assert len(agent.memory) == 0


# -- divergence -----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["rs", "infors", "infogs", "gss", "wrs"])
def test_training_that_diverges_says_so(policy: str) -> None:
    agent = make_agent(policy, learning_rate=1e6)

    def learn() -> None:
        for batch in batches(20):
            agent.learn(*batch)
            agent.check_finite()

    with pytest.raises(DivergenceError, match="smaller learning_rate"):
        learn()


class Picky(ReservoirWriter):
    """A policy that has an error of its own from the second batch on."""

    def extend(self, data: Any) -> Any:
        if self.reservoir_count:
            raise ValueError("not on Mondays")
        return super().extend(data)


def test_an_error_of_a_memory_is_not_taken_for_divergence() -> None:
    agent = make_agent(SelectiveReplayBuffer(20, writer=Picky()))
    first, second = batches(2)
    agent.learn(*first)
    with pytest.raises(ValueError, match="^not on Mondays$"):
        agent.learn(*second)
    # The same error with a network that is lost.
    agent.network.head.weight.data.fill_(1e20)
    with pytest.raises(DivergenceError, match="not on Mondays"):
        agent.learn(*second)


def test_a_regression_that_diverged_says_so_when_it_should_act() -> None:
    agent = make_agent(None, **REGRESSION)
    agent.network.head.weight.data.fill_(torch.nan)
    with pytest.raises(DivergenceError, match="a prediction is not finite"):
        agent.act(batches(1, env="SplitDiabetes")[0][0])


# -- predicting -----------------------------------------------------------------------


def test_predicted_numbers_are_cut_to_the_actions_there_are() -> None:
    agent = make_agent(None, **REGRESSION)
    agent.network.head.bias.data.fill_(7.0)
    assert (agent.act(np.zeros((3, 10), np.float32)) == 1).all()
    agent.network.head.bias.data.fill_(-7.0)
    assert (agent.predict(np.zeros((3, 10), np.float32)) == -1).all()


def test_what_was_learned_in_between_is_not_forgotten() -> None:
    one, two = (make_agent("infors") for _ in range(2))
    early, late = batches(2)
    one.act(early[0])
    for agent in (one, two):
        agent.learn(*late)
        agent.learn(*early)
    assert_same_state(one.state_dict(), two.state_dict())


@pytest.mark.parametrize("network", ["fc", "resnet18"])
def test_predictions_are_those_of_the_network_at_rest(network: str) -> None:
    agent = make_agent("rs", network=network)
    *earlier, (inputs, _) = batches(3)
    for batch in earlier:
        agent.learn(*batch)
    state = copied(agent.network).state_dict()
    found = agent.act(inputs)
    assert_same_state(agent.network.state_dict(), state)
    assert agent.network.training
    expected = copied(agent.network).eval()(torch.from_numpy(inputs) / 255)[1]
    assert found.tolist() == expected.argmax(1).tolist()
    assert agent.predict(inputs).tolist() == found.tolist()


# -- resuming and wrong options --------------------------------------------------------


def saved(agent: DERPlusPlusAgent) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(agent.state_dict(), file)
    file.seek(0)
    return file


def test_a_state_without_a_part_is_refused_and_nothing_changes() -> None:
    agent, other = make_agent("rs"), make_agent("rs", init=1)
    state = other.state_dict()
    del state["generator"]
    before = parameters(agent)
    with pytest.raises(ValueError, match="no 'generator'"):
        agent.load_state_dict(state)
    assert torch.equal(parameters(agent), before)


@pytest.mark.parametrize(
    ("name", "value", "range_"),
    [
        ("learning_rate", -0.1, "0 and at most 1e.30"),
        ("learning_rate", 1e39, "0 and at most 1e.30"),
        ("alpha", float("nan"), "0 and at most 1e.30"),
        ("beta", float("inf"), "0 and at most 1e.30"),
        ("replay_batch_size", 0, "1"),
    ],
)
def test_a_wrong_option_is_refused(name: str, value: float, range_: str) -> None:
    got = str(value).replace("+", ".")
    with pytest.raises(
        ValueError, match=f"{name} must be at least {range_}, got {got}"
    ):
        make_agent(None, **{name: value})
