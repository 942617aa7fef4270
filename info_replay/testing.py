"""The contract of selection policies as a test kit: :func:`check_writer`."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from info_replay import transfer
from info_replay.buffers import SelectiveReplayBuffer
from info_replay.writers.base import SelectionWriter

__all__ = ["check_writer", "fake_device", "make_items"]


@functools.cache
def fake_device() -> str:
    """A device for fake tensors: ``"cuda:0"`` if torch can pretend to have one.

    Torch without CUDA cannot index such tensors, nor can older torch without a GPU.
    ``"meta"`` is nearly as strict: only operations in place may mix it with others.

    Returns:
        The name of the device.
    """
    try:
        with FakeTensorMode():
            torch.empty(1, device="cuda:0")[0]
    except RuntimeError:
        return "meta"
    return "cuda:0"


def make_items(count: int, seed: int = 0) -> TensorDict:
    """Items that most policies can read: features around the center of a class.

    Args:
        count: number of items.
        seed: of the random numbers.

    Returns:
        Entries ``id``, ``observation`` ``(n, 3)``, ``feature`` ``(n, 5)``, ``target``
        (labels 0 to 3) and ``logits`` ``(n, 4)``.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (count,), generator=generator)
    centers = 2 * torch.nn.functional.one_hot(labels, 5)
    return TensorDict(
        {
            "id": torch.arange(count),
            "observation": torch.randn(count, 3, generator=generator),
            "feature": centers + torch.randn(count, 5, generator=generator),
            "target": labels,
            "logits": torch.randn(count, 4, generator=generator),
        },
        batch_size=[count],
    )


def check_writer(
    make_writer: Callable[[], SelectionWriter],
    *,
    items: Callable[[int, int], TensorDictBase] = make_items,
    capacity: int = 16,
    chunk_invariant: bool = False,
    devices: bool = True,
) -> None:
    """Put a selection policy through the contract that buffers rely on.

    Args:
        make_writer: makes a new writer, the same each time.
        items: makes so many items from a seed; they need an entry ``id`` that tells
            them apart.
        capacity: number of slots.
        chunk_invariant: whether the policy claims that the size of batches makes no
            difference.
        devices: whether to run it on a device that there is not, which shows tensors
            that are left on the host and transfers that are not needed.

    Raises:
        AssertionError: if the writer breaks the contract; the message says how.

    Example:
        >>> from info_replay import ReservoirWriter
        >>> check_writer(ReservoirWriter, chunk_invariant=True)
    """
    kit = _Kit(make_writer, items, capacity)
    kit.check_slots_and_counts()
    kit.check_saving()
    kit.check_settings()
    kit.check_refusals()
    kit.check_emptying()
    kit.check_sharing()
    if chunk_invariant:
        kit.check_chunks()
    if devices:
        kit.check_device()


