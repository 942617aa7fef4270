"""Every bad input gets its one line and leaves the memory as if it had never come."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch

from info_replay import SelectiveReplayBuffer

from ..buffer.helpers import differences, make_buffer
from .bad_inputs import AGES, SETTINGS, Case, all_cases
from .buffers import assert_same, fuzzed_buffer, image, refusing
from .items import FORMS, assert_whole, make_items

CASES = {case.name: case for case in all_cases()}


@functools.cache
def _aged(policy: str, age: str, sampler: str) -> SelectiveReplayBuffer:
    buffer = fuzzed_buffer(policy, sampler=sampler)
    if AGES[age]:
        for batch in make_items(range(AGES[age])).split(8):
            buffer.extend(batch)
            buffer.sample()
    if age == "emptied":
        buffer.empty()
    return buffer


def played(buffer: SelectiveReplayBuffer) -> list[Any]:
    """What happens to the next items."""
    log = [buffer.extend(batch) for batch in make_items(range(900, 930)).split(8)]
    return [*log, buffer.sample(), image(buffer)]


@pytest.mark.parametrize("name", CASES)
def test_bad_input_says_what_is_bad_and_leaves_no_trace(name: str) -> None:
    case: Case = CASES[name]
    for policy in case.policies:
        for age in case.ages:
            buffer = copy.deepcopy(_aged(policy, age, case.sampler))
            with refusing(buffer, case.errors, case.words):
                case.call(buffer)
            twin = copy.deepcopy(_aged(policy, age, case.sampler))
            assert differences(played(buffer), played(twin)) == []


def test_there_are_more_than_a_hundred() -> None:
    assert len(CASES) >= 100


@pytest.mark.parametrize(
    ("policy", "name", "value"),
    [
        pytest.param(policy, name, value, id=f"{policy}-{name}={value}")
        for name, value, policies in SETTINGS
        for policy in policies
    ],
)
def test_a_bad_setting_is_named_with_its_value(
    policy: str, name: str, value: Any
) -> None:
    before = torch.get_rng_state()
    with pytest.raises((ValueError, TypeError)) as caught:
        make_buffer(policy, **{name: value})
    for word in (name, repr(value)):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("policy", ["rs", "infors", "fss-clust", "recent-infors"])
def test_items_in_an_unusual_form_are_not_bad(policy: str, form: str) -> None:
    buffer, twin = fuzzed_buffer(policy), fuzzed_buffer(policy)
    for batch in make_items(range(40)).split(10):
        slots = buffer.extend(FORMS[form](batch.clone()))
        assert torch.equal(slots, twin.extend(batch))
    assert_whole(buffer[:])
    assert_same(image(twin), image(buffer))
