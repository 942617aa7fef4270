"""The Q-learner: what it learns, and what it brings back to its memory."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictSequential
from torch import Tensor
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules import EGreedyModule
from torchrl.objectives import DQNLoss, SoftUpdate
from torchrl.trainers.algorithms.dqn import DQNTrainer

import agents.q_learning.agent
from agents.q_learning import (
    DQNConfig,
    FeatureDQNLoss,
    TransitionFeatures,
    make_q_network,
)
from agents.q_learning.agent import DQNAgent
from agents.q_learning.environment import make_torchrl_env
from info_replay import InfoReservoirReplayBuffer
from tests.agents.q_learning.helpers import (
    collect,
    forward_by_hand,
    placed_by_hand,
    small,
)
from tests.buffer.test_devices import (
    GPU,
    DeviceReads,
    Gateway,
    _no_collection,  # noqa: F401  a fixture for every test here
    as_a_device,
    fake_gpu,
    replaced,
)

CARTPOLE: dict[str, Any] = {"env": "CartPole-v1"}
CARTPOLE_ACTIONS = 2
MEMORIES = ["infors", "rs", "fifo", "prioritized"]


def make_agent(**chosen: Any) -> DQNAgent:
    torch.manual_seed(0)
    agent = DQNAgent(small(**{**CARTPOLE, **chosen}))
    agent.env.set_seed(0)
    return agent


def features_by_hand(network: Any, frames: TensorDictBase) -> NDArray[Any]:
    hidden, _ = forward_by_hand(network, frames["observation"])
    return placed_by_hand(hidden, frames["action"].numpy(), CARTPOLE_ACTIONS)


def parameters(module: torch.nn.Module) -> Tensor:
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def noted_samples(agent: DQNAgent, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Samples, as they go back to the memory."""
    noted: list[Any] = []
    update = agent.memory.update_tensordict_priority

    def updating(sample: TensorDictBase) -> None:
        noted.append(sample.clone())
        update(sample)

    monkeypatch.setattr(agent.memory, "update_tensordict_priority", updating)
    return noted


# -- fresh features -------------------------------------------------------------------


def test_replay_brings_the_latest_features_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = make_agent(learning_rate=0.1, batch_size=4)
    agent.store(collect(agent, 30))
    memory = agent.memory
    spoilt = memory[:].clone()
    spoilt["feature"].fill_(9.0)
    memory.storage.set(torch.arange(24), spoilt)
    before = copy.deepcopy(agent.network)
    samples = noted_samples(agent, monkeypatch)
    agent.learn(4)
    (sample,) = samples
    slots = sample["index"].flatten().tolist()
    latest = dict(zip(slots, sample["feature"], strict=True))
    assert len(latest) < len(slots) == 16 < len(memory) == 24
    for slot, feature in enumerate(memory[:]["feature"]):
        assert feature.equal(latest.get(slot, torch.full_like(feature, 9.0)))
    # The first of the steps saw the network as it was.
    first = sample[:4]
    expected = features_by_hand(before, first)
    np.testing.assert_allclose(first["feature"], expected, atol=1e-5)


def test_frames_carry_the_features_of_the_weights_that_collected_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = make_agent(learning_rate=0.05, learning_starts=0)
    store, batches = agent.store, []

    def storing(frames: TensorDictBase) -> None:
        hidden, _ = forward_by_hand(agent.network, frames["observation"].reshape(-1, 4))
        np.testing.assert_allclose(
            frames["hidden"].reshape(-1, 8), hidden, rtol=1e-4, atol=1e-5
        )
        batches.append(hidden)
        store(frames)

    monkeypatch.setattr(agent, "store", storing)
    before = parameters(agent.network)
    for _ in agent.train(32):
        pass
    assert len(batches) == 4
    assert not parameters(agent.network).allclose(before)


# -- learning -------------------------------------------------------------------------


