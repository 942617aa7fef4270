"""GSS-Greedy decides as the algorithm written out, sample by sample."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from info_replay import GradientGreedyWriter, SelectiveReplayBuffer
from info_replay.writers import gradient_greedy
from info_replay.writers.gradient_greedy import _chance, _draw_order

from .reference import kept_ids

INPUTS, OUTPUTS = 3, 4


def make_stream(count: int, *, seed: int = 0) -> TensorDict:
    generator = torch.Generator().manual_seed(seed)
    return TensorDict(
        {
            "id": torch.arange(count),
            "x": torch.randn(count, INPUTS, generator=generator, dtype=torch.float64),
            "y": torch.randint(OUTPUTS, (count,), generator=generator),
        },
        batch_size=[count],
    )


def make_network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [nn.Linear(INPUTS, 5), nn.Tanh(), nn.Linear(5, OUTPUTS)]
        return nn.Sequential(*layers).double()


NETWORK = make_network()


def network_loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(functional_call(NETWORK, parameters, x), y)


def network_gradients(items: TensorDictBase) -> Tensor:
    parameters = {name: p.detach() for name, p in NETWORK.named_parameters()}
    found = vmap(grad(network_loss), in_dims=(None, 0, 0))(
        parameters, items["x"], items["y"]
    )
    return torch.cat([part.flatten(1) for part in found.values()], 1)


def make_buffer(
    capacity: int, seed: int = 0, gradients: Any = network_gradients, **options: int
) -> SelectiveReplayBuffer:
    writer = GradientGreedyWriter(gradients, **options)
    writer.seed = seed
    return SelectiveReplayBuffer(capacity, writer=writer, batch_size=4)


# -- the algorithm, written out -------------------------------------------------------


class Reference:
    """GSS-Greedy, one sample at a time; only the random numbers are given."""

    def __init__(self, capacity: int, seed: int, group_size: int, groups: int) -> None:
        self.capacity, self.seed = capacity, seed
        self.group_size, self.groups = group_size, groups
        self.memory: list[TensorDictBase] = []
        self.scores: list[float] = []
        self.seen = 0
        self.stored = 0
        self.quiet = 0  # blocks that met a full memory and changed nothing

    def gradient(self, items: Sequence[TensorDictBase]) -> list[float]:
        total = torch.zeros((), dtype=torch.float64)
        for item in items:
            total = total - torch.log_softmax(NETWORK(item["x"]), 0)[int(item["y"])]
        found = torch.autograd.grad(total / len(items), list(NETWORK.parameters()))
        return [float(number) for part in found for number in part.flatten()]

    def similarity(self, one: list[float], others: list[list[float]]) -> float:
        cosines = []
        for other in others:
            product = math.fsum(a * b for a, b in zip(one, other, strict=True))
            length = math.hypot(*one) * math.hypot(*other)
            cosines.append(product / length if length else 0.0)
        return max(cosines)

    def offer(self, batch: Sequence[TensorDictBase]) -> list[int]:
        """The slots of a batch, cut where the memory becomes full."""
        slots: list[int] = []
        rest = list(batch)
        while rest:
            room = self.capacity - len(self.memory) or self.capacity
            slots += self.offer_block(rest[:room])
            rest = rest[room:]
        return [
            slot if slot not in slots[place + 1 :] else -1
            for place, slot in enumerate(slots)
        ]

    def offer_block(self, block: Sequence[TensorDictBase]) -> list[int]:
        size = len(self.memory)
        numbers = np.random.Generator(
            np.random.Philox(
                key=np.array([self.seed, 1], dtype=np.uint64),
                counter=np.array([0, self.seen, 0, 0], dtype=np.uint64),
            )
        ).random(2 * size + len(block))
        self.seen += len(block)
        shuffled = sorted(range(size), key=lambda slot: numbers[slot])
        width = min(self.group_size, size)
        directions = []
        while size and len(directions) < self.groups and len(shuffled) >= width:
            group, shuffled = shuffled[:width], shuffled[width:]
            directions.append(self.gradient([self.memory[slot] for slot in group]))
        if size < self.capacity:
            slots = []
            for item in block:
                score = 0.1
                if size:
                    score = self.similarity(self.gradient([item]), directions)
                slots.append(len(self.memory))
                self.memory.append(item)
                self.scores.append(score)
                self.stored += 1
            return slots
        if self.similarity(self.gradient(block), directions) >= 0:
            self.quiet += 1
            return [-1] * len(block)
        candidates = self.draw(len(block), numbers[size : 2 * size])
        slots = []
        for item, slot, number in zip(
            block, candidates, numbers[2 * size :], strict=True
        ):
            score = self.similarity(self.gradient([item]), directions)
            old, new = self.scores[slot] + 1, score + 1
            if number < (old / (old + new) if old + new > 0 else 0.5):
                self.memory[slot], self.scores[slot] = item, score
                self.stored += 1
                slots.append(slot)
            else:
                slots.append(-1)
        return slots

    def draw(self, count: int, numbers: Sequence[float]) -> list[int]:
        """Slots one after the other: the first of the remaining clocks to ring."""
        low, high = min(self.scores), max(self.scores)
        waits = [-math.log1p(-number) for number in numbers]
        weights = [(s - low) / (high - low) if high > low else 1.0 for s in self.scores]
        remaining = set(range(len(weights)))
        drawn = []
        for _ in range(count):
            possible = [slot for slot in remaining if weights[slot] > 0]
            if possible:
                slot = min(possible, key=lambda slot: waits[slot] / weights[slot])
            else:
                slot = min(remaining, key=lambda slot: waits[slot])
            remaining.remove(slot)
            drawn.append(slot)
        return drawn


@pytest.mark.parametrize("batch", [1, 4, 7, 30])
@pytest.mark.parametrize(
    ("capacity", "group_size", "groups", "seed"),
    [(12, 3, 2, 0), (9, 10, 10, 1), (12, 2, 1, 2**62)],
)
def test_every_decision_is_that_of_the_algorithm(
    capacity: int, group_size: int, groups: int, seed: int, batch: int
) -> None:
    buffer = make_buffer(capacity, seed, group_size=group_size, groups=groups)
    reference = Reference(capacity, seed, group_size, groups)
    count = 40 if batch == 1 else 100
    for part in make_stream(count, seed=seed % 7).split(batch):
        assert buffer.extend(part).tolist() == reference.offer(list(part))
        np.testing.assert_allclose(buffer.writer.scores, reference.scores, atol=1e-9)
    assert kept_ids(buffer) == [int(item["id"]) for item in reference.memory]
    assert buffer.reservoir_count == reference.stored


def test_the_comparison_covers_both_kinds_of_blocks() -> None:
    reference = Reference(12, 0, 3, 2)
    for part in make_stream(100).split(4):
        reference.offer(list(part))
    assert reference.stored > 12
    assert 0 < reference.quiet < 22


def test_the_size_of_the_parts_of_gradients_does_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, parts = (make_buffer(12, group_size=3, groups=2) for _ in range(2))
    stream = make_stream(100)
    expected = [whole.extend(part).tolist() for part in stream.split(5)]
    shapes = []

    def watched(items: TensorDictBase) -> Tensor:
        shapes.append(tuple(items.batch_size))
        return network_gradients(items)

    parts.writer.gradients = watched
    width = network_gradients(stream[:1].unsqueeze(1)).shape[1]
    monkeypatch.setattr(gradient_greedy, "_LARGEST", 2 * width + 1)
    assert [parts.extend(part).tolist() for part in stream.split(5)] == expected
    assert {shape[0] for shape in shapes if shape[1] == 1} == {1, 2}


def test_a_block_that_agrees_with_the_memory_costs_no_gradients_of_samples() -> None:
    shapes = []

    def gradients(items: TensorDictBase) -> Tensor:
        shapes.append(tuple(items.batch_size))
        return torch.ones(len(items), 3)

    buffer = make_buffer(8, gradients=gradients, group_size=3, groups=9)
    buffer.extend(make_stream(8))
    assert shapes == [(1, 8)]  # only to check them
    assert buffer.extend(make_stream(5)).tolist() == [-1] * 5
    assert shapes == [(1, 8), (2, 3), (1, 5)]


# -- chances --------------------------------------------------------------------------


def test_candidates_are_drawn_in_proportion_to_their_scores() -> None:
    scores = np.array([-0.5, -0.3, 0.0, 0.5, 0.5])
    weights = (scores + 0.5) / 1.0
    draws = np.random.default_rng(0).random((5000, 5))
    orders = np.array([_draw_order(scores, row) for row in draws])
    assert (orders[:, -1] == 0).all()  # the least score comes last
    # The first two, as draws without replacement have them.
    pairs = list(itertools.permutations(range(1, 5), 2))
    expected = [
        weights[a] / weights.sum() * weights[b] / (weights.sum() - weights[a])
        for a, b in pairs
    ]
    found = [int(((orders[:, 0] == a) & (orders[:, 1] == b)).sum()) for a, b in pairs]
    assert sum(found) == len(draws)
    assert chisquare(found, len(draws) * np.array(expected)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("scores", "place"),
    [([0.3] * 5, 0), ([-1.0] * 4 + [1.0], 1)],
    ids=["all alike", "those without a chance"],
)
def test_equal_slots_are_drawn_alike(scores: list[float], place: int) -> None:
    draws = np.random.default_rng(1).random((5000, 5))
    orders = np.array([_draw_order(np.array(scores), row) for row in draws])
    assert place == 0 or (orders[:, 0] == 4).all()
    found = np.bincount(orders[:, place], minlength=5)[: 5 - place]
    assert chisquare(found).pvalue > 1e-3


@pytest.mark.filterwarnings("error")
def test_a_score_that_hardly_differs_is_no_trouble() -> None:
    scores, draws = np.array([0.0, 5e-324, 0.0]), np.array([0.5, 0.9, 0.1])
    assert sorted(_draw_order(scores, draws).tolist()) == [0, 1, 2]
    assert _draw_order(scores, np.zeros(3)).tolist()[0] == 1


def test_the_chance_of_a_replacement() -> None:
    stored, scores = np.array([-1.0, -1.0, 1.0, 0.5]), np.array([-1.0, 0.0, -1.0, -0.5])
    assert _chance(stored, scores).tolist() == [0.5, 0.0, 1.0, 0.75]


# -- gradients that are special -------------------------------------------------------


def entry(items: TensorDictBase) -> Tensor:
    return items["g"].mean(1)


def with_gradients(rows: list[list[float]]) -> TensorDict:
    return TensorDict({"g": torch.tensor(rows)}, batch_size=[len(rows)])


def test_gradients_of_length_0_have_similarity_0() -> None:
    buffer = make_buffer(4, gradients=entry)
    buffer.extend(with_gradients([[0.0, 0.0]]))
    buffer.extend(with_gradients([[1.0, 0.0]]))
    buffer.extend(with_gradients([[0.0, 0.0], [2.0, 0.0]]))
    assert buffer.writer.scores.tolist() == pytest.approx([0.1, 0.0, 0.0, 1.0])
    assert buffer.extend(with_gradients([[0.0, 0.0]])).tolist() == [-1]


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_tiny_and_huge_gradients_have_a_direction(size: float) -> None:
    buffer = make_buffer(3, gradients=entry)
    buffer.extend(with_gradients([[size, 0.0]]))
    buffer.extend(with_gradients([[size, size], [-size, 0.0]]))
    assert buffer.writer.scores[1:].tolist() == pytest.approx([math.sqrt(0.5), -1.0])


def test_what_the_gradients_function_gives_is_left_alone() -> None:
    kept = torch.tensor([[3.0, 4.0]])
    buffer = make_buffer(4, gradients=lambda items: kept.expand(len(items), 2))
    buffer.extend(with_gradients([[0.0, 0.0]]))
    buffer.extend(with_gradients([[0.0, 0.0]]))
    assert kept.tolist() == [[3.0, 4.0]]
    assert buffer.writer.scores.tolist() == pytest.approx([0.1, 1.0])


def test_items_that_a_storage_brought_have_the_score_of_first_ones() -> None:
    source = make_buffer(12)
    source.extend(make_stream(7))
    buffer = SelectiveReplayBuffer(
        storage=source.storage, writer=GradientGreedyWriter(network_gradients)
    )
    assert buffer.writer.scores.tolist() == [0.1] * 7
    buffer.extend(make_stream(4, seed=1))
    assert buffer.writer.scores[:7].tolist() == [0.1] * 7
    assert (buffer.writer.scores[7:] != 0.1).all()


# -- bad input ------------------------------------------------------------------------


def not_finite(items: TensorDictBase) -> Tensor:
    """Only items of the batch, whose number is above 100, have bad gradients."""
    bad = torch.where(items["id"] > 100, math.inf, 1.0)
    return network_gradients(items) * bad.mean(1, keepdim=True)


def bad_memory(items: TensorDictBase) -> Tensor:
    bad = torch.where(items["id"] > 100, 1.0, math.nan)
    return network_gradients(items) * bad.mean(1, keepdim=True)


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "infinite": (not_finite, ValueError, "finite numbers, .* of the batch"),
    "memory": (bad_memory, ValueError, "finite numbers, .* in the memory"),
    "length": (lambda i: torch.ones(len(i) + 1, 3), ValueError, r"P\), got \(.*, 3\)"),
    "flat": (lambda i: torch.ones(len(i)), ValueError, r"shape \(.*, P\), got"),
    "nothing": (lambda i: torch.ones(len(i), 0), ValueError, r"P\), got \(.*, 0\)"),
    "width": (
        lambda i: torch.ones(len(i), i.batch_size[1]),
        ValueError,
        r"shape \(\d+, 3\), got",
    ),
    "whole": (lambda i: torch.ones(len(i), 3).long(), TypeError, "int64"),
    "list": (lambda i: [[1.0]] * len(i), TypeError, "list"),
}


@pytest.mark.parametrize("seen", [5, 20], ids=["filling", "full"])
@pytest.mark.parametrize("kind", BAD)
def test_bad_gradients_are_refused_and_leave_no_trace(kind: str, seen: int) -> None:
    gradients, error, text = BAD[kind]
    buffer, twin = (make_buffer(12, group_size=3, groups=2) for _ in range(2))
    for each in (buffer, twin):
        each.extend(make_stream(seen))
    batch = make_stream(6, seed=1)
    batch["id"] += 1000
    buffer.writer.gradients = gradients
    with pytest.raises(error, match=text):
        buffer.extend(batch)
    buffer.writer.gradients = network_gradients
    for part in make_stream(18, seed=2).split(6):
        assert torch.equal(buffer.extend(part), twin.extend(part))
    assert kept_ids(buffer) == kept_ids(twin)
    assert buffer.writer.scores.tolist() == twin.writer.scores.tolist()
    assert buffer.reservoir_count == twin.reservoir_count


@pytest.mark.parametrize("value", [0, -3, 2.5, True])
@pytest.mark.parametrize("name", ["group_size", "groups"])
def test_bad_settings_are_refused(name: str, value: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=f"{name} must be .*{value}"):
        GradientGreedyWriter(network_gradients, **{name: value})


def test_gradients_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="must be a function of items, got None"):
        GradientGreedyWriter(None)  # type: ignore[arg-type]
