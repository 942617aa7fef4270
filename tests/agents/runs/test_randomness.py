"""Code that asks torch's global generator can have random numbers of its own."""

from __future__ import annotations

import pytest
import torch

from agents.runs.randomness import OwnRandomness

CPU = torch.device("cpu")


def draws(randomness: OwnRandomness, count: int) -> list[float]:
    found = []
    for _ in range(count):
        with randomness.inside():
            found.append(float(torch.rand(())))
    return found


def test_draws_depend_on_the_seed_and_on_earlier_draws_alone() -> None:
    torch.manual_seed(1)
    first = draws(OwnRandomness(3, CPU), 4)
    torch.manual_seed(2)
    assert draws(OwnRandomness(3, CPU), 4) == first
    assert draws(OwnRandomness(4, CPU), 4) != first
    assert len(set(first)) == 4


def test_numbers_that_repeat_are_the_first_ones_of_the_seed() -> None:
    (first,) = draws(OwnRandomness(3, CPU), 1)
    assert draws(OwnRandomness(3, CPU, repeats=True), 3) == [first] * 3


def test_the_global_generator_is_left_alone_also_after_an_error() -> None:
    randomness = OwnRandomness(0, CPU)
    before = torch.get_rng_state()

    def fail() -> None:
        with randomness.inside():
            torch.rand(3)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert torch.equal(torch.get_rng_state(), before)
    # What failed is repeated with the same numbers.
    assert draws(randomness, 2) == draws(OwnRandomness(0, CPU), 2)


def test_a_saved_state_goes_on() -> None:
    one, two = OwnRandomness(0, CPU), OwnRandomness(1, CPU)
    draws(one, 3)
    two.load_state_dict(one.state_dict())
    assert draws(two, 3) == draws(one, 3)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_device_has_numbers_of_its_own_too() -> None:
    device = torch.device("cuda:0")
    one, two = OwnRandomness(0, device), OwnRandomness(1, device)
    before = torch.cuda.get_rng_state(device)
    for randomness in (one, one):
        with randomness.inside():
            torch.rand(2, device=device)
    assert torch.equal(torch.cuda.get_rng_state(device), before)
    two.load_state_dict(one.state_dict())
    found = []
    for randomness in (one, two):
        with randomness.inside():
            found.append(torch.rand(5, device=device))
    assert torch.equal(*found)
