"""Deep Q-learning with a memory that chooses what to keep: :class:`DQNAgent`.

The loop is TorchRL's: a collector, a replay buffer, a loss, a target network that
follows. If the memory looks at features, the loss leaves fresh ones in each sample, and
``update_tensordict_priority`` takes them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictSequential
from torchrl.collectors import Collector
from torchrl.data import TensorDictReplayBuffer
from torchrl.modules import EGreedyModule
from torchrl.objectives import DQNLoss, SoftUpdate

from agents.q_learning.config import DQNConfig
from agents.q_learning.environment import make_torchrl_env
from agents.q_learning.features import FeatureDQNLoss
from agents.q_learning.memory import make_memory
from agents.q_learning.network import HIDDEN_KEY, make_q_network

__all__ = ["DQNAgent"]


class DQNAgent:
    """A Q-learner: acts through :attr:`policy`, learns through :meth:`learn`.

    Args:
        config: the settings.
        env: a TorchRL environment that tells shapes; by default that of the settings.
        memory: makes the replay buffer from the settings, the loss and the shape of
            an observation; by default that of the settings.

    Example:
        >>> config = DQNConfig(env="CartPole-v1", frames=64, num_envs=2)
        >>> agent = DQNAgent(config)
        >>> frames = agent.policy(agent.env.reset())
        >>> frames["hidden"].shape, frames["action"].shape
        (torch.Size([2, 64]), torch.Size([2]))
    """

    def __init__(
        self,
        config: DQNConfig,
        env: Any = None,
        memory: Callable[[DQNConfig, DQNLoss, torch.Size], Any] = make_memory,
    ) -> None:
        self.config = config
        self.env = make_torchrl_env(config) if env is None else env
        device = config.torch_device
        observation = self.env.observation_spec_unbatched["observation"]
        action = self.env.action_spec_unbatched
        self.network = make_q_network(
            observation, action, width=config.width, seed=config.seed
        ).to(device)
        self.exploration = EGreedyModule(
            spec=action,
            eps_init=config.epsilon_start,
            eps_end=config.epsilon_end,
            annealing_num_steps=max(1, config.epsilon_frames),
            device=device,
        )
        self.policy = TensorDictSequential(self.network, self.exploration)
        looks = config.keeps_features
        self.loss = (FeatureDQNLoss if looks else DQNLoss)(
            self.network, loss_function="smooth_l1", double_dqn=config.double
        )
        self.loss.make_value_estimator(gamma=config.discount)
        self.target_updater = SoftUpdate(self.loss, tau=config.tau)
        self.optimizer = torch.optim.Adam(
            self.loss.parameters(), lr=config.learning_rate, fused=True
        )
        self.memory: TensorDictReplayBuffer = memory(
            config, self.loss, observation.shape
        )
        self._frames = 0
        self._inputs = [*self.loss.in_keys, "priority_weight"]
        self._fresh = ["td_error", *(["feature"] * looks)]
        self._stored = [*self.loss.in_keys, *([HIDDEN_KEY] * looks)]
        self._compute_loss = torch.compile(self.loss) if config.compiled else self.loss

    def store(self, frames: TensorDictBase) -> None:
        """Offer collected frames to the memory.

        Args:
            frames: of a collector, any batch size.
        """
        frames = frames.reshape(-1)
        self.memory.extend(frames.select(*self._stored))
        self._frames += len(frames)
        self.exploration.eps.fill_(self.config.epsilon_after(self._frames))

    def learn(self, updates: int = 1) -> None:
        """Some gradient steps on samples, whose fresh features go back to the memory.

        The samples of all steps are drawn in one go, and what is fresh goes back in one
        go, which is several times faster; so priorities move once for all steps.

        Args:
            updates: number of steps.
        """
        sample = self.memory.sample(updates * self.config.batch_size)
        # Without the rest, the compiled loss is the same for every memory.
        inputs = sample.select(*self._inputs, strict=False)
        parts = inputs.split(self.config.batch_size)
        for part in parts:
            self._compute_loss(part)["loss"].backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        fresh = [part.select(*self._fresh) for part in parts]
        self.memory.update_tensordict_priority(sample.update(torch.cat(fresh)))

    def train(self, num_frames: int) -> Iterator[int]:
        """Collect and learn.

        Args:
            num_frames: when to stop; whole batches are collected.

        Yields:
            Frames so far, after each batch of them.
        """
        config, batch = self.config, self.config.frames_per_batch
        collector = Collector(
            self.env,
            self.policy,
            frames_per_batch=batch,
            total_frames=-(-num_frames // batch) * batch,
            device=config.torch_device,
            trust_policy=True,
            auto_register_policy_transforms=False,
        )
        collected = 0
        try:
            for frames in collector:
                self.store(frames)
                collected += frames.numel()
                if collected >= config.learning_starts:
                    self.learn(config.updates_per_batch)
                    self.target_updater.step()
                yield collected
        finally:
            collector.shutdown(close_env=False)
