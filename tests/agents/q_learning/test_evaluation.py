"""Returns of the greedy policy, against one episode after the other."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from torchrl.modules import QValueActor

from agents.q_learning.agent import DQNAgent
from agents.q_learning.config import DQNConfig
from agents.q_learning.environment import make_task_envs
from agents.q_learning.evaluation import TaskEvaluator
from agents.q_learning.experiment import DQNExperiment

from .helpers import IMAGES, collect, forward_by_hand, small


def slow_returns(config: DQNConfig, network: QValueActor) -> list[float]:
    """Plays the episodes one by one, with values computed by hand."""
    groups = make_task_envs(config)
    count = sum(map(len, groups))
    seeds = iter(np.random.SeedSequence([config.seed, 1]).generate_state(count))
    means = []
    for group in groups:
        totals = []
        for env in group:
            observation, _ = env.reset(seed=int(next(seeds)))
            total, over = 0.0, False
            while not over:
                _, values = forward_by_hand(network, torch.tensor(observation)[None])
                observation, reward, fell, late, _ = env.step(int(values.argmax()))
                total, over = total + float(reward), fell or late
            totals.append(total)
        means.append(sum(totals) / len(totals))
    return means


@pytest.mark.parametrize(
    ("env", "tasks"), [("ContinualCartPole", 3), ("CartPole-v1", 1)]
)
@pytest.mark.parametrize("seed", [0, 4])
def test_returns_are_those_of_single_episodes(env: str, tasks: int, seed: int) -> None:
    config = small(env=env, episodes=3, seed=seed)
    network = DQNAgent(config).network
    found = TaskEvaluator(config).returns(network)
    assert found == pytest.approx(slow_returns(config, network))
    assert len(found) == tasks


def test_a_time_limit_ends_an_episode() -> None:
    env_id = "tests/BriefCartPole-v0"
    if env_id not in gymnasium.registry:  # the pole takes 8 steps or more to fall
        gymnasium.register(env_id, CartPoleEnv, max_episode_steps=5)
    config = small(env=env_id, episodes=3)
    assert TaskEvaluator(config).returns(DQNAgent(config).network) == [5.0]


def test_an_evaluation_gives_the_same_twice() -> None:
    config = small(episodes=2)
    agent, evaluator = DQNAgent(config), TaskEvaluator(config)
    before = evaluator.returns(agent.network)
    collect(agent, 5)
    torch.manual_seed(77)
    assert evaluator.returns(agent.network) == before
    assert TaskEvaluator(config).returns(agent.network) == before


def test_other_seeds_are_other_episodes() -> None:
    network = DQNAgent(small()).network
    returns = {
        tuple(TaskEvaluator(small(seed=seed, episodes=3)).returns(network))
        for seed in range(4)
    }
    assert len(returns) > 1


def test_images_can_be_evaluated() -> None:
    config = small(env=IMAGES, episodes=4)
    (found,) = TaskEvaluator(config).returns(DQNAgent(config).network)
    assert 0 <= found <= 5
    assert 4 * found == pytest.approx(round(4 * found))


def test_an_evaluation_leaves_the_training_alone() -> None:
    experiment = DQNExperiment(small(lengths="8,8,8"))
    collect(experiment.agent, 10)

    def state() -> Any:
        copies = [copy.unwrapped for copy in experiment.agent.env.envs]
        return (
            [(copy.frames, copy.task, list(copy.state)) for copy in copies],
            [copy.np_random.bit_generator.state for copy in copies],
            torch.get_rng_state().tolist(),
            [weights.tolist() for weights in experiment.agent.network.parameters()],
            [weights.grad for weights in experiment.agent.network.parameters()],
        )

    before = state()
    experiment.evaluator.returns(experiment.agent.network)
    assert state() == before
