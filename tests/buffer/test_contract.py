"""Every policy keeps the contract, and the kit that says so can fail."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tensordict import TensorDictBase

from info_replay import Decision, SelectionWriter
from info_replay.storage.stateful_writer import DRAWS
from info_replay.testing import check_writer
from info_replay.transfer import to_host

from .helpers import (
    HYBRID,
    OneTaskWriter,
    complete_state,
    differences,
    for_each_policy,
    make_buffer,
    make_stream,
    make_writer,
    past_ring,
    play,
)

#: What these keep does not depend on how a stream is cut into batches.
CHUNK_INVARIANT = ("rs", "wrs", "cbrs", "infors", "fss-clust", *HYBRID)


@for_each_policy
def test_a_policy_keeps_the_contract(policy: str) -> None:
    """Restarts bit for bit, refuses without a trace, can be emptied and shared."""
    check_writer(lambda: make_writer(policy), chunk_invariant=policy in CHUNK_INVARIANT)


@pytest.mark.parametrize("delay", [0, 2])
def test_update_timing_keeps_the_contract(delay: int) -> None:
    check_writer(lambda: OneTaskWriter(delay), capacity=10)


@for_each_policy
def test_an_emptied_memory_is_like_a_new_one(policy: str) -> None:
    used, new = make_buffer(policy), make_buffer(policy)
    play(used, make_stream(60, seed=5))
    used.empty()
    # Two things move on: random draws, so that the next life is another one, and
    # generations, so that samples of the last life are recognized.
    new.writer.counts.array[DRAWS] = 60
    new.writer.policy.counts.array[DRAWS] = past_ring(policy, 60)
    new.set_rng(used._rng.clone_state())
    stream = make_stream(60)
    assert differences(play(used, stream), play(new, stream)) == []
    states = complete_state(used), complete_state(new)
    for state in states:
        del state["_writer"]["generations"]
    assert differences(*states) == []


# -- the kit itself -------------------------------------------------------------------


class Ring(SelectionWriter):
    """Keeps the last items. The writers below each break one rule."""

    def __init__(self) -> None:
        super().__init__()
        self.position = self.counter("position")

    def places(self, count: int, start: int) -> np.ndarray:
        slots = (start + np.arange(count)) % self.slots.capacity
        slots[: -self.slots.capacity] = -1
        return slots

    def decide(self, batch: TensorDictBase) -> Decision:
        def commit() -> None:
            self.position.value += len(batch)

        return Decision(self.places(len(batch), self.position.value), commit)


def test_a_policy_of_fifteen_lines_keeps_the_contract() -> None:
    check_writer(Ring, capacity=10, chunk_invariant=True)


class Undeclared(Ring):
    """Counts where no save looks."""

    def __init__(self) -> None:
        super().__init__()
        self.start = 0

    def decide(self, batch: TensorDictBase) -> Decision:
        def commit() -> None:
            self.start += len(batch)

        return Decision(self.places(len(batch), self.start), commit)


class Hasty(Ring):
    """Changes its state before the batch is written."""

    def decide(self, batch: TensorDictBase) -> Decision:
        start = self.position.value
        self.position.value += len(batch)
        return Decision(self.places(len(batch), start))


class Forgetful(Ring):
    """Does not keep its argument."""

    def __init__(self, share: float = 0.5) -> None:
        super().__init__()


class ByBatches(Ring):
    """Leaves the last item of a batch out."""

    def decide(self, batch: TensorDictBase) -> Decision:
        slots = len(self.slots) + np.arange(len(batch))
        slots[slots >= self.slots.capacity] = -1
        slots[-1] = slots[-1] if len(batch) == 1 else -1
        return Decision(slots)


class TooFew(Ring):
    """Has no slot for the last item."""

    def decide(self, batch: TensorDictBase) -> Decision:
        return Decision(super().decide(batch).slots[:-1])


class Peeking(Ring):
    """Waits for the device without saying so."""

    def decide(self, batch: TensorDictBase) -> Decision:
        batch["feature"].sum().item()
        return super().decide(batch)


class PeekingWhenFull(Ring):
    """Waits for the device once there is no room any more."""

    def decide(self, batch: TensorDictBase) -> Decision:
        if len(self.slots) == self.slots.capacity:
            batch["feature"].sum().item()
        return super().decide(batch)


class OnTheHost(Ring):
    """Mixes devices."""

    def decide(self, batch: TensorDictBase) -> Decision:
        _ = batch["feature"] + torch.ones(len(batch), 1)
        return super().decide(batch)


class Transferring(Ring):
    """Waits for the device once per item."""

    def decide(self, batch: TensorDictBase) -> Decision:
        for value in batch["feature"].unbind():
            to_host(value)
        return super().decide(batch)


class Uncleared(Ring):
    """Remembers something of the life before."""

    def clear_state(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("broken", "error", "words"),
    [
        (Undeclared, AssertionError, "not the same after state_dict"),
        (Hasty, AssertionError, r"decide\(\) changed .* commit"),
        (Forgetful, TypeError, "Forgetful must keep its argument 'share'"),
        (ByBatches, AssertionError, "batches of 2 leave other items than single"),
        (TooFew, ValueError, "TooFew.decide.*one slot per item"),
        (Peeking, AssertionError, "to_host"),
        (PeekingWhenFull, AssertionError, "to_host"),
        (OnTheHost, AssertionError, "not on the host"),
        (Transferring, AssertionError, "transfer"),
        (Uncleared, (AssertionError, ValueError), "empt|gap"),
    ],
)
def test_the_kit_finds_a_broken_policy(
    broken: Callable[[], SelectionWriter],
    error: type[Exception] | tuple[type[Exception], ...],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        check_writer(broken, capacity=10, chunk_invariant=True)


def test_what_is_not_claimed_is_not_asked_for() -> None:
    check_writer(ByBatches, capacity=4)
    check_writer(Peeking, capacity=4, devices=False)
