"""What an agent refuses to learn from, before anything is changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.agents.test_derpp import batches, make_agent, make_memory, parameters


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (np.zeros((8, 1), dtype=np.int64), r"shape \(8,\), got \(8, 1\)"),
        (np.zeros(7, dtype=np.int64), r"shape \(8,\), got \(7,\)"),
        (np.zeros(8, dtype=np.int32), "int64 labels from 0 to 9.*got int32"),
        (np.full(8, 10), "from 0 to 9.*from 10 to 10"),
        (np.full(8, -2), "from 0 to 9.*from -2 to -2"),
    ],
)
def test_wrong_labels_are_refused_and_nothing_changes(
    target: Any, expected: str
) -> None:
    agent = make_agent(make_memory("rs"))
    agent.learn(*batches(1)[0])
    before = [value.clone() for value in parameters(agent)]
    stored = len(agent.memory)
    with pytest.raises(ValueError, match=expected):
        agent.learn(batches(1)[0][0], target)
    assert all(map(torch.equal, parameters(agent), before))
    assert len(agent.memory) == stored


def test_a_state_without_a_part_is_refused_and_nothing_changes() -> None:
    agent, other = make_agent(make_memory("rs")), make_agent(make_memory("rs"))
    other.learn(*batches(1)[0])
    state = other.state_dict()
    del state["generator"]
    before = [value.clone() for value in parameters(agent)]
    with pytest.raises(KeyError, match="no 'generator'"):
        agent.load_state_dict(state)
    assert all(map(torch.equal, parameters(agent), before))
