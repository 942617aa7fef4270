"""On a GPU a step of a learner stays there; only decisions of the memory come back.

Fake tensors have a device but no values; ``tests/agents/q_learning/test_agent.py`` says
what they cannot run and the way round it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from agents.supervised.learner import Learner, make_learner
from agents.supervised.networks import FullyConnected
from info_replay import make_replay_buffer
from tests.agents.supervised.helpers import batches
from tests.buffer.test_devices import (
    GPU,
    DeviceReads,
    Gateway,
    _no_collection,  # noqa: F401  a fixture for every test here
    as_a_device,
    fake_gpu,
    replaced,
)


def steps(name: str, policy: str, device: str, gateway: Gateway) -> Learner:
    """Learn until the memory is full and beyond."""
    with torch.device(device):
        network = FullyConnected((1, 8, 8), 10)
    network.to = lambda where: network  # type: ignore[method-assign, assignment]
    memory = make_replay_buffer(policy, 20, num_classes=10, device=device)
    memory.writer.seed = 0
    learner = make_learner(
        name, network, memory, num_classes=10, device=device, replay_batch_size=6
    )
    with replaced(to_host=gateway):
        for observation, label in batches(5):
            learner.learn(observation, label)
    return learner


def look_at(loss: Tensor) -> None:
    """Stands in for the backward pass, which asks the driver for a context."""
    assert loss.shape == ()
    assert str(loss.device) == GPU


@pytest.fixture
def _on_fake_tensors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "is_set_to", lambda one, two: one is two)
        patch.setattr(Tensor, "backward", look_at)
        yield


@pytest.mark.parametrize("policy", ["rs", "infors"])
@pytest.mark.parametrize("name", ["der++", "er", "er-ace"])
def test_a_step_reads_nothing_from_the_device_but_decisions(
    name: str, policy: str, request: pytest.FixtureRequest
) -> None:
    recorder = Gateway()
    with as_a_device():
        steps(name, policy, "cpu", recorder)
    request.getfixturevalue("_on_fake_tensors")
    gateway = Gateway(replay=iter(recorder.recorded))
    with fake_gpu(), DeviceReads() as reads:
        learner = steps(name, policy, GPU, gateway)
    assert reads.log == []
    assert gateway.calls == recorder.calls
    memory: Any = learner.memory
    tensors = [*memory.storage[:].values(True, True), *learner.network.parameters()]
    assert {str(tensor.device) for tensor in tensors} == {GPU}
    assert len(memory) == 20


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["der++", "er", "er-ace", "finetune"])
def test_a_learner_on_a_gpu_learns(name: str) -> None:
    network = FullyConnected((1, 8, 8), 10)
    memory = make_replay_buffer("infors", 20, num_classes=10, device="cuda")
    learner = make_learner(name, network, memory, num_classes=10, device="cuda")
    for observation, label in batches(5):
        assert isinstance(learner.act(observation), np.ndarray)
        learner.learn(observation, label)
    assert next(learner.network.parameters()).device.type == "cuda"
