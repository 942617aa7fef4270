"""Small Q-learners, frames that need no environment, and a forward pass in numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictParams
from torch import Tensor, nn
from torchrl.data import Categorical, OneHot, Unbounded
from torchrl.objectives import DQNLoss, SoftUpdate

from agents.q_learning import DQNConfig, FeatureDQNLoss, make_q_network
from agents.q_learning.agent import DQNAgent

#: Settings of a run of a second or less.
SMALL: dict[str, Any] = {
    "recent": 0.0,
    "num_envs": 2,
    "frames_per_batch": 8,
    "updates_per_batch": 2,
    "batch_size": 8,
    "learning_starts": 16,
    "epsilon_frames": 100,
    "width": 8,
    "capacity": 24,
    "evaluations": 2,
    "episodes": 1,
    "device": "cpu",
}
DIM, ACTIONS, WIDTH, DISCOUNT = 4, 3, 8, 0.9


def small(**chosen: Any) -> DQNConfig:
    return DQNConfig(**{**SMALL, **chosen})


def make_loss(
    kind: type[DQNLoss] = FeatureDQNLoss, *, one_hot: bool = False, **options: Any
) -> DQNLoss:
    """A loss whose target network has weights of its own."""
    action = OneHot(ACTIONS) if one_hot else Categorical(ACTIONS)
    network = make_q_network(Unbounded((DIM,)), action, width=WIDTH, seed=0)
    loss = kind(network, loss_function="smooth_l1", **options)
    loss.make_value_estimator(gamma=DISCOUNT)
    SoftUpdate(loss, tau=0.5)  # TorchRL warns of a loss without one
    generator = torch.Generator().manual_seed(1)
    for weights in loss.target_value_network_params.values(True, True):
        weights.data.add_(torch.randn(weights.shape, generator=generator))
    return loss


def make_frames(count: int, *, seed: int = 0, one_hot: bool = False) -> TensorDict:
    """Transitions; some are terminal, some are cut by a time limit."""
    generator = torch.Generator().manual_seed(seed)

    def normal(width: int) -> Tensor:
        return torch.randn(count, width, generator=generator)

    action = torch.randint(ACTIONS, (count,), generator=generator)
    fate = torch.randint(4, (count, 1), generator=generator)
    following = TensorDict(
        observation=normal(DIM),
        reward=normal(1),
        terminated=fate == 0,
        truncated=fate == 1,
        done=fate <= 1,
        batch_size=[count],
    )
    return TensorDict(
        observation=normal(DIM),
        action=nn.functional.one_hot(action, ACTIONS) if one_hot else action,
        next=following,
        batch_size=[count],
    )


def forward_by_hand(
    network: nn.Module | TensorDictParams, observation: Tensor
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Hidden features and values of an MLP, from its weights alone.

    Args:
        network: the network, or its weights.
        observation: shape ``(n, DIM)``.

    Returns:
        Hidden features and values.
    """
    if isinstance(network, TensorDictParams):
        named = dict(network.flatten_keys(".").items())
    else:
        named = dict(network.named_parameters())
    names = sorted(name for name in named if name.endswith("weight"))
    assert len(names) == 3
    hidden = observation.double().numpy()
    for name in names:
        weight, bias = (
            named[key].detach().double().numpy()
            for key in (name, name.removesuffix("weight") + "bias")
        )
        outcome = hidden @ weight.T + bias
        if name != names[-1]:
            hidden = np.maximum(outcome, 0)
    return hidden, outcome


def placed_by_hand(
    hidden: NDArray[Any], actions: NDArray[Any], num_actions: int = ACTIONS
) -> NDArray[Any]:
    """The vector of each row in the block of its action, zeros elsewhere."""
    width = hidden.shape[1]
    placed = np.zeros((len(hidden), num_actions * width))
    for row, action in enumerate(actions):
        for column in range(width):
            placed[row, int(action) * width + column] = hidden[row, column]
    return placed


def collect(agent: DQNAgent, steps: int) -> TensorDictBase:
    """Frames of an agent in its own environment."""
    with torch.no_grad():
        return agent.env.rollout(
            steps, agent.policy, auto_reset=True, break_when_any_done=False
        )


class TinyImageEnv(gymnasium.Env[NDArray[Any], int]):
    """Pictures as MinAtar shows them: 10 x 10 pixels, 4 channels of truth values.

    The first channel tells which of three actions is rewarded; episodes have 5 steps.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (10, 10, 4), dtype=np.bool_)
        self.action_space = spaces.Discrete(3)
        self.steps = 0
        self.wanted = 0

    def _look(self) -> NDArray[Any]:
        picture = self.np_random.random((10, 10, 4)) < 0.1
        self.wanted = int(self.np_random.integers(3))
        picture[..., 0] = False
        picture[3 * self.wanted, :, 0] = True
        return picture

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool, Any]:
        reward = float(action == self.wanted)
        self.steps += 1
        return self._look(), reward, self.steps == 5, False, {}


IMAGES = "tests/TinyImage-v0"
gymnasium.register(IMAGES, TinyImageEnv)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors of a nested state."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)
