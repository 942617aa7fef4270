"""Deep Q-learning with a memory that chooses what to keep: :class:`DQNAgent`.

The loop is TorchRL's: collected frames, a replay buffer, a loss, a target network that
follows. If the memory looks at features, the loss leaves fresh ones in each sample, and
``update_tensordict_priority`` takes them back.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictSequential
from torchrl.data import TensorDictReplayBuffer
from torchrl.modules import EGreedyModule, QValueActor
from torchrl.objectives import DQNLoss, SoftUpdate

from agents.q_learning.config import DQNConfig
from agents.q_learning.environment import make_torchrl_env
from agents.q_learning.features import FeatureDQNLoss
from agents.q_learning.memory import make_memory
from agents.q_learning.network import HIDDEN_KEY, make_q_network
from agents.q_learning.rollout import Rollout
from agents.runs.divergence import DivergenceError
from agents.runs.errors import last_line
from agents.runs.randomness import OwnRandomness
from agents.runs.saved_states import (
    check_network_state,
    check_optimizer,
    check_parts,
    check_whole,
)

__all__ = ["DQNAgent", "make_loss"]

# A network with larger weights has diverged if a memory refuses what it computes.
_HUGE = 1e3


def make_loss(config: DQNConfig, network: QValueActor) -> DQNLoss:
    """The loss of a run, with features if the memory looks at them."""
    kind = FeatureDQNLoss if config.keeps_features else DQNLoss
    loss = kind(network, loss_function="smooth_l1", double_dqn=config.double)
    loss.make_value_estimator(gamma=config.discount)
    return loss


class DQNAgent:
    """A Q-learner: acts through :attr:`policy`, learns through :meth:`learn`.

    Args:
        config: the settings.
        env: a TorchRL environment that tells shapes; by default that of the settings.
        memory: makes the replay buffer from the settings, the loss and the shape of
            an observation; by default that of the settings.
        recorded: whether the rollout can be saved and continued.

    Attributes:
        frames: that were stored so far.
        rollout: plays the environment.

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
        *,
        recorded: bool = True,
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
        self.loss = make_loss(config, self.network)
        self.target_updater = SoftUpdate(self.loss, tau=config.tau)
        self.optimizer = torch.optim.Adam(
            self.loss.parameters(), lr=config.learning_rate, fused=True
        )
        self.memory: TensorDictReplayBuffer = memory(
            config, self.loss, observation.shape
        )
        self.frames = 0
        self._inputs = [*self.loss.in_keys, "priority_weight"]
        self._fresh = ["td_error", *(["feature"] * looks)]
        self._stored = [*self.loss.in_keys, *([HIDDEN_KEY] * looks)]
        self.rollout = Rollout(self.env, self.policy, self._stored, recorded=recorded)
        self._compute_loss = torch.compile(self.loss) if config.compiled else self.loss

    @functools.cached_property
    def randomness(self) -> OwnRandomness:
        """Random numbers of exploration."""
        return OwnRandomness(self.config.seed, self.config.torch_device)

    def store(self, frames: TensorDictBase) -> None:
        """Offer collected frames to the memory.

        Args:
            frames: of a rollout, any batch size.
        """
        frames = frames.reshape(-1)
        self.memory.extend(frames.select(*self._stored))
        self.frames += len(frames)
        self.exploration.eps.fill_(self.config.epsilon_after(self.frames))

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
        fresh = torch.cat([part.select(*self._fresh) for part in parts])
        self.memory.update_tensordict_priority(sample.update(fresh))

    def check_divergence(self, error: Exception | None = None) -> None:
        """Raise if the network cannot be learned with any more; waits for the device.

        Args:
            error: that came of it, maybe; then huge weights are enough.

        Raises:
            DivergenceError: if weights are not finite, or huge after an error.
        """
        weights = [each.detach().abs().max() for each in self.loss.parameters()]
        largest = float(torch.stack(weights).max())
        if not math.isfinite(largest):
            reason = "weights of the network are not finite"
        elif error is not None and largest > _HUGE:
            reason = last_line(error)
        else:
            return
        raise DivergenceError(reason, "learning_rate") from error

    @contextlib.contextmanager
    def noticing_divergence(self) -> Iterator[None]:
        """Name the cause if a memory refuses numbers of a network that diverges."""
        try:
            yield
        except (ValueError, RuntimeError) as error:
            self.check_divergence(error)
            raise

    def train(self, num_frames: int) -> Iterator[int]:
        """Collect and learn.

        Args:
            num_frames: when to stop; whole batches are collected.

        Yields:
            Frames so far, after each batch of them.

        Raises:
            DivergenceError: if training diverges.
        """
        config = self.config
        steps = config.frames_per_batch // config.num_envs
        while self.frames < num_frames:
            with self.randomness.inside(), self.noticing_divergence():
                self.store(self.rollout.collect(steps))
                if self.frames >= config.learning_starts:
                    self.learn(config.updates_per_batch)
                    self.target_updater.step()
            yield self.frames

    def state_dict(self) -> dict[str, Any]:
        """What the learner knows, without the memory and the environment."""
        return {
            "loss": dict(self.loss.state_dict()),
            "optimizer": self.optimizer.state_dict(),
            "frames": self.frames,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`.

        Raises:
            ValueError: if it does not fit; nothing is changed then.
        """
        self.check_state(state_dict)
        self.loss.load_state_dict(state_dict["loss"])
        self.optimizer.load_state_dict(state_dict["optimizer"])
        self.frames = state_dict["frames"]
        self.exploration.eps.fill_(self.config.epsilon_after(self.frames))

    def check_state(self, state: Any) -> None:
        """Refuse what is not the state of such a learner.

        Args:
            state: that was read.

        Raises:
            ValueError: naming the first part that does not fit.
        """
        parts = ("loss", "optimizer", "frames")
        check_parts(state, *parts, name="the state of a learner")
        check_whole(state["frames"], "frames")
        check_network_state(self.loss, state["loss"])
        check_optimizer(self.optimizer, state["optimizer"])
        own, saved = self.optimizer.state_dict(), state["optimizer"]
        if saved["param_groups"] != own["param_groups"]:
            raise ValueError("the optimizer must have the options of the settings")
        parameters = sum(len(group["params"]) for group in own["param_groups"])
        if len(saved["state"]) not in (0, parameters):
            raise ValueError(
                f"the optimizer must know of all {parameters} parameters or of none, "
                f"got {len(saved['state'])}"
            )

    def fake_frames(self) -> TensorDictBase:
        """Frames of zeros, with the entries, shapes and types of collected ones."""
        return self.env.fake_tensordict().reshape(-1).select(*self.loss.in_keys)
