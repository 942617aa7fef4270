"""How good a greedy policy is in every task: :class:`TaskEvaluator`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from torchrl.modules import QValueActor

from agents.q_learning.config import DQNConfig
from agents.q_learning.environment import make_task_envs

__all__ = ["TaskEvaluator"]


class TaskEvaluator:
    """Plays episodes of every task, all side by side, always from the same seeds.

    Args:
        config: the settings.
    """

    def __init__(self, config: DQNConfig) -> None:
        tasks = make_task_envs(config)
        self.num_tasks = len(tasks)
        self._envs = [env for envs in tasks for env in envs]
        # Apart from those that the copies of the run are seeded with.
        self._seeds = np.random.SeedSequence([config.seed, 1]).generate_state(
            len(self._envs)
        )
        self._device = config.torch_device

    @torch.no_grad()
    def returns(self, network: QValueActor) -> list[float]:
        """The mean return on every task.

        Args:
            network: the Q-network; the best action is taken, without exploration.

        Returns:
            The mean over the episodes, one number per task.
        """
        observations = np.stack(
            [
                env.reset(seed=int(seed))[0]
                for env, seed in zip(self._envs, self._seeds, strict=True)
            ]
        )
        totals = np.zeros(len(self._envs))
        active = np.arange(len(self._envs))
        while active.size:
            actions = self._act(network, observations)
            outcomes = [
                self._envs[place].step(action)
                for place, action in zip(active, actions, strict=True)
            ]
            totals[active] += [float(outcome[1]) for outcome in outcomes]
            going = np.array([not (outcome[2] or outcome[3]) for outcome in outcomes])
            active = active[going]
            observations = np.stack([outcome[0] for outcome in outcomes])[going]
        means: list[float] = totals.reshape(self.num_tasks, -1).mean(1).tolist()
        return means

    def _act(self, network: QValueActor, observations: NDArray[Any]) -> list[Any]:
        inputs = torch.from_numpy(observations).to(self._device)
        # Without the steps that pick an action from the values: they double the time.
        values = network[0](TensorDict(observation=inputs, batch_size=[len(inputs)]))
        actions: list[Any] = values.get("action_value").argmax(-1).cpu().numpy()
        return actions
