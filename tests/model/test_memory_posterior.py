"""The posterior of a memory is that of the items in its slots, whatever happens."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from info_replay.model.memory_posterior import MemoryPosterior

from .helpers import Stored, assert_close, assert_leverage, make_memory, tensor

CLASSES = 3
#: Slots and features of memories of the primal or kernel form, and of a small one that
#: starts again with every batch that it stores.
SHAPES = {"primal": (30, 4), "kernel": (8, 20), "small": (8, 5)}
for_each_form = pytest.mark.parametrize("form", SHAPES)


class Slots:
    """A full memory and its posterior, which follows what is done to both.

    Args:
        form: of the posterior.
        seed: of what is stored.
    """

    def __init__(self, form: str, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.capacity, self.width = SHAPES[form]
        self.stored = Stored(*self.draw(self.capacity))
        self.memory = make_memory(self.stored, CLASSES)
        assert self.memory.posterior is not None
        assert self.memory.posterior.form == form.replace("small", "primal")

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        features = tensor(self.rng.normal(size=(count, self.width)))
        return features, tensor(self.rng.integers(CLASSES, size=count))

    def choose(self, count: int) -> Any:
        return self.rng.permutation(self.capacity)[:count]

    def replace(self, count: int) -> None:
        """Other items take some slots."""
        slots, (features, labels) = self.choose(count), self.draw(count)
        statistics = self.memory.posterior.statistics
        old = self.memory.rows(slots.tolist())
        new = statistics.join(features, self.memory.encode(labels))
        self.stored.write(slots, features, labels)
        self.memory.follow(old, new, slots)
        if not self.memory.is_current:  # the writer does that before the next batch
            self.memory.rebuild()

    def refresh(self, count: int) -> bool:
        """Items have new features; gives whether the posterior could follow."""
        slots, (features, _) = self.choose(count), self.draw(count)
        followed = self.memory.refresh(slots, features)
        self.stored.leaf("feature")[slots] = features
        if not followed:
            self.memory.rebuild()
        return followed

    def check(self, memory: MemoryPosterior | None = None) -> None:
        posterior = (memory or self.memory).posterior
        assert posterior is not None
        features, _ = self.draw(5)
        expected = self.stored.memory(CLASSES)
        assert_leverage(posterior.leverage(features), expected, features.numpy())
        means = np.array([expected.predict(feature)[0] for feature in features.numpy()])
        assert_close(posterior.predict(features)[0], means)


@for_each_form
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["replace", "refresh"]), st.integers(1, 8)),
        max_size=12,
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_follows_items_and_features(
    form: str, steps: list[tuple[str, int]], seed: int
) -> None:
    slots = Slots(form, seed)
    for step, count in steps:
        getattr(slots, step)(count)
    slots.check()


def test_where_most_features_change_it_asks_to_start_again() -> None:
    slots = Slots("primal")
    assert slots.refresh(14)
    assert not slots.refresh(15)
    slots.check()
    assert Slots("kernel").refresh(8)  # which keeps the rows: nothing adds up


@pytest.mark.parametrize("step", ["replace", "refresh"])
def test_after_many_changes_it_starts_again_from_what_is_stored(step: str) -> None:
    slots = Slots("primal")
    drift = slots.draw(1)[0], torch.full((1, CLASSES), 0.5)
    slots.memory.posterior.observe(*drift)
    with pytest.raises(AssertionError):
        slots.check()
    changed = 0
    while changed < 10_000:  # ten times the capacity, or a thousand if that is more
        getattr(slots, step)(10)
        changed += 10
    slots.check()


def test_before_the_first_item_there_is_nothing_to_follow() -> None:
    memory = MemoryPosterior(
        "feature", "target", num_classes=2, noise=0.3, jitter=0.1, dtype=torch.float64
    )
    memory.attach(Stored(torch.zeros(0, 3), torch.zeros(0).long(), capacity=5))
    memory.rebuild()
    memory.clear()
    assert not memory.refresh(np.array([0]), torch.zeros(1, 3))
    saved = memory.state_dict()
    assert saved["posterior"] is None
    slots = Slots("primal")
    slots.memory.check_state(saved)
    slots.memory.load_state_dict(saved)
    assert slots.memory.posterior is None


# -- targets ---------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_labels_become_rows_with_a_single_one(
    shape: tuple[int, ...], device: str
) -> None:
    memory = Slots("primal").memory
    labels = torch.tensor([2, 0, 7, -1]).reshape(shape)
    found = memory.encode(labels.to(device))
    assert found.shape == (4, CLASSES)
    if device == "cpu":
        assert isinstance(found, np.ndarray)
        expected = [[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
        assert found.astype(int).tolist() == expected


def test_numbers_have_a_column_per_output() -> None:
    stored = Stored(torch.zeros(3, 2), torch.ones(3))
    memory = make_memory(stored)
    assert memory.encode(torch.ones(4)).shape == (4, 1)
    assert memory.encode(torch.ones(4, 5)).shape == (4, 5)


def test_shapes_are_those_of_the_first_item() -> None:
    memory = Slots("primal").memory
    with pytest.raises(ValueError, match="'feature' must be 4 wide, got 5"):
        memory.for_shapes(5, CLASSES)
    with pytest.raises(ValueError, match="'target' must have 3 outputs, got 2"):
        memory.for_shapes(4, 2)
    assert memory.for_shapes(4, CLASSES) is memory.posterior


# -- copies ----------------------------------------------------------------------------


@for_each_form
@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda memory: pickle.loads(pickle.dumps(memory))]
)
def test_a_copy_knows_the_same_and_goes_its_own_way(form: str, duplicate: Any) -> None:
    slots = Slots(form)
    slots.replace(3)
    twin = duplicate(slots.memory)
    slots.check(twin)
    twin.posterior.clear()
    slots.check()


@for_each_form
def test_a_saved_state_is_restored_bit_for_bit(form: str) -> None:
    slots, other = Slots(form), Slots(form, seed=1)
    slots.replace(3)
    saved = slots.memory.state_dict()
    other.memory.check_state(saved)
    other.memory.load_state_dict(saved)
    features = slots.draw(5)[0]
    for mine, restored in zip(
        slots.memory.posterior.predict(features),
        other.memory.posterior.predict(features),
        strict=True,
    ):
        assert mine.equal(restored)
    assert other.memory.state_dict()["changed_rows"] == saved["changed_rows"]


def test_a_state_of_another_shape_is_refused() -> None:
    slots, other = Slots("primal"), Slots("kernel")
    with pytest.raises(ValueError, match="'feature' must be 4 wide, got 20"):
        slots.memory.check_state(other.memory.state_dict())
    slots.check()


def _change(slots: Slots, step: str) -> None:
    if step == "rebuild":
        slots.memory.rebuild()
    else:
        getattr(slots, step)(3)


@pytest.mark.parametrize("form", ["primal", "kernel"])
@pytest.mark.parametrize("step", ["replace", "refresh", "rebuild"])
def test_a_change_in_another_process_is_seen(form: str, step: str) -> None:
    slots = Slots(form)
    slots.memory.share_memory_()
    for leaf in slots.stored.leaves.values():
        leaf.share_memory_()
    slots.check()
    if step == "rebuild":
        slots.stored.leaf("feature").mul_(2)
    child = multiprocessing.get_context("fork").Process(
        target=_change, args=(slots, step)
    )
    child.start()
    child.join()
    assert child.exitcode == 0
    slots.check()
    assert slots.memory.state_dict()["changed_rows"] == (step != "rebuild") * 3
    slots.memory.rebuild()
    slots.check()
