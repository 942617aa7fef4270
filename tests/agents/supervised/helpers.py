"""Small learners and runs on streams that need no download."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchrl.data import TensorDictReplayBuffer

from agents.runs.folder import RunFolder
from agents.supervised.config import ExperimentConfig
from agents.supervised.derpp import DERPlusPlusAgent
from agents.supervised.experiment import Experiment
from agents.supervised.gradients import LossGradients
from agents.supervised.networks import FeatureNetwork, make_network
from agents.supervised.samplers import SubsetSampler
from continual_envs import make_stream
from info_replay import SelectiveReplayBuffer, make_replay_buffer

Batch = tuple[NDArray[Any], NDArray[Any]]

#: Settings of a run of a fraction of a second on Split Digits.
SMALL: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 32,
    "replay_batch_size": 16,
    "capacity": 30,
    "evaluations": 4,
    "threads": 1,
}


def make_memory(
    policy: str, capacity: int = 20, *, seed: int = 0, **options: Any
) -> SelectiveReplayBuffer:
    return make_replay_buffer(
        policy,
        capacity,
        generator=torch.Generator().manual_seed(seed),
        **{"sampler": SubsetSampler(), "num_classes": 10, **options},
    )


def make_agent(
    memory: str | TensorDictReplayBuffer | None,
    *,
    network: str = "fc",
    shape: tuple[int, ...] = (1, 8, 8),
    num_classes: int | None = 10,
    init: int = 0,
    **options: Any,
) -> DERPlusPlusAgent:
    """An agent with a memory, or one of 20 slots with a policy."""
    made = make_network(network, shape, num_classes or 1, seed=init)
    if isinstance(memory, str):
        gradients = LossGradients(made, num_classes)
        memory = make_memory(
            memory, seed=init, num_classes=num_classes, gradients=gradients
        )
    return DERPlusPlusAgent(
        made, memory, num_classes=num_classes, **{"replay_batch_size": 6, **options}
    )


def batches(count: int, size: int = 8, env: str = "SplitDigits") -> list[Batch]:
    """The first batches of a stream, with their targets."""
    stream = make_stream(env, batch_size=size)
    observation, _ = stream.reset(seed=0)
    found = []
    for _ in range(count):
        still = np.zeros(size, np.int64 if env == "SplitDigits" else np.float32)
        following, _, _, _, info = stream.step(still)
        found.append((observation, info.get("label", info.get("target"))))
        observation = following
    return found


def copied(network: FeatureNetwork) -> FeatureNetwork:
    return copy.deepcopy(network)


def parameters(module: DERPlusPlusAgent | FeatureNetwork) -> torch.Tensor:
    """All parameters in one vector, a copy."""
    network = module.network if isinstance(module, DERPlusPlusAgent) else module
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def assert_same_state(one: Any, two: Any) -> None:
    """Two nested states are the same bit for bit.

    But for the version of a list that a memory derives anew when it is loaded, and for
    slots that were never written.
    """
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, two)
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one.keys() - {"version"}:
            first, second = one[key], two[key]
            if key == "_storage" and "_len" in one:
                first, second = (
                    {
                        name: entry[: one["_len"]]
                        for name, entry in part.items()
                        if isinstance(entry, torch.Tensor)
                    }
                    for part in (first, second)
                )
            assert_same_state(first, second)
    elif isinstance(one, list | tuple):
        assert len(one) == len(two)
        for first, second in zip(one, two, strict=True):
            assert_same_state(first, second)
    else:
        assert one == two


def small(**chosen: Any) -> ExperimentConfig:
    env = chosen.pop("env", "SplitDigits")
    return ExperimentConfig.preset(env, **{**SMALL, **chosen})


def finish(config: ExperimentConfig, path: Path) -> dict[str, Any]:
    """The result of a whole run."""
    return Experiment(config, RunFolder(path)).run()


def file_names(path: Path) -> set[str]:
    """What is in the folder of a run, but for the lock."""
    return {each.name for each in path.iterdir()} - {".lock"}


def outcome(path: Path) -> tuple[bytes, bytes]:
    """The files of a run that must not depend on how it came to its end."""
    return (path / "result.json").read_bytes(), (path / "metrics.jsonl").read_bytes()
