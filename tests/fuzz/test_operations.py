"""Random operations never lose, tear or mix up items; ``make fuzz`` tries more."""

from __future__ import annotations

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from ..buffer.helpers import POLICIES
from .machine import MemoryMachine


# Of sizes of samples and of storages without a cursor.
@pytest.mark.filterwarnings("ignore::UserWarning:torchrl.*")
@pytest.mark.parametrize("policy", POLICIES)
def test_a_memory_is_what_a_dictionary_of_its_items_would_be(policy: str) -> None:
    # Of its own seed: a profile without chance would do the same to all of them.
    run_state_machine_as_test(
        seed(POLICIES.index(policy))(lambda: MemoryMachine(policy)),
        settings=settings(max_examples=12, stateful_step_count=50, database=None),
    )
