"""Small learners, memories and runs on streams that need no download."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agents.config import ExperimentConfig
from agents.derpp import DERPlusPlusAgent
from agents.experiment import Experiment
from agents.gradients import LossGradients
from agents.networks import FeatureNetwork, make_network
from agents.run_folder import RunFolder
from agents.samplers import SubsetSampler
from continual_envs import make_stream
from info_replay import (
    GradientGreedyWriter,
    SelectiveReplayBuffer,
    make_replay_buffer,
)

Batch = tuple[NDArray[Any], NDArray[Any]]

#: Settings of a run of a second on Split Digits.
SMALL: dict[str, Any] = {
    "epochs": 1,
    "batch_size": 32,
    "replay_batch_size": 16,
    "capacity": 30,
    "evaluations": 4,
    "threads": 1,
}


def make_memory(
    policy: str,
    capacity: int = 20,
    *,
    num_classes: int | None = 10,
    seed: int = 0,
    sampler: SubsetSampler | None = None,
) -> SelectiveReplayBuffer:
    options: dict[str, Any] = {}
    if policy in ("cbrs", "coreset") or policy.startswith("info"):
        options["num_classes"] = num_classes
    if policy == "gss":
        options["gradients"] = len  # until there is a network; see make_agent
    return make_replay_buffer(
        policy,
        capacity,
        sampler=sampler or SubsetSampler(),
        generator=torch.Generator().manual_seed(seed),
        **options,
    )


def make_agent(
    memory: SelectiveReplayBuffer | None,
    *,
    network: str = "fc",
    shape: tuple[int, ...] = (1, 8, 8),
    num_classes: int | None = 10,
    init: int = 0,
    **options: Any,
) -> DERPlusPlusAgent:
    made = make_network(network, shape, num_classes or 1, seed=init)
    if memory is not None and isinstance(memory.writer, GradientGreedyWriter):
        memory.writer.gradients = LossGradients(made, num_classes)
    return DERPlusPlusAgent(
        made,
        memory,
        num_classes=num_classes,
        **{"replay_batch_size": 6, **options},
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


def parameters(agent: DERPlusPlusAgent) -> torch.Tensor:
    """All parameters in one vector, a copy."""
    return torch.cat([p.detach().flatten() for p in agent.network.parameters()])


def assert_same_state(one: Any, two: Any) -> None:
    """Two nested states are the same to the bit.

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
    """Settings of a run of a second or less."""
    env = chosen.pop("env", "SplitDigits")
    config: ExperimentConfig = ExperimentConfig.preset(env, **{**SMALL, **chosen})
    return config


def finish(config: ExperimentConfig, path: Path) -> dict[str, Any]:
    """The result of a whole run."""
    return Experiment(config, RunFolder(path)).run()


def outcome(path: Path) -> tuple[bytes, bytes]:
    """The files of a run that must not depend on how it came to its end."""
    return (path / "result.json").read_bytes(), (path / "metrics.jsonl").read_bytes()
