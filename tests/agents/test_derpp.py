"""DER++ learns by its loss, and the memory gets what it saw in passing."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows
from tensordict import TensorDict
from torch import Tensor
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from agents.derpp import DERPlusPlusAgent, DivergenceError
from agents.networks import FeatureNetwork
from agents.samplers import SubsetSampler
from continual_envs import make_stream
from info_replay import (
    InfoReservoirWriter,
    ReservoirWriter,
    SelectiveReplayBuffer,
    make_replay_buffer,
)
from info_replay.registry import POLICIES
from tests.agents.helpers import (
    Batch,
    assert_same_state,
    batches,
    copied,
    make_agent,
    make_memory,
    parameters,
)

REGRESSION = {"shape": (10,), "num_classes": None}


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


@pytest.mark.parametrize("policy", ["rs", "wrs", "cbrs", None])
@pytest.mark.parametrize(
    ("alpha", "beta"), [(0.3, 1.0), (0.0, 1.0), (0.7, 0.0), (0.0, 0.0), (1.0, 0.3)]
)
def test_parameters_are_those_of_a_plain_loop(
    policy: str | None, alpha: float, beta: float
) -> None:
    ours, theirs = (policy and make_memory(policy, 20) for _ in range(2))
    agent = make_agent(ours or None, alpha=alpha, beta=beta)
    network = copied(agent.network)
    for batch in batches(20):
        agent.learn(*batch)
        plain_step(network, theirs or None, batch, alpha=alpha, beta=beta)
    expected = torch.cat([p.detach().flatten() for p in network.parameters()])
    torch.testing.assert_close(parameters(agent), expected, rtol=0, atol=1e-6)
    if ours and theirs:
        assert torch.equal(ours[:]["observation"], theirs[:]["observation"])
        torch.testing.assert_close(ours[:]["logits"], theirs[:]["logits"])


def test_parameters_are_those_of_a_plain_loop_for_regression() -> None:
    agent, memory = make_agent(make_memory("rs"), **REGRESSION), make_memory("rs")
    network = copied(agent.network)
    for batch in batches(10, env="SplitDiabetes"):
        agent.learn(*batch)
        plain_step(network, memory, batch, num_classes=None)
    expected = torch.cat([p.detach().flatten() for p in network.parameters()])
    torch.testing.assert_close(parameters(agent), expected, rtol=0, atol=1e-6)


def test_each_step_makes_two_draws_that_differ() -> None:
    sampler = RecordingSampler()
    agent = make_agent(make_memory("rs", 50, sampler=sampler))
    for batch in batches(10):
        agent.learn(*batch)
    # None from the empty memory, then two a step.
    assert len(sampler.draws) == 2 * 9
    pairs = zip(sampler.draws[::2], sampler.draws[1::2], strict=True)
    assert sum(torch.equal(one, two) for one, two in pairs) < 2
    assert all(len(draw.unique()) == 6 for draw in sampler.draws)


def test_without_weights_replay_changes_nothing() -> None:
    replaying = make_agent(make_memory("rs"), alpha=0.0, beta=0.0)
    alone = make_agent(None)
    for batch in batches(10):
        replaying.learn(*batch)
        alone.learn(*batch)
    assert torch.equal(parameters(replaying), parameters(alone))


def test_without_a_memory_it_is_gradient_descent() -> None:
    agent = make_agent(None, learning_rate=0.05)
    network = copied(agent.network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    for inputs, targets in batches(10):
        agent.learn(inputs, targets)
        outputs = network(torch.from_numpy(inputs) / 255)[1]
        optimizer.zero_grad()
        F.cross_entropy(outputs, torch.from_numpy(targets)).backward()
        optimizer.step()
    expected = torch.cat([p.detach().flatten() for p in network.parameters()])
    torch.testing.assert_close(parameters(agent), expected, rtol=0, atol=1e-6)


# -- the memory -----------------------------------------------------------------------


def test_the_memory_gets_what_the_network_gave_before_the_step() -> None:
    memory = make_memory("infors")
    agent = make_agent(memory)
    before = copied(agent.network)
    ((inputs, targets),) = batches(1)
    agent.learn(inputs, targets)
    features, outputs = before(torch.from_numpy(inputs) / 255)
    held = memory[:]
    assert torch.equal(held["observation"], torch.from_numpy(inputs))
    assert held["observation"].dtype == torch.uint8
    assert torch.equal(held["target"], torch.from_numpy(targets))
    torch.testing.assert_close(held["logits"], outputs.detach())
    torch.testing.assert_close(held["feature"], features.detach())
    after = agent.network(torch.from_numpy(inputs) / 255)[1]
    assert not torch.allclose(held["logits"], after, atol=1e-4)


def test_the_memory_gets_inputs_that_are_not_augmented() -> None:
    memory = make_memory("infors")
    agent = make_agent(memory, augmented=True)
    before = copied(agent.network)
    ((inputs, targets),) = batches(1)
    agent.act(inputs)
    agent.learn(inputs, targets)
    held = memory[:]
    assert torch.equal(held["observation"], torch.from_numpy(inputs))
    # But the outputs are those of the augmented ones that it learnt from.
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


# -- padding --------------------------------------------------------------------------


def padded(batch: Batch) -> Batch:
    """A batch with two more samples that are none."""
    inputs, targets = batch
    more = np.full((2, *inputs.shape[1:]), 99, dtype=inputs.dtype)
    none = np.full(2, -1, dtype=targets.dtype)
    return np.concatenate([inputs, more]), np.concatenate([targets, none])


@pytest.mark.parametrize(
    ("network", "acts"), [("fc", False), ("fc", True), ("resnet18", True)]
)
def test_padding_is_neither_learnt_nor_stored(network: str, acts: bool) -> None:
    one, two = (make_agent(make_memory("infors"), network=network) for _ in range(2))
    for batch in batches(2):
        observation, label = padded(batch)
        if acts:
            assert one.act(observation).shape == (10,)
        one.learn(observation, label)
        two.learn(*batch)
    assert one.memory is not None
    assert two.memory is not None
    held = one.memory[:]
    assert torch.equal(held["observation"], two.memory[:]["observation"])
    assert (held["target"] >= 0).all()
    torch.testing.assert_close(parameters(one), parameters(two), rtol=0, atol=1e-5)
    for mine, other in zip(one.network.buffers(), two.network.buffers(), strict=True):
        torch.testing.assert_close(mine, other)


def test_a_mask_tells_padding_where_targets_are_numbers() -> None:
    one, two = (make_agent(make_memory("rs"), **REGRESSION) for _ in range(2))
    for batch in batches(3, env="SplitDiabetes"):
        observation, target = padded(batch)
        one.learn(observation, target, np.arange(10) < 8)
        two.learn(*batch)
    assert one.memory is not None
    assert two.memory is not None
    assert torch.equal(one.memory[:]["target"], two.memory[:]["target"])
    torch.testing.assert_close(parameters(one), parameters(two), rtol=0, atol=1e-6)


@pytest.mark.parametrize("network", ["fc", "resnet18"])
def test_a_batch_of_padding_alone_changes_nothing(network: str) -> None:
    agent = make_agent(make_memory("infors"), network=network, augmented=True)
    for batch in batches(2):
        agent.learn(*batch)
    state = torch.load(saved(agent), weights_only=True)
    agent.learn(batches(1)[0][0], np.full(8, -1))
    found = agent.state_dict()
    del state["generator"], found["generator"]  # of the augmentation
    assert_same_state(found, state)


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


def test_a_regression_that_is_lost_says_so_when_it_should_act() -> None:
    agent = make_agent(None, **REGRESSION)
    ((inputs, _),) = batches(1, env="SplitDiabetes")
    with torch.no_grad():
        agent.network.head.weight.fill_(torch.nan)
    with pytest.raises(DivergenceError, match="a prediction is not finite"):
        agent.act(inputs)


@pytest.mark.parametrize("policy", ["rs", "infors"])
def test_a_learner_that_is_lost_says_so(policy: str) -> None:
    agent = make_agent(make_memory(policy), learning_rate=1e6)

    def learn() -> None:
        for batch in batches(20):
            agent.learn(*batch)
            agent.check_finite()

    with pytest.raises(DivergenceError, match="smaller learning_rate"):
        learn()


def test_a_last_batch_of_one_is_learnt_and_offered_with_batch_normalisation() -> None:
    agent = make_agent(make_memory("rs"), network="resnet18")
    first, last = batches(2)
    agent.learn(*first)
    before = parameters(agent)
    buffers = [buffer.clone() for buffer in agent.network.buffers()]
    agent.act(last[0])
    agent.learn(last[0], np.where(np.arange(8) == 3, last[1], -1))
    assert agent.memory is not None
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


@pytest.mark.parametrize("subsets", [True, False])
@pytest.mark.parametrize("recent", [None, 4])
def test_every_slot_of_both_draws_gets_new_features(
    subsets: bool, recent: int | None
) -> None:
    options: dict[str, Any] = {"sampler": SubsetSampler()} if subsets else {}
    memory = make_replay_buffer("infors", 12, num_classes=10, recent=recent, **options)
    agent = make_agent(memory, replay_batch_size=12)
    for batch in batches(4):
        agent.learn(*batch)
    drawn: list[Any] = []
    draw = agent._draw
    agent._draw = lambda: drawn.extend(draw()) or drawn  # type: ignore[method-assign]
    before = memory.storage[:]["feature"].clone()
    agent.learn(*batches(5)[4])
    slots = torch.cat([each["index"] for each in drawn]).unique()
    changed = (memory.storage[:]["feature"] != before).any(1)
    assert changed[slots].all()


# -- every memory, and both kinds of streams -------------------------------------------


@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_policy_learns_digits(policy: str) -> None:
    agent = make_agent(make_memory(policy, 30), replay_batch_size=16)
    env = make_stream("SplitDigits", batch_size=16)
    observation, _ = env.reset(seed=0)
    rewards = []
    while len(rewards) < env.boundaries[0]:
        following, reward, _, _, info = env.step(agent.act(observation))
        agent.learn(observation, info["label"])
        observation = following
        rewards.append(reward)
    # Two classes and 80 predictions: without replay 0.75 to 0.96, as the seed wants.
    assert np.mean(rewards[-5:]) > 0.8
    assert agent.memory is not None
    assert 0 < len(agent.memory) <= 30


@pytest.mark.parametrize(
    "policy", ["rs", "gss", "fss-clust", "infogs", "infogs-rs", "infors"]
)
def test_regression_is_learnt(policy: str) -> None:
    memory = make_memory(policy, 30, num_classes=None)
    agent = make_agent(memory, **REGRESSION, replay_batch_size=16)
    env = make_stream("SplitDiabetes", batch_size=16, epochs=20)
    observation, _ = env.reset(seed=0)
    rewards: list[float] = []
    while len(rewards) < env.boundaries[0]:
        action = agent.act(observation)
        assert action.shape == (16,)
        assert np.abs(action).max() <= 1
        following, reward, _, _, info = env.step(action)
        agent.learn(observation, info["target"], info["mask"])
        observation = following
        rewards.append(reward)
    assert np.mean(rewards[-20:]) > np.mean(rewards[:5]) + 0.01
    assert memory[:]["target"].is_floating_point()


def test_predicted_numbers_are_cut_to_the_actions_there_are() -> None:
    agent = make_agent(None, **REGRESSION)
    agent.network.head.bias.data.fill_(7.0)  # type: ignore[union-attr]
    assert (agent.act(np.zeros((3, 10), np.float32)) == 1).all()
    agent.network.head.bias.data.fill_(-7.0)  # type: ignore[union-attr]
    assert (agent.predict(np.zeros((3, 10), np.float32)) == -1).all()


# -- predicting -----------------------------------------------------------------------


@pytest.mark.parametrize("network", ["fc", "resnet18"])
@pytest.mark.parametrize("augmented", [False, True])
def test_predicting_first_changes_nothing(network: str, augmented: bool) -> None:
    one, two = (
        make_agent(make_memory("infors"), network=network, augmented=augmented)
        for _ in range(2)
    )
    for observation, label in batches(3):
        one.act(observation)
        one.learn(observation, label)
        two.learn(observation, label)
    assert_same_state(one.state_dict(), two.state_dict())


def test_what_was_learnt_in_between_is_not_forgotten() -> None:
    one, two = (make_agent(make_memory("infors")) for _ in range(2))
    early, late = batches(2)
    one.act(early[0])
    for agent in (one, two):
        agent.learn(*late)
        agent.learn(*early)
    assert_same_state(one.state_dict(), two.state_dict())


@pytest.mark.parametrize("network", ["fc", "resnet18"])
def test_predictions_are_those_of_the_network_at_rest(network: str) -> None:
    agent = make_agent(make_memory("rs"), network=network)
    for batch in batches(3):
        agent.learn(*batch)
    state = {key: value.clone() for key, value in agent.network.state_dict().items()}
    inputs = batches(4)[-1][0]
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


@pytest.mark.parametrize(
    ("policy", "network"),
    [
        *((policy, "fc") for policy in [*POLICIES, None]),
        *((policy, "augmented fc") for policy in ["rs", "infors"]),
        ("rs", "resnet18"),
    ],
)
def test_a_saved_agent_goes_on_to_the_bit(policy: str | None, network: str) -> None:
    options: dict[str, Any] = {"network": network.split()[-1]}
    options["augmented"] = network != "fc"
    agent = make_agent(policy and make_memory(policy), **options)
    stream = batches(4 if network == "resnet18" else 10)
    for batch in stream[: len(stream) // 2]:
        agent.learn(*batch)
    file = saved(agent)
    memory = policy and make_memory(policy, seed=9)
    other = make_agent(memory, **options, init=9, seed=9)
    other.act(stream[0][0])
    other.load_state_dict(torch.load(file, weights_only=True))
    for observation, label in stream[len(stream) // 2 :]:
        assert other.act(observation).tolist() == agent.act(observation).tolist()
        agent.learn(observation, label)
        other.learn(observation, label)
    assert_same_state(other.state_dict(), agent.state_dict())


@pytest.mark.parametrize("name", ["learning_rate", "alpha", "beta"])
@pytest.mark.parametrize("value", [-0.1, float("nan")])
def test_a_negative_rate_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be at least 0, got {value}"):
        make_agent(None, **{name: value})


def test_an_empty_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="replay_batch_size must be at least 1, got 0"):
        make_agent(None, replay_batch_size=0)
