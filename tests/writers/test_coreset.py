"""Coresets of a stream are those of the algorithm written out, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import Tensor
from torchrl.data import (
    LazyTensorStorage,
    PrioritizedSampler,
    TensorStorage,
)

from info_replay import CoresetWriter, SelectiveReplayBuffer
from info_replay.coreset.kernels import ReLUTangentKernel
from info_replay.writers import coreset
from tests.coreset.bilevel import Array, BilevelProblem

from .reference import kept_ids

CLASSES, REGULARIZATION = 3, 1e-2
#: Part by which a choice must be better than the next best to say anything.
CLEAR = 1e-6

Kernel = Callable[[Tensor, Tensor], Tensor]


def make_stream(count: int, *, seed: int = 0) -> TensorDict:
    """Noisy clusters, one per class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    noise = torch.randn(count, 4, generator=generator, dtype=torch.float64)
    return TensorDict(
        {
            "id": torch.arange(count),
            "observation": 2 * torch.eye(4, dtype=torch.float64)[labels] + noise,
            "target": labels,
        },
        batch_size=[count],
    )


def gaussian(left: Tensor, right: Tensor) -> Tensor:
    return (-torch.cdist(left, right).square() / 6).exp()


def make_buffer(
    capacity: int = 8,
    parts: int = 2,
    *,
    storage: Any = None,
    sampler: Any = None,
    **options: Any,
) -> SelectiveReplayBuffer:
    writer = CoresetWriter(
        CLASSES, parts=parts, **{"regularization": REGULARIZATION, **options}
    )
    return SelectiveReplayBuffer(
        None if storage is not None else capacity,
        writer=writer,
        storage=storage,
        sampler=sampler,
        batch_size=4,
        generator=torch.Generator().manual_seed(0),
    )


def parts_of(buffer: SelectiveReplayBuffer) -> list[tuple[int, list[int]]]:
    """Batches that each part stands for, and its items, from the oldest part on."""
    state = buffer.writer.save_state()
    ids, part_of = kept_ids(buffer), state["part_of"].tolist()[: len(buffer)]
    counts = [count for count in state["batches"].tolist() if count]
    assert set(part_of) <= set(range(len(counts)))
    return [
        (count, sorted(i for i, p in zip(ids, part_of, strict=True) if p == place))
        for place, count in enumerate(counts)
    ]


def assert_slots_hold(
    buffer: SelectiveReplayBuffer, batch: TensorDict, slots: Tensor
) -> None:
    """Items with a slot are in it, whole; the others are nowhere in the memory."""
    memory, kept = buffer[:], slots >= 0
    for key in batch.keys(True, True):
        assert torch.equal(memory[key][slots[kept]], batch[key][kept])
    absent = set(batch["id"][~kept].tolist())
    assert not absent & set(memory["id"].tolist())


# -- the algorithm, written out -------------------------------------------------------


class Reference:
    """The streaming algorithm with lists of items and dense Hessians."""

    def __init__(
        self,
        stream: TensorDict,
        capacity: int,
        parts: int,
        kernel: Kernel,
        regularization: float = REGULARIZATION,
    ) -> None:
        inputs = stream["observation"]
        self.kernel: Array = kernel(inputs, inputs).numpy()
        self.labels = stream["target"].numpy()
        self.size, self.parts = capacity // parts, parts
        self.regularization = regularization
        self.memory: list[tuple[int, list[int]]] = []  # batches and items of each part
        self.closest = np.inf  # by how much a choice was ever better than the next best

    def offer(self, batch: list[int]) -> None:
        self.memory.append((1, self.compress(batch, [1.0] * len(batch))))
        if len(self.memory) <= self.parts:
            return
        place = self.pair()
        (older, first), (newer, second) = self.memory[place : place + 2]
        weights = [older / len(first)] * len(first) + [newer / len(second)] * len(
            second
        )
        merged = (older + newer, self.compress(first + second, weights))
        self.memory[place : place + 2] = [merged]

    def pair(self) -> int:
        """The place of the first of the two neighbors that are merged."""
        counts = [count for count, _ in self.memory]
        last_old = len(counts) - 2
        if last_old == 0 or counts[last_old] < counts[last_old - 1]:
            return last_old  # it takes in the new batch until it has caught up
        equal = [
            (counts[place], place)
            for place in range(len(counts) - 1)
            if counts[place] == counts[place + 1]
        ]
        return min(equal)[1]

    def compress(self, items: list[int], weights: list[float]) -> list[int]:
        if len(items) <= self.size:
            return sorted(items)
        problem = BilevelProblem(
            self.kernel[np.ix_(items, items)],
            self.labels[items],
            np.array(weights),
            CLASSES,
            self.regularization,
        )
        chosen: list[int] = []
        while len(chosen) < self.size:
            gradients = problem.gradients(chosen)
            gradients[chosen] = np.inf
            best, next_best = np.sort(gradients)[:2]
            self.closest = min(self.closest, (next_best - best) / abs(best))
            chosen.append(int(np.argmin(gradients)))
        return sorted(items[place] for place in chosen)