@pytest.mark.parametrize("double", [False, True], ids=["dqn", "double"])
def test_a_step_is_one_of_adam_on_the_loss_of_torchrl(
    double: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_agent(double=double, learning_rate=0.01)
    agent.store(collect(agent, 30))
    network = copy.deepcopy(agent.network)
    samples = noted_samples(agent, monkeypatch)
    agent.learn(3)
    loss = DQNLoss(network, loss_function="smooth_l1", double_dqn=double)
    loss.make_value_estimator(gamma=agent.config.discount)
    SoftUpdate(loss, tau=0.5)
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.01)
    for sample in samples[0].split(agent.config.batch_size):
        optimizer.zero_grad()
        loss(sample.exclude("feature", "td_error"))["loss"].backward()
        optimizer.step()
    torch.testing.assert_close(parameters(agent.network), parameters(network))


def test_prioritized_replay_is_told_of_errors() -> None:
    agent = make_agent(policy="prioritized", capacity=60)
    agent.store(collect(agent, 30))
    before = agent.memory.sample(50)["priority_weight"]
    assert before.unique().numel() == 1
    agent.learn(4)
    assert agent.memory.sample(50)["priority_weight"].unique().numel() > 5


@pytest.mark.parametrize("policy", MEMORIES)
def test_every_memory_runs(policy: str) -> None:
    agent = make_agent(policy=policy)
    frames = list(agent.train(48))
    assert frames == [8, 16, 24, 32, 40, 48]
    assert len(agent.memory) == 24
    assert agent.memory.write_count == 48
    assert ("feature" in agent.memory[:].keys()) == (policy == "infors")


def test_learning_starts_when_there_are_enough_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = make_agent(learning_starts=17, updates_per_batch=3)
    learned: list[tuple[int, int]] = []

    def learn(updates: int) -> None:
        learned.append((agent.memory.write_count, updates))

    monkeypatch.setattr(agent, "learn", learn)
    assert list(agent.train(40))[-1] == 40
    assert learned == [(24, 3), (32, 3), (40, 3)]


@pytest.mark.parametrize("tau", [0.0, 0.25, 1.0])
def test_the_target_network_follows_once_a_batch(tau: float) -> None:
    agent = make_agent(tau=tau, learning_starts=0, learning_rate=0.01)

    def weights(params: Any) -> Tensor:
        leaves = sorted(params.flatten_keys(".").items())
        return torch.cat([leaf.detach().flatten() for _, leaf in leaves]).clone()

    expected = weights(agent.loss.target_value_network_params)
    for _ in agent.train(24):
        online = weights(agent.loss.value_network_params)
        expected = (1 - tau) * expected + tau * online
        found = weights(agent.loss.target_value_network_params)
        torch.testing.assert_close(found, expected)


def test_exploration_falls_with_the_frames() -> None:
    agent = make_agent(epsilon_start=0.9, epsilon_end=0.1, epsilon_frames=40)

    def epsilon() -> float:
        return float(agent.exploration.eps)

    assert epsilon() == pytest.approx(0.9)
    agent.store(collect(agent, 5))  # of two copies
    assert epsilon() == pytest.approx(0.9 - 0.8 * 10 / 40)
    agent.store(collect(agent, 30))
    assert epsilon() == pytest.approx(0.1)


def test_without_exploration_the_best_action_is_taken() -> None:
    greedy = collect(make_agent(epsilon_start=0.0, epsilon_end=0.0), 30)
    assert greedy["action"].equal(greedy["action_value"].argmax(-1))
    random = collect(make_agent(epsilon_start=1.0, epsilon_end=1.0), 30)
    share = (random["action"] == random["action_value"].argmax(-1)).double().mean()
    assert 0.25 < share < 0.75


def test_only_what_is_needed_is_stored() -> None:
    agent = make_agent(policy="fifo")
    agent.store(collect(agent, 30))
    keys = set(agent.memory[:].keys(True, True))
    assert keys - {"index"} == {
        "observation",
        "action",
        ("next", "observation"),
        ("next", "reward"),
        ("next", "done"),
        ("next", "terminated"),
    }


