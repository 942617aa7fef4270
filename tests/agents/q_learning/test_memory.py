"""Which replay buffer goes with which settings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchrl.data import (
    PrioritizedSampler,
    RandomSampler,
    TensorDictPrioritizedReplayBuffer,
    TensorDictReplayBuffer,
)
from torchrl.objectives import DQNLoss

from agents.q_learning import TransitionFeatures
from agents.q_learning.memory import choose_target, make_memory
from info_replay import (
    MIC,
    EntropyReduction,
    InfoReservoirReplayBuffer,
    ReservoirWriter,
    SelectiveReplayBuffer,
)

from .helpers import DIM, make_frames, make_loss, small

VECTOR = torch.Size([DIM])


def make(policy: str, **chosen: Any) -> Any:
    config = small(policy=policy, **chosen)
    return make_memory(config, make_loss(), VECTOR)


def test_fifo_is_torchrls_own() -> None:
    memory = make("fifo", capacity=10)
    assert type(memory) is TensorDictReplayBuffer
    assert isinstance(memory.sampler, RandomSampler)
    memory.extend(make_frames(8, seed=1))
    memory.extend(make_frames(8, seed=2))
    frames = torch.cat([make_frames(8, seed=1), make_frames(8, seed=2)])
    kept = {tuple(row.tolist()) for row in memory[:]["observation"]}
    assert kept == {tuple(row.tolist()) for row in frames["observation"][-10:]}


def test_prioritized_is_torchrls_own() -> None:
    memory = make("prioritized", capacity=10)
    assert type(memory) is TensorDictPrioritizedReplayBuffer
    assert isinstance(memory.sampler, PrioritizedSampler)
    assert (memory.sampler.alpha, memory.sampler.beta) == (0.6, 0.4)


def test_rs_is_a_reservoir_that_looks_at_nothing() -> None:
    memory = make("rs")
    assert isinstance(memory, SelectiveReplayBuffer)
    assert isinstance(memory.writer, ReservoirWriter)
    memory.extend(make_frames(8))
    assert not {"feature", "target"} & set(memory[:].keys())


def test_infors_is_that_of_the_settings() -> None:
    memory = make("infors", eta=2.0, gamma=0.5, noise=0.4, jitter=0.2, decay=0.9)
    assert isinstance(memory, InfoReservoirReplayBuffer)
    writer = memory.writer
    assert (writer.criterion, writer.gamma, writer.noise) == (MIC(2.0), 0.5, 0.4)
    assert (writer.jitter, writer.moments.decay, memory.capacity) == (0.2, 0.9, 24)
    assert make("infors", criterion="er").writer.criterion == EntropyReduction()


def test_infors_looks_at_standardized_targets() -> None:
    memory = make("infors", capacity=200)
    assert [type(part) for part in memory.transform] == [TransitionFeatures]
    memory.extend(make_frames(100))
    target, statistics = memory[:]["target"].double(), memory.writer.standardization
    assert statistics.count == 100
    assert statistics.mean == pytest.approx(target.mean(0).numpy(), abs=1e-9)
    deviation = target.std(0, correction=0).numpy()
    assert statistics.deviation == pytest.approx(deviation, abs=1e-9)


@pytest.mark.parametrize(("target", "width"), [("td", 1), ("dyn", 2 + DIM)])
def test_the_target_is_that_of_the_settings(target: str, width: int) -> None:
    memory = make("infors", target=target)
    memory.extend(make_frames(8))
    assert memory[:]["target"].shape == (8, width)


@pytest.mark.parametrize(
    ("target", "shape", "expected"),
    [
        ("auto", (4,), "dyn"),
        ("auto", (64,), "dyn"),
        ("auto", (65,), "td"),
        ("auto", (4, 4, 4), "dyn"),
        ("auto", (10, 10, 4), "td"),
        ("td", (4,), "td"),
        ("dyn", (10, 10, 4), "dyn"),
    ],
)
def test_small_observations_are_explained_themselves(
    target: str, shape: tuple[int, ...], expected: str
) -> None:
    assert choose_target(small(target=target), torch.Size(shape)) == expected


@pytest.mark.parametrize("policy", ["infors", "rs", "fifo", "prioritized"])
def test_a_memory_depends_on_the_seed_alone(policy: str) -> None:
    def sampled(seed: int, elsewhere: int) -> torch.Tensor:
        torch.manual_seed(elsewhere)
        loss: DQNLoss = make_loss()
        memory = make_memory(small(policy=policy, seed=seed), loss, VECTOR)
        for part in range(5):
            memory.extend(make_frames(20, seed=part))
        assert len(memory) == 24
        return memory.sample(20)["observation"]

    if policy == "prioritized":  # TorchRL samples these by numpy's or torch's global
        assert sampled(0, 1).equal(sampled(0, 1))
    else:
        assert sampled(0, 1).equal(sampled(0, 2))
    assert not sampled(0, 1).equal(sampled(1, 1))
