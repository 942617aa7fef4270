"""What a finished run of Q-learning leaves to use: :func:`load_dqn_run`.

Both files hold plain values and tensors only; reading them runs no code from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torchrl.data import Bounded, Categorical, TensorDictReplayBuffer
from torchrl.modules import QValueActor
from torchrl.objectives import SoftUpdate

from agents.q_learning.agent import DQNAgent, make_loss
from agents.q_learning.config import DQNConfig
from agents.q_learning.memory import make_memory
from agents.q_learning.memory_state import restore_memory
from agents.q_learning.network import make_q_network
from agents.runs.checkpoint import (
    expecting_a_fit,
    load_checkpoint,
    save_checkpoint,
)
from agents.runs.folder import RunFolder
from agents.runs.saved_states import check_network_state

__all__ = ["SavedDQNRun", "load_dqn_run", "save_dqn_run"]

_NETWORK, _MEMORY = "network.pt", "memory.pt"
_ADVICE = "Run it again to have it anew"


@dataclass(frozen=True)
class SavedDQNRun:
    """A finished run, read by :func:`load_dqn_run`.

    Attributes:
        config: its settings.
        result: what came out, as in ``result.json``.
        network: with the weights at the end.
        memory: as it was at the end, ``None`` if it was not made from the settings.
    """

    config: DQNConfig
    result: dict[str, Any]
    network: QValueActor
    memory: TensorDictReplayBuffer | None


def save_dqn_run(
    folder: RunFolder, agent: DQNAgent, memory: dict[str, Any] | None
) -> None:
    """Write what :func:`load_dqn_run` reads.

    Args:
        folder: of the run.
        agent: the learner at the end.
        memory: state of its memory, ``None`` to leave it out.

    Raises:
        CheckpointError: if a file cannot be written.
    """
    observation = agent.env.observation_spec_unbatched["observation"]
    content = {
        "weights": dict(agent.network.state_dict()),
        "observation_shape": list(observation.shape),
        "observation_high": float(observation.space.high.max()),
        "num_actions": int(agent.env.action_spec_unbatched.space.n),
    }
    save_checkpoint(folder.path / _NETWORK, content)
    if memory is not None:
        save_checkpoint(folder.path / _MEMORY, memory)


def load_dqn_run(folder: str | Path, *, own_code: bool = False) -> SavedDQNRun:
    """Read a finished run of ``info-replay dqn``, to act or to go on with its memory.

    Args:
        folder: of the run.
        own_code: whether a policy or a criterion that the run's settings call
            ``module:Name`` may be imported.

    Returns:
        The run, on the CPU. The memory of a run on Ray needs Ray to be installed.

    Raises:
        RunError: if it is not finished.
        CheckpointError: if a file is missing or damaged.
        ValueError: if own code is needed.

    Example:
        >>> import tempfile
        >>> from agents.q_learning.experiment import DQNExperiment
        >>> path = tempfile.mkdtemp()
        >>> config = DQNConfig(env="CartPole-v1", frames=96, evaluations=1, episodes=1)
        >>> _ = DQNExperiment(config, RunFolder(path)).run()
        >>> run = load_dqn_run(path)
        >>> run.network(run.memory.sample(5))["action"].shape, len(run.memory)
        (torch.Size([5]), 96)
    """
    place = RunFolder(folder)
    result = place.read("result.json")
    config = _read_config(place, own_code=own_code)
    saved = load_checkpoint(place.path / _NETWORK, _ADVICE)
    with expecting_a_fit(place.path / _NETWORK):
        shape = torch.Size(saved["observation_shape"])
        observation = Bounded(-math.inf, saved["observation_high"], shape)
        action = Categorical(saved["num_actions"])
        network = make_q_network(observation, action, width=config.width)
        check_network_state(network, saved["weights"])
        network.load_state_dict(saved["weights"])
    memory = None
    if (place.path / _MEMORY).exists():
        memory = _make_memory(replace(config, device="cpu"), network, shape)
        state = load_checkpoint(place.path / _MEMORY, _ADVICE)
        with expecting_a_fit(place.path / _MEMORY):
            restore_memory(memory, state)
    return SavedDQNRun(config, result, network, memory)


def _make_memory(
    config: DQNConfig, network: QValueActor, observation_shape: torch.Size
) -> TensorDictReplayBuffer:
    """An empty memory like that of the run."""
    if config.engine == "ray":
        from agents.q_learning.ray_memory import buffer_parts

        kind, options = buffer_parts(config)
        return kind(delayed_init=False, **options)
    loss = make_loss(config, network)
    SoftUpdate(loss, tau=config.tau)  # TorchRL warns of a loss without one
    return make_memory(config, loss, observation_shape)


def _read_config(place: RunFolder, *, own_code: bool) -> DQNConfig:
    """The settings of a run, without importing what they name unless that is wanted."""
    settings = place.read("config.json")
    for name in ("policy", "criterion"):
        if ":" in str(settings.get(name)) and not own_code:
            raise ValueError(
                f"the {name} of {place.path} is {settings[name]}: load_dqn_run(folder, "
                "own_code=True) imports it"
            )
    return place.config(DQNConfig)