@pytest.mark.parametrize("kernel", [ReLUTangentKernel(), gaussian], ids=["relu", "own"])
@pytest.mark.parametrize(
    ("capacity", "parts", "sizes", "seed"),
    [
        (4, 1, [6] * 4, 0),
        (7, 2, [8] * 5, 1),  # a slot stays free
        (6, 3, [6] * 8, 2),
        (10, 5, [4] * 12, 0),
        (9, 3, [2] * 9, 1),  # batches smaller than a part: some merges keep all
        (8, 2, [1, 9, 3, 6, 1, 1, 8], 2),
    ],
    ids=str,
)
def test_every_batch_leaves_what_the_algorithm_written_out_leaves(
    capacity: int, parts: int, sizes: list[int], seed: int, kernel: Kernel
) -> None:
    stream = make_stream(sum(sizes), seed=seed)
    reference = Reference(stream, capacity, parts, kernel)
    buffer = make_buffer(capacity, parts, kernel=kernel)
    for batch in stream.split(sizes):
        slots = buffer.extend(batch)
        reference.offer(batch["id"].tolist())
        assert reference.closest > CLEAR
        assert parts_of(buffer) == reference.memory
        assert_slots_hold(buffer, batch, slots)
        assert len(buffer) <= capacity


def test_parts_may_be_single_items() -> None:
    stream = make_stream(40)
    buffer = make_buffer(3, 3)
    for batch in stream.split(4):
        slots = buffer.extend(batch)
        assert_slots_hold(buffer, batch, slots)
        assert all(len(items) == 1 for _, items in parts_of(buffer))
    # Each from the batches that its part stands for.
    (first, [oldest]), (second, [middle]), (third, [newest]) = parts_of(buffer)
    assert (first, second, third) == (4, 4, 2)
    assert oldest < 16 <= middle < 32 <= newest


@pytest.mark.parametrize("shape", [(), (1,)], ids=str)
def test_an_input_may_be_a_single_number(shape: tuple[int, ...]) -> None:
    """Of one direction are all numbers of one sign; a label is learned from once."""
    batch = TensorDict(
        {
            "id": torch.arange(6),
            "observation": torch.tensor([1.0, 2, 3, -1, -2, -3]).reshape(-1, *shape),
            "target": torch.tensor([0, 0, 0, 1, 1, 1]),
        },
        batch_size=[6],
    )
    buffer = make_buffer(2, 1)
    buffer.extend(batch)
    assert kept_ids(buffer) == [0, 3]


@pytest.mark.parametrize("seed", range(3))
def test_a_rare_class_is_kept(seed: int) -> None:
    """Two in three memories of 12 random items would miss it."""
    stream = make_stream(400, seed=seed)
    rare = stream["target"] == 2
    stream = stream[~rare | (rare.cumsum(0) % 13 == 0)]
    share = float((stream["target"] == 2).float().mean())
    assert (1 - share) ** 12 > 0.6
    buffer = make_buffer(12, 3)
    for batch in stream.split(40):
        buffer.extend(batch)
    assert 2 in buffer[:]["target"]


# -- batches of several blocks --------------------------------------------------------


@pytest.mark.parametrize("count", [5, 13])
def test_blocks_of_a_batch_are_batches_of_their_own(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coreset, "_BLOCK", 5)
    stream = make_stream(60 + count)
    whole, cut = make_buffer(9, 3), make_buffer(9, 3)
    for buffer in (whole, cut):
        buffer.extend(stream[:5])
    batch = stream[5 : 5 + count]
    slots = whole.extend(batch)
    for block in batch.split(5):
        cut.extend(block)
    assert parts_of(whole) == parts_of(cut)
    assert_slots_hold(whole, batch, slots)
    assert whole.write_count == cut.write_count == 5 + count


