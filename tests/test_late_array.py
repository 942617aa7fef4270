"""Arrays that are made with the first items are like those that are there at once."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
import torch

from info_replay.late_array import LateArray


def test_it_has_no_shape_until_the_first_values() -> None:
    late = LateArray(np.float64)
    assert (late.array, late.state_dict()) == (None, None)
    late.clear()
    late.put(np.array([[1.0, 2.0]]))
    late.prepare((9, 9))  # it is there already
    assert late.array is not None
    assert late.array.tolist() == [[1.0, 2.0]]
    late.clear()
    assert late.array.tolist() == [[0.0, 0.0]]


def test_a_state_comes_back_also_that_of_before_the_first_values() -> None:
    late, twin = LateArray(np.float64), LateArray(np.float64)
    before = late.state_dict()
    late.put(np.array([1.0, 2.0]))
    twin.check_state(late.state_dict())
    twin.load_state_dict(late.state_dict())
    assert twin.array is not None
    assert twin.array.tolist() == [1.0, 2.0]
    twin.load_state_dict(before)
    assert twin.array is None


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (1, "expected a tensor or None, got 1"),
        (torch.zeros(3).double(), r"of torch.float64 and shape \(2,\)"),
        (torch.zeros(2), "expected a tensor of torch.float64"),
        (torch.tensor([0.0, np.nan]).double(), "expected finite numbers"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(state: object, message: str) -> None:
    late = LateArray(np.float64)
    late.prepare(2)
    with pytest.raises(ValueError, match=message):
        late.check_state(state)


def _add(late: LateArray) -> None:
    assert late.array is not None
    late.array[:] += 1


@pytest.mark.parametrize("shared_first", [True, False])
def test_child_processes_see_it_once_it_is_shared(shared_first: bool) -> None:
    late = LateArray(np.float64)
    if shared_first:
        late.share_memory_()
    late.prepare(2)
    if not shared_first:
        late.share_memory_()
    child = multiprocessing.get_context("fork").Process(target=_add, args=(late,))
    child.start()
    child.join()
    assert late.array is not None
    assert late.array.tolist() == [1.0, 1.0]
    late.load_state_dict(None)  # what children have cannot be taken away
    assert late.array.tolist() == [0.0, 0.0]