def test_a_memory_of_ones_own_is_told_of_the_loss() -> None:
    told: list[Any] = []

    def make_memory(config: DQNConfig, loss: DQNLoss, shape: torch.Size) -> Any:
        told.extend([config, loss, shape])
        return TensorDictReplayBuffer(storage=LazyTensorStorage(9), batch_size=4)

    config = small(**CARTPOLE, policy="fifo")
    agent = DQNAgent(config, memory=make_memory)
    assert told == [config, agent.loss, torch.Size([4])]
    agent.store(collect(agent, 5))
    agent.learn()
    assert len(agent.memory) == 9


# -- in TorchRL's own training loop ---------------------------------------------------


class WatchedBuffer(InfoReservoirReplayBuffer):
    """Checks at every write-back that what it holds is what the network sees now."""

    def __init__(self, loss: DQNLoss, **options: Any) -> None:
        super().__init__(
            40,
            batch_size=16,
            transform=TransitionFeatures(loss),
            **options,
        )
        self.watched_loss = (loss,)
        self.stale: list[int] = []

    def update_tensordict_priority(self, data: TensorDictBase) -> None:
        slots = data["index"].flatten().unique()
        content = self[:][slots]
        weights = self.watched_loss[0].value_network_params
        expected = features_by_hand(weights, content)
        close = np.isclose(content["feature"], expected, rtol=1e-4, atol=1e-5).all(1)
        self.stale.append(int((~close).sum()))
        super().update_tensordict_priority(data)
        np.testing.assert_allclose(
            self[:][slots]["feature"], expected, rtol=1e-4, atol=1e-5
        )


@pytest.mark.filterwarnings("ignore:DQNTrainer is an experimental:UserWarning")
def test_torchrls_trainer_runs_with_these_parts() -> None:
    torch.manual_seed(0)
    env = make_torchrl_env(small(**CARTPOLE))
    env.set_seed(0)
    observation, action = (
        env.observation_spec_unbatched["observation"],
        env.action_spec_unbatched,
    )
    network = make_q_network(observation, action, width=8, seed=0)
    loss = FeatureDQNLoss(network)
    loss.make_value_estimator(gamma=0.97)
    exploration = EGreedyModule(action, annealing_num_steps=200)
    buffer = WatchedBuffer(loss, generator=torch.Generator().manual_seed(0))
    before = parameters(network)
    trainer = DQNTrainer(
        collector=Collector(
            env,
            TensorDictSequential(network, exploration),
            frames_per_batch=32,
            total_frames=256,
        ),
        total_frames=256,
        frame_skip=1,
        optim_steps_per_batch=2,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=0.01),
        replay_buffer=buffer,
        target_net_updater=SoftUpdate(loss, tau=0.1),
        greedy_module=exploration,
        enable_logging=False,
        progress_bar=False,
    )
    trainer.train()
    assert len(buffer) == 40
    assert buffer.write_count == 256
    assert len(buffer.stale) == 16
    assert sum(buffer.stale) > 50  # there was something to bring up to date
    assert "hidden" not in buffer[:].keys()
    assert not parameters(network).allclose(before)


# -- on a GPU -------------------------------------------------------------------------
# Fake tensors have a device but no values. What they cannot run, and the way round it:
# * a generator on the GPU cannot be made: the memory is made without one;
# * a module cannot be moved there: the network is made there in the first place;
# * the backward pass asks the driver for a context: gradients are made up at the leaves
#   of its graph; whether two tensors share memory cannot be told, and they do not;
# * environments need values: frames are made up, of the shapes and types of CartPole;
# * decisions need values: a run on the CPU records what passes `to_host`, see
#   tests/buffer/test_devices.py.


