"""Weighted reservoir sampling: items are kept in proportion to their weights."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict, TensorDictBase
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from info_replay import OutputHessian, ReservoirWriter, WeightedReservoirWriter

from . import reference
from .reference import chunkings, examples, extend_all, kept_ids, make_buffer


def weighted(weights: list[float]) -> TensorDict:
    return TensorDict(
        {
            "id": torch.arange(len(weights)),
            "weight": torch.tensor(weights, dtype=torch.float64),
        },
        batch_size=[len(weights)],
    )


def by_weight() -> WeightedReservoirWriter:
    return WeightedReservoirWriter(score=lambda items: items["weight"])


@given(
    capacity=st.integers(1, 15),
    weights=st.lists(
        st.one_of(st.floats(0, 10), st.sampled_from([0.0, 1.0, 1000.0])),
        min_size=20,
        max_size=100,
    ),
    seed=st.integers(0, 2**62),
    data=st.data(),
)
@examples(40)
def test_every_decision_is_that_of_the_algorithm(capacity, weights, seed, data):
    sizes = data.draw(chunkings(len(weights)))
    writer = by_weight()
    buffer = make_buffer(writer, capacity, seed)
    slots = extend_all(buffer, weighted(weights), sizes)
    draws = reference.random_numbers(writer.seed, len(weights))
    run = reference.weighted_reservoir(weights, capacity, draws)
    assert slots == reference.settled(run.slots, sizes)
    assert kept_ids(buffer) == run.memory
    assert writer.reservoir_count == len(weights)
    assert writer.total_weight == pytest.approx(math.fsum(weights), rel=1e-12)


@pytest.mark.parametrize("weight", [1.0, 0.1, 1e-30, 1e30])
def test_constant_weights_are_reservoir_sampling(weight):
    items = weighted([weight] * 1000)
    plain, writer = ReservoirWriter(), by_weight()
    buffers = make_buffer(plain, 40, seed=5), make_buffer(writer, 40, seed=5)
    for part in items.split(37):
        assert torch.equal(*(buffer.extend(part.clone()) for buffer in buffers))
    assert kept_ids(buffers[0]) == kept_ids(buffers[1])


def test_an_item_without_weight_is_only_kept_while_there_is_room():
    buffer = make_buffer(by_weight(), 3)
    assert buffer.extend(weighted([0.0] * 5)).tolist() == [0, 1, 2, -1, -1]
    buffer.extend(weighted([1.0, *[0.0] * 200]))
    assert buffer.extend(weighted([0.0] * 200)).tolist() == [-1] * 200


@pytest.mark.filterwarnings("error")
def test_an_item_with_hardly_any_weight_is_not_kept():
    buffer = make_buffer(by_weight(), 1)
    assert buffer.extend(weighted([1.0, 1e-309])).tolist() == [0, -1]


def test_an_item_that_outweighs_its_share_is_surely_kept():
    writer = by_weight()
    buffer = make_buffer(writer, 4)
    buffer.extend(weighted([1.0] * 100))
    for item in weighted([1000.0, 1e4, 1e5, 1e6]).unbind(0):
        assert buffer.add(item) >= 0
    assert writer.total_weight == 100 + 1000 + 1e4 + 1e5 + 1e6


def test_items_that_a_storage_brings_along_have_their_weights():
    storage = LazyTensorStorage(3)
    storage.set(range(3), weighted([1.0, 2.0, 4.0]))
    writer = by_weight()
    buffer = TensorDictReplayBuffer(storage=storage, writer=writer)
    buffer.extend(weighted([0.0]))
    assert writer.total_weight == 7


class TestOutputHessian:
    @staticmethod
    def items(logits: torch.Tensor) -> TensorDict:
        return TensorDict({"logits": logits}, batch_size=[len(logits)])

    def test_is_the_trace_of_the_hessian_of_the_cross_entropy(self):
        generator = torch.Generator().manual_seed(0)
        logits = 3 * torch.randn(5, 4, generator=generator, dtype=torch.float64)
        hessians = [
            torch.autograd.functional.hessian(
                lambda row: torch.logsumexp(row, 0), row
            ).trace()
            for row in logits
        ]
        weights = OutputHessian()(self.items(logits))
        assert torch.allclose(weights, torch.stack(hessians), atol=1e-12)

    def test_is_0_where_all_is_known_and_never_negative(self):
        logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [900.0, 0.0, 0.0, 0.0]])
        assert OutputHessian()(self.items(logits)).tolist() == [0.75, 0.0]
        logits = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0)) * 30
        assert float(OutputHessian()(self.items(logits)).min()) >= 0

    def test_is_what_weighs_by_default(self):
        logits = torch.tensor([[0.0, 0.0], [900.0, 0.0]]).repeat(100, 1)
        items = self.items(logits)
        writer = WeightedReservoirWriter()
        buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(6), writer=writer)
        slots = buffer.extend(items)
        assert (slots[6:] >= 0).any()
        assert (slots[6:].view(-1, 2)[:, 1] == -1).all()
        assert writer.total_weight == 50

    def test_reads_the_entry_that_it_is_told(self):
        items = TensorDict({"a": {"b": torch.zeros(3, 2)}}, batch_size=[3])
        assert OutputHessian(("a", "b"))(items).tolist() == [0.5] * 3

    @pytest.mark.parametrize(
        ("entries", "error"),
        [
            ({"other": torch.zeros(3, 2)}, KeyError),
            ({"logits": torch.zeros(3)}, ValueError),
            ({"logits": torch.zeros(3, 2).long()}, ValueError),
        ],
        ids=["missing", "shape", "type"],
    )
    def test_refuses_what_are_not_logits(self, entries, error):
        items: TensorDictBase = TensorDict(entries, batch_size=[3])
        with pytest.raises(error, match="logits"):
            OutputHessian()(items)