# -- the memory and its samples -------------------------------------------------------


def test_a_sample_of_an_item_that_moved_or_went_is_stale() -> None:
    buffer = make_buffer(8, 2)
    stream = make_stream(60)
    for batch in stream.split(6):
        before = kept_ids(buffer)
        index = torch.arange(len(before))
        generations = buffer.writer.generations_of(index)
        buffer.extend(batch)
        after = kept_ids(buffer) + [-1] * len(before)
        same = buffer.writer.generations_of(index) == generations
        expected = [one == other for one, other in zip(before, after, strict=False)]
        assert same.tolist() == expected


def test_a_sampler_with_priorities_is_refused() -> None:
    with pytest.raises(ValueError, match="CoresetWriter .* PrioritizedSampler cannot"):
        make_buffer(sampler=PrioritizedSampler(8, alpha=1.0, beta=1.0))


@pytest.mark.parametrize(
    ("count", "sizes"), [(7, [3, 2, 2]), (6, [3, 2, 1]), (3, [3]), (1, [1])]
)
def test_items_that_a_storage_brings_along_are_divided_into_parts(
    count: int, sizes: list[int]
) -> None:
    stream = make_stream(60)
    buffer = make_buffer(7, 3, storage=TensorStorage(stream[:7].clone()))
    buffer.storage._len = count
    assert (len(buffer), buffer.write_count) == (count, 0)
    batch = stream[7:12]
    slots = buffer.extend(batch)
    assert_slots_hold(buffer, batch, slots)
    found = parts_of(buffer)
    if len(sizes) < 3:
        assert found[:-1] == [(1, list(range(count)))]
    else:
        assert [number for number, _ in found] == [2, 1, 1]
        assert set(found[0][1]) < set(range(5))
        assert found[1][1] == list(range(5, count))
    for rest in stream[12:].split(6):
        buffer.extend(rest)
        assert len(buffer) <= 7


# -- bad input ------------------------------------------------------------------------


def spoilt(batch: TensorDict, key: str, value: float) -> TensorDict:
    batch[key][-2] = value
    return batch


@pytest.fixture(params=[1024, 3], ids=["one block", "several blocks"])
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coreset, "_BLOCK", request.param)


@pytest.fixture(params=[0, 3], ids=["new", "full"])
def twins(
    request: pytest.FixtureRequest,
) -> tuple[SelectiveReplayBuffer, SelectiveReplayBuffer]:
    """Two memories that have seen the same batches."""
    buffers = make_buffer(), make_buffer()
    for buffer in buffers:
        for number in range(request.param):
            buffer.extend(make_stream(6, seed=10 + number))
    return buffers


def assert_refused(
    twins: tuple[SelectiveReplayBuffer, SelectiveReplayBuffer],
    batch: TensorDict,
    error: type[Exception],
    message: str,
) -> None:
    """The batch is refused, and the memory goes on as if it had not come."""
    buffer, twin = twins
    with pytest.raises(error, match=message):
        buffer.extend(batch)
    buffer.writer.kernel = twin.writer.kernel
    for rest in make_stream(14, seed=3).split(7):
        assert torch.equal(buffer.extend(rest), twin.extend(rest))
    assert parts_of(buffer) == parts_of(twin)
    assert buffer.write_count == twin.write_count


@pytest.mark.usefixtures("_blocks")
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("target", CLASSES, r"'target' .* from 0 to 2, got 3.* for item 5"),
        ("target", -1, r"'target' .* from 0 to 2, got -1.* for item 5"),
        ("observation", np.nan, "'observation' must be finite, got nan for item 5"),
        ("observation", -np.inf, "'observation' must be finite, got -inf for item 5"),
    ],
)
def test_a_bad_value_in_any_block_refuses_the_batch(
    twins: Any, key: str, value: float, message: str
) -> None:
    assert_refused(twins, spoilt(make_stream(7), key, value), ValueError, message)


def test_inputs_must_be_there_from_the_first_batch_on() -> None:
    with pytest.raises(KeyError, match="missing entry 'observation': the inputs"):
        make_buffer().extend(make_stream(7).exclude("observation"))


