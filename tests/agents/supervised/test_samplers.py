"""Replay draws are distinct items, each subset as likely as any other."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import chisquare
from tensordict import TensorDict

from agents.supervised.samplers import SubsetSampler
from info_replay import SelectiveReplayBuffer, make_replay_buffer


def make_numbered(count: int, seed: int = 0) -> SelectiveReplayBuffer:
    """A memory of the numbers from 0."""
    memory = make_replay_buffer(
        "rs",
        max(count, 1),
        sampler=SubsetSampler(),
        generator=torch.Generator().manual_seed(seed),
    )
    if count:
        memory.extend(TensorDict({"x": torch.arange(count)}, batch_size=[count]))
    return memory


def draw(memory: SelectiveReplayBuffer, size: int) -> list[int]:
    numbers: list[int] = memory.sample(size)["x"].tolist()
    return numbers


def test_the_items_of_a_draw_are_distinct_and_all_if_there_are_no_more() -> None:
    memory = make_numbered(12)
    for size in range(1, 16):
        for _ in range(20):
            assert (
                len({*draw(memory, size)}) == len(draw(memory, size)) == min(size, 12)
            )


def test_every_subset_is_equally_likely() -> None:
    memory = make_numbered(6)
    counts: dict[frozenset[int], int] = {}
    for _ in range(1500):
        subset = frozenset(draw(memory, 3))
        counts[subset] = counts.get(subset, 0) + 1
    assert len(counts) == math.comb(6, 3)
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_two_draws_in_a_row_are_independent() -> None:
    memory = make_numbered(4)
    table = [[0] * 4 for _ in range(4)]
    for _ in range(1500):
        (one,), (two,) = draw(memory, 1), draw(memory, 1)
        table[one][two] += 1
    assert chisquare([count for row in table for count in row]).pvalue > 1e-3


def test_draws_depend_on_the_memorys_generator_alone() -> None:
    torch.manual_seed(1)
    one = make_numbered(50, seed=3)
    first = [draw(one, 10) for _ in range(5)]
    torch.manual_seed(2)
    state = torch.get_rng_state()
    two = make_numbered(50, seed=3)
    assert [draw(two, 10) for _ in range(5)] == first
    assert torch.equal(torch.get_rng_state(), state)
    other = make_numbered(50, seed=4)
    assert [draw(other, 10) for _ in range(5)] != first


def test_an_empty_memory_cannot_be_drawn_from() -> None:
    with pytest.raises(RuntimeError, match="empty memory"):
        make_numbered(0).sample(3)
