"""Random operations on a memory, each followed by a comparison with a model."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tensordict import TensorDict

from info_replay import SelectiveReplayBuffer

from ..buffer.helpers import FEATURES, HYBRID
from .bad_batches import BAD_BATCHES
from .buffers import (
    STORAGES,
    assert_same,
    fuzzed_buffer,
    image,
    refusing,
    samplers_of,
    without_generations,
)
from .items import FORMS, assert_whole, make_items
from .model import Model, Sample

#: 4 of the kernel form of the posterior, others not; 530 are more than one block.
CAPACITIES = st.sampled_from([4, 7, 16])
SIZES = st.sampled_from([1, 2, 3, 5, 8, 13, 24, 40, 530])
PLACES = st.floats(0, 1, exclude_max=True)
#: Samples and states that are kept to be used later.
KEPT = 4


class MemoryMachine(RuleBasedStateMachine):
    """One memory of a policy through extend, sample, write-back, save and so on.

    Args:
        policy: name of the policy, as in ``tests.buffer.helpers``.
        count: called once per operation, to show progress.
    """

    def __init__(self, policy: str, count: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.policy = policy
        self.count = count
        self.ids = itertools.count(100)  # below are items that a storage brings along
        self.samples: list[Sample] = []
        self.states: list[tuple[dict[str, Any], Model]] = []

    @initialize(
        storage=st.sampled_from([*STORAGES]), capacity=CAPACITIES, data=st.data()
    )
    def make(self, storage: str, capacity: int, data: st.DataObject) -> None:
        if self.policy in HYBRID:
            capacity += 3
        sampler = data.draw(st.sampled_from(samplers_of(self.policy)), label="sampler")
        self.kind = (storage, sampler, capacity)
        self.buffer = self.new_buffer()
        self.model = Model(self.policy, capacity)
        if storage == "given":
            self.model.brought = capacity
            for slot, item in enumerate(make_items(range(capacity))):
                self.model.put(slot, item)

    def new_buffer(self) -> SelectiveReplayBuffer:
        return fuzzed_buffer(self.policy, *self.kind)

    def new_items(self, count: int) -> TensorDict:
        return make_items(itertools.islice(self.ids, count))

    def slot(self, place: float) -> int:
        return int(place * len(self.buffer))

    def has_items(self) -> bool:
        return len(self.buffer) > 0

    def has_states(self) -> bool:
        return bool(self.states)

    @invariant()
    def the_memory_is_the_model(self) -> None:
        self.count()
        self.model.check(self.buffer)

    # -- offering ---------------------------------------------------------------------

    @rule(size=SIZES, form=st.sampled_from([*FORMS]))
    def extend(self, size: int, form: str) -> None:
        items = self.new_items(size)
        offered = items.clone()
        slots = self.buffer.extend(FORMS[form](offered))
        self.model.extend(items, slots.tolist(), self.buffer)

    @rule()
    def add(self) -> None:
        items = self.new_items(1)
        slot = self.buffer.add(items[0].clone())
        self.model.extend(items, [slot], self.buffer)

    @rule(case=st.sampled_from([*BAD_BATCHES]))
    @precondition(has_items)
    def offer_bad_batch(self, case: str) -> None:
        change, words = BAD_BATCHES[case]
        batch = change(self.new_items(12))
        with refusing(self.buffer, words=words):
            self.buffer.extend(batch)

    # -- replay -----------------------------------------------------------------------

    @rule(size=st.sampled_from([1, 6, 24]))
    @precondition(has_items)
    def sample(self, size: int) -> None:
        rows = self.buffer.sample(size)
        assert_whole(rows.exclude("td_error"))
        sample = self.model.sampled(rows.clone())
        assert rows["id"].tolist() == [item.id for item in sample.held]
        for feature, item in zip(rows["feature"], sample.held, strict=True):
            assert torch.equal(feature, item.feature)
        self.samples = [*self.samples[1 - KEPT :], sample]

    @rule(
        which=st.integers(-KEPT, -1),
        shift=st.integers(1, 9),
        features_only=st.booleans(),
    )
    @precondition(lambda self: self.samples)
    def write_back(self, which: int, shift: int, features_only: bool) -> None:
        sample = self.samples[max(which, -len(self.samples))]
        rows = sample.rows.clone()
        rows["feature"] = 0.9 * rows["feature"] + 0.01 * shift
        rows["td_error"] = torch.linspace(0.1, 1, len(rows)) * shift
        keeps = self.policy in FEATURES
        only = features_only and keeps
        give = "update_features" if only else "update_tensordict_priority"
        if max(rows["index"].tolist()) >= len(self.buffer):
            # A slot that is not in use may be refused, as a whole, or left out.
            before = image(self.buffer)
            try:
                getattr(self.buffer, give)(rows)
            except IndexError:
                assert_same(before, image(self.buffer))
                return
        else:
            getattr(self.buffer, give)(rows)
        if keeps:
            self.model.write_back(sample, rows["feature"], self.buffer)

    @rule(change=st.sampled_from(["set", "extend", "empty", "load"]), place=PLACES)
    @precondition(has_items)
    def write_back_late(self, change: str, place: float) -> None:
        """What chance alone would rarely do: changes between sample and return."""
        if change == "load":
            self.save_state()
            self.extend(13, "plain")
        self.sample(24)
        if change == "set":
            self.set_item(place, "number")
        else:
            if change == "empty":
                self.empty()
            elif change == "load":
                self.load_state(-1, twin=False, through_file=False)
            self.extend(13, "plain")
        self.write_back(-1, 3, features_only=False)

    # -- writes of others -------------------------------------------------------------

    @rule(place=PLACES, how=st.sampled_from(["number", "slice", "tensor"]))
    @precondition(has_items)
    def set_item(self, place: float, how: str) -> None:
        slot = self.slot(place)
        items = self.new_items(1)
        if how == "number":
            self.buffer[slot] = items[0]
        elif how == "slice":
            self.buffer[slot : slot + 1] = items
        else:
            self.buffer[torch.tensor([slot])] = items
        self.model.put(slot, items[0])

    @rule(place=PLACES, shift=st.integers(1, 9))
    @precondition(has_items)
    def write_through_a_view(self, place: float, shift: int) -> None:
        """It is refused, goes to a copy, or is noticed; never half of it."""
        slot = self.slot(place)
        new = self.buffer[:]["feature"][slot] * 0.5 + 0.01 * shift
        try:
            self.buffer[:]["feature"][slot].copy_(new)
        except RuntimeError:
            pass
        if torch.equal(self.buffer[:]["feature"][slot], new):
            self.model.held[slot].feature = new

    @rule()
    def empty(self) -> None:
        self.buffer.empty()
        self.model.empty()

    # -- saving -----------------------------------------------------------------------

    @rule()
    def save_state(self) -> None:
        state = self.buffer.state_dict()
        self.states = [*self.states[1 - KEPT :], (state, self.model.restored())]

    @rule(which=st.integers(-KEPT, -1), twin=st.booleans(), through_file=st.booleans())
    @precondition(has_states)
    def load_state(self, which: int, twin: bool, through_file: bool) -> None:
        state, model = self.states[max(which, -len(self.states))]
        if through_file:
            file = io.BytesIO()
            torch.save(state, file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
        if twin:
            self.buffer = self.new_buffer()
            self.samples.clear()  # samples are of the buffer that they were drawn from
        self.buffer.load_state_dict(state)
        self.model = model.restored()

    @rule(how=st.sampled_from(["state_dict", "dumps", "pickle", "deepcopy"]))
    def continue_in_a_twin(self, how: str) -> None:
        before = image(self.buffer)
        if how == "pickle" and self.kind[0] == "memory-mapped":
            how = "deepcopy"  # torch cannot pickle memory maps
        if how == "deepcopy":
            twin = copy.deepcopy(self.buffer)
        elif how == "pickle":
            twin = pickle.loads(pickle.dumps(self.buffer))
        elif how == "dumps":
            twin = self.new_buffer()
            with tempfile.TemporaryDirectory() as folder:
                try:
                    self.buffer.dumps(folder)
                except RuntimeError:
                    if len(self.buffer):
                        raise
                    return  # there was never an item
                twin.loads(folder)
        else:
            twin = self.new_buffer()
            twin.load_state_dict(self.buffer.state_dict())
        after = image(twin)
        assert_same(without_generations(before), without_generations(after))
        self.buffer, self.model = twin, self.model.restored()