@pytest.mark.usefixtures("_blocks")
def test_a_kernel_that_ignores_an_input_does_not_hide_it(twins: Any) -> None:
    twins[0].writer.kernel = lambda left, right: torch.ones(len(left), len(right))
    batch = spoilt(make_stream(7), "observation", np.nan)
    assert_refused(twins, batch, ValueError, "'observation' must be finite, got nan")


#: What functions make of a good kernel.
KERNELS: dict[str, tuple[Callable[[Tensor], Any], type[Exception], str]] = {
    "infinite": (lambda k: k / 0, ValueError, "kernel of entry .* must be finite"),
    "too wide": (
        lambda k: torch.cat([k, k], 1),
        ValueError,
        r"kernel must return the shape \((\d), \1\) on cpu.*, got",
    ),
    "flat": (
        torch.flatten,
        ValueError,
        r"must return the shape .*, got \(\d+,\) on cpu",
    ),
    "elsewhere": (lambda k: k.to("meta"), ValueError, r"return .* on cpu .* on meta"),
    "an array": (Tensor.numpy, TypeError, "a tensor of real numbers, got float64"),
    "complex": (
        lambda k: k.to(torch.complex64),
        TypeError,
        "a tensor of real numbers, got torch.complex64",
    ),
}


@pytest.mark.usefixtures("_blocks")
@pytest.mark.parametrize("case", KERNELS)
def test_what_is_not_a_kernel_is_refused(twins: Any, case: str) -> None:
    spoil, error, message = KERNELS[case]
    twins[0].writer.kernel = lambda left, right: spoil(gaussian(left, right))
    assert_refused(twins, make_stream(7), error, message)


def test_a_kernel_that_fails_when_parts_are_merged_leaves_no_trace() -> None:
    calls = []

    def failing(left: Tensor, right: Tensor) -> Tensor:
        calls.append(len(left))
        return gaussian(left, right) / (len(calls) < 2)  # infinite the second time

    twins = make_buffer(), make_buffer()
    for buffer in twins:
        for number in range(2):
            buffer.extend(make_stream(6, seed=10 + number))
    twins[0].writer.kernel = failing
    assert_refused(twins, make_stream(7), ValueError, "must be finite")
    assert calls == [7, 8]


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64], ids=str
)
def test_a_kernel_may_be_of_any_real_type(dtype: torch.dtype) -> None:
    def rounded(left: Tensor, right: Tensor) -> Tensor:
        return (8 * gaussian(left, right)).to(dtype)

    buffer = make_buffer(kernel=rounded)
    for batch in make_stream(30).split(6):
        buffer.extend(batch)
    assert len(buffer) == 8


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"parts": 0}, ValueError, "parts must be at least 1, got 0"),
        ({"parts": 1.5}, TypeError, r"parts must be a whole number, got 1\.5"),
        ({"kernel": "rbf"}, TypeError, "kernel must be a function .*, got 'rbf'"),
        ({"regularization": 0.0}, ValueError, r"regularization must be .* got 0\.0"),
        ({"regularization": np.nan}, ValueError, "regularization .* got nan"),
    ],
    ids=str,
)
def test_bad_settings_are_refused(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        CoresetWriter(**{"num_classes": CLASSES, **options})


def test_a_memory_smaller_than_its_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity must be at least parts=4, got 3"):
        make_buffer(3, 4)
    with pytest.raises(ValueError, match="capacity must be at least parts=4, got 3"):
        make_buffer(parts=4, storage=LazyTensorStorage(3))
    make_buffer(4, 4)


@pytest.mark.parametrize("how", ["added", "emptied"])
def test_items_that_others_add_or_remove_are_noticed(how: str) -> None:
    buffer = make_buffer(12, 3)
    for batch in make_stream(64).split(16):
        buffer.extend(batch)
    if how == "added":
        buffer.writer.slots.shrink(8)
        buffer.storage.set(torch.arange(8, 11), make_stream(3, seed=1))
    else:
        buffer.storage._empty()
    for batch in make_stream(64, seed=2).split(16):
        slots = buffer.extend(batch)
        kept = slots >= 0
        assert buffer[:]["id"][slots[kept]].equal(batch["id"][kept])
        assert len(buffer) <= 12