def made_up_frames(seed: int, count: int = 32) -> TensorDict:
    """Frames as the collector gives them, on the CPU."""
    generator = torch.Generator().manual_seed(seed)

    def normal(width: int) -> Tensor:
        return torch.randn(4, count // 4, width, generator=generator)

    over = torch.rand(4, count // 4, 1, generator=generator) < 0.2
    following = {
        "observation": normal(4),
        "reward": normal(1),
        "done": over,
        "terminated": over.clone(),
    }
    return TensorDict(
        {
            "observation": normal(4),
            "action": torch.randint(2, (4, count // 4), generator=generator),
            "hidden": normal(8).relu(),
            "action_value": normal(2),
            "next": TensorDict(following, batch_size=[4, count // 4]),
        },
        batch_size=[4, count // 4],
    )


def memory_without_a_generator(
    target: str, config: DQNConfig, loss: DQNLoss, shape: torch.Size
) -> InfoReservoirReplayBuffer:
    buffer = InfoReservoirReplayBuffer(
        config.capacity,
        batch_size=config.batch_size,
        device=config.torch_device,
        gamma=-0.5,
        transform=TransitionFeatures(loss, target),
    )
    buffer.writer.seed = 0
    return buffer


def learner_steps(
    env: Any, device: str, target: str, gateway: Gateway, *, hidden: bool
) -> DQNAgent:
    """Store and learn until the memory is full and beyond."""
    memory = functools.partial(memory_without_a_generator, target)
    agent = DQNAgent(small(**CARTPOLE, device=device), env, memory)
    with replaced(to_host=gateway):
        for seed in range(3):
            frames = made_up_frames(seed).to(device)
            if hidden:
                agent.store(frames)
            else:  # of a collector that kept less
                agent.memory.extend(frames.reshape(-1).exclude("hidden"))
            agent.learn(3)
            agent.target_updater.step()
    return agent


def make_up_gradients(loss: Tensor) -> None:
    """Give each leaf of the graph a gradient of the right shape and device."""
    nodes, seen, leaves = [loss.grad_fn], set(), 0
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            node.variable.grad = torch.zeros_like(node.variable)
            leaves += 1
        nodes.extend(following for following, _ in node.next_functions)
    assert leaves == 6  # weights and biases of three layers


@pytest.fixture
def _on_fake_tensors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def make(*arguments: Any, **options: Any) -> Any:
        with torch.device(GPU):
            network = make_q_network(*arguments, **options)

        def stay(device: torch.device) -> Any:
            assert str(device) == GPU
            return network

        network.to = stay
        return network

    with monkeypatch.context() as patch:
        patch.setattr(agents.q_learning.agent, "make_q_network", make)
        patch.setattr(Tensor, "is_set_to", lambda one, two: one is two)
        patch.setattr(Tensor, "backward", make_up_gradients)
        yield


@pytest.mark.parametrize("hidden", [True, False], ids=["hidden", "forward"])
@pytest.mark.parametrize("target", ["dyn", "td"])
@pytest.mark.parametrize(
    "machine",
    [
        "fake",
        pytest.param(
            "real",
            marks=[
                pytest.mark.cuda,
                pytest.mark.skipif(
                    not torch.cuda.is_available(), reason="needs a CUDA device"
                ),
            ],
        ),
    ],
)
def test_the_whole_step_stays_on_the_device(
    machine: str, target: str, hidden: bool, request: pytest.FixtureRequest
) -> None:
    env = make_torchrl_env(small(**CARTPOLE))
    if machine == "fake":
        recorder = Gateway()
        with as_a_device():
            learner_steps(env, "cpu", target, recorder, hidden=hidden)
        request.getfixturevalue("_on_fake_tensors")
        gateway = Gateway(replay=iter(recorder.recorded))
        with fake_gpu(), DeviceReads() as reads:
            agent = learner_steps(env, GPU, target, gateway, hidden=hidden)
            _ = agent.memory.posterior  # brings in what waits, here where a GPU is
        assert gateway.calls == recorder.calls
    else:
        with DeviceReads() as reads:
            gateway = Gateway(reads=reads)
            agent = learner_steps(env, GPU, target, gateway, hidden=hidden)
    assert reads.log == []
    tensors = [
        *agent.memory.storage[:].values(True, True),
        *agent.loss.parameters(),
        *agent.loss.buffers(),
        *agent.exploration.buffers(),
        *agent.memory.writer.memory.posterior.statistics.tensors().values(),
    ]
    assert {str(tensor.device) for tensor in tensors} == {GPU}
    assert len(agent.memory) == 24


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("policy", MEMORIES)
def test_a_run_on_a_gpu_runs(policy: str) -> None:
    agent = make_agent(device="cuda", policy=policy)
    assert list(agent.train(32)) == [8, 16, 24, 32]
    assert agent.memory[:]["observation"].device.type == "cuda"