@dataclass
class _Kit:
    """One writer under test; each check is a clause of the contract."""

    make_writer: Callable[[], SelectionWriter]
    items: Callable[[int, int], TensorDictBase]
    capacity: int

    def buffer(self, seed: int = 0) -> SelectiveReplayBuffer:
        return SelectiveReplayBuffer(
            self.capacity,
            writer=self.make_writer(),
            batch_size=6,
            generator=torch.Generator().manual_seed(seed),
        )

    def play(self, buffer: SelectiveReplayBuffer, seed: int) -> list[Tensor]:
        """Offer items, sample and write back; returns all decisions and samples."""
        log = []
        batches = self.items(3 * self.capacity + 5, seed).split(5)
        for turn, batch in enumerate(batches):
            log.append(buffer.extend(batch.clone()))
            if not len(buffer):
                continue
            # At times of most of the memory, which policies may follow in another way.
            sample = buffer.sample(6 if turn % 2 else 4 * self.capacity)
            log += [sample["index"], sample["id"]]
            key = buffer.writer.feature_key
            if key is not None:
                sample.set(key, 0.9 * sample.get(key) + 0.1)
            buffer.update_tensordict_priority(sample)
        return log

    def used(self) -> SelectiveReplayBuffer:
        """A buffer that has seen more items than it has slots."""
        buffer = self.buffer()
        self.play(buffer, 1)
        return buffer

    # -- clauses ----------------------------------------------------------------------

    def check_slots_and_counts(self) -> None:
        """Returned slots hold their items; the write count is that of the items."""
        buffer, offered = self.buffer(), 0
        for size in (1, 3, self.capacity, 4 * self.capacity, 2):
            batch = self.items(size, offered)
            slots = buffer.extend(batch.clone())
            kept = slots >= 0
            assert slots.shape == (size,), f"{size} items, slots {tuple(slots.shape)}"
            if len(buffer):
                held = buffer[:]["id"][slots[kept]]
                assert torch.equal(held, batch["id"][kept]), (
                    "a slot that extend() returned does not hold its item"
                )
            offered += size
            assert buffer.write_count == offered, (
                f"write_count is {buffer.write_count} after {offered} items"
            )
        one = buffer.add(self.items(1, 99)[0])
        assert isinstance(one, int), f"add() must return a slot or -1, got {one!r}"

    def check_saving(self) -> None:
        """A restored memory goes on bit for bit, in each of four ways."""
        expected = self.play(self.used(), 2)
        for how, restored in self._restored(self.used()):
            for here, there in zip(expected, self.play(restored, 2), strict=True):
                assert torch.equal(here, there), (
                    f"not the same after {how}: is all state declared in the "
                    "constructor, and are random numbers those of uniforms()?"
                )

    def _restored(
        self, buffer: SelectiveReplayBuffer
    ) -> Iterator[tuple[str, SelectiveReplayBuffer]]:
        twin = self.buffer(seed=9)
        twin.load_state_dict(buffer.state_dict())
        yield "state_dict", twin
        with tempfile.TemporaryDirectory() as folder:
            buffer.dumps(folder)
            twin = self.buffer(seed=9)
            twin.loads(folder)
        yield "dumps and loads", twin
        yield "deepcopy", copy.deepcopy(buffer)
        try:
            data = pickle.dumps(buffer)
        except (pickle.PicklingError, AttributeError):
            return  # a setting, such as a lambda, cannot be pickled
        yield "pickle", pickle.loads(data)

    def check_settings(self) -> None:
        """A memory that was saved with another setting is refused by its name."""
        buffer = self.used()
        for name in buffer.writer.settings():
            state = buffer.state_dict()
            state["_writer"]["settings"][name] = "something else"
            _refuses(buffer, buffer.load_state_dict, state, f"another {name}")

    def check_refusals(self) -> None:
        """Bad input raises and leaves no trace; deciding changes nothing."""
        buffer = self.used()
        buffer.writer.catch_up()
        before = buffer.state_dict()
        buffer.writer.decide(self.items(4, 3))
        assert _same(before, buffer.state_dict()), (
            "decide() changed what the policy keeps; that belongs in commit()"
        )
        good = self.items(4, 3)
        for what, bad in (
            ("an empty batch", good[:0]),
            ("a list", [good]),
            ("an item without a batch", good[0]),
            ("a batch without 'id'", good.exclude("id")),
            ("an unknown entry", good.clone().set("unknown", torch.zeros(4))),
        ):
            _refuses(buffer, buffer.extend, bad, what)

    def check_emptying(self) -> None:
        """An emptied memory holds nothing and can be filled again."""
        buffer = self.used()
        sample = buffer.sample()
        buffer.empty()
        assert (len(buffer), buffer.write_count, buffer.reservoir_count) == (0, 0, 0)
        now = buffer.writer.generations_of(sample["index"])
        assert bool((now != sample["index_generation"]).all()), (
            "a sample from before empty() looks live"
        )
        self.play(buffer, 4)
        assert len(buffer), "an emptied memory takes no items"

    def check_sharing(self) -> None:
        """In shared memory the policy decides as before."""
        shared, alone = self.used(), self.used()
        shared.writer.share_memory_()
        for here, there in zip(self.play(shared, 5), self.play(alone, 5), strict=True):
            assert torch.equal(here, there), "not the same once it is shared"

    def check_chunks(self) -> None:
        """Batches of any size leave the same memory and counts."""
        stream = self.items(6 * self.capacity, 6)
        single = self.buffer()
        for item in stream:
            single.add(item)
        for size in (2, 7, self.capacity + 1, len(stream)):
            buffer = self.buffer()
            for part in stream.split(size):
                buffer.extend(part.clone())
            here, there = buffer[:]["id"], single[:]["id"]
            if buffer.writer.compacts:  # which slots items move to may differ
                here, there = here.sort().values, there.sort().values
            assert torch.equal(here, there), (
                f"batches of {size} leave other items than single ones"
            )
            assert buffer.reservoir_count == single.reservoir_count, (
                f"batches of {size} count otherwise than single ones"
            )

    def check_device(self) -> None:
        """All tensors are on the storage's device, without a transfer per item."""
        pulls = []
        device = fake_device()

        def pull(tensor: Tensor) -> NDArray[np.float64]:
            pulls.append(tensor)
            return np.ones(tensor.numel())

        ones = mock.patch.object(transfer, "pull", pull)
        # Freeing fake tensors of another mode meanwhile would end the process.
        gc.collect()
        gc.disable()
        with FakeTensorMode(allow_non_fake_inputs=True), ones:
            buffer = SelectiveReplayBuffer(
                self.capacity, writer=self.make_writer(), device=device
            )
            buffer.writer.seed = 0
            batch = self.items(self.capacity, 0).to(device)
            try:
                for _ in range(3):  # also once the memory is full
                    slots = buffer.extend(batch)
            except Exception as error:
                raise AssertionError(
                    "decide() fails where items are not on the host; bring what it "
                    f"must know there with info_replay.transfer.to_host: {error}"
                ) from error
            finally:
                gc.enable()
        assert slots.device == batch.device, f"slots are on {slots.device}"
        assert len(pulls) < 3 * self.capacity, (
            f"{len(pulls)} transfers for {3 * self.capacity} items: decide() must "
            "bring what it needs to the host in few per batch, not in one per item"
        )


def _refuses(
    buffer: SelectiveReplayBuffer, misuse: Callable[[Any], object], bad: Any, what: str
) -> None:
    buffer.writer.catch_up()  # so that only the misuse can change the state
    before = buffer.state_dict()
    try:
        misuse(bad)
    except (TypeError, ValueError, KeyError):
        pass
    else:
        raise AssertionError(f"{what} was accepted")
    assert _same(before, buffer.state_dict()), f"{what} was refused but left a trace"


def _same(left: Any, right: Any) -> bool:
    """Whether two trees of plain values and tensors are equal bit for bit."""
    if isinstance(left, Tensor):
        return torch.equal(left.nan_to_num(), right.nan_to_num())
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            _same(left[key], right[key]) for key in left
        )
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
