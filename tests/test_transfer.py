"""What must be known on the host comes there at once, and only if it is not there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from info_replay import transfer
from info_replay.transfer import extremes, to_host


def test_what_is_on_the_host_is_not_copied() -> None:
    tensor, array = torch.arange(3.0), np.arange(2)
    found = to_host(tensor, array)
    assert found[1] is array
    found[0][1] = 7
    assert tensor.tolist() == [0.0, 7.0, 2.0]


def test_what_is_elsewhere_comes_in_one_transfer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transfers = []

    def pull(tensor: torch.Tensor) -> np.ndarray:
        transfers.append((tensor.dtype, tuple(tensor.shape)))
        return np.arange(6.0)

    monkeypatch.setattr(transfer, "pull", pull)
    vector = torch.zeros(3, dtype=torch.int64, device="meta")
    number = torch.zeros((), dtype=torch.float32, device="meta")
    flags = torch.zeros(2, dtype=torch.bool, device="meta")
    array = np.array([9])
    found = to_host(vector, array, number, flags)
    assert transfers == [(torch.float64, (6,))]
    assert [part.tolist() for part in found] == [[0, 1, 2], [9], 3, [4, 5]]
    assert found[1] is array


def test_a_transfer_brings_the_values() -> None:
    assert transfer.pull(torch.tensor([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert to_host() == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_extremes_are_the_smallest_and_the_largest(dtype: torch.dtype) -> None:
    low, high = to_host(*extremes(torch.tensor([[3, -2], [7, 0]]).to(dtype)))
    assert (float(low), float(high)) == (-2.0, 7.0)
    apart = extremes(torch.zeros(3, 2, dtype=dtype, device="meta"))
    assert [part.shape for part in apart] == [(), ()]


def test_extremes_tell_of_what_is_not_a_number() -> None:
    low, high = extremes(torch.tensor([1.0, float("nan"), float("inf")]))
    assert np.isnan(low)
    assert np.isnan(high)
