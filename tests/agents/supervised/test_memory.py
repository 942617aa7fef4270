"""From the settings to the memory: every policy gets what it has a use for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agents.supervised.memory import make_memory
from agents.supervised.networks import make_network
from agents.supervised.samplers import SubsetSampler
from info_replay import MIC, Criterion, EntropyReduction, ReservoirWriter
from tests.agents.supervised.helpers import small

CHOSEN: dict[str, Any] = {
    "capacity": 30,
    "eta": 0.5,
    "gamma": 0.25,
    "gamma_learnability": 0.75,
    "noise": 0.4,
    "jitter": 0.2,
    "decay": 0.9,
    "gss_group_size": 3,
    "gss_groups": 4,
    "coreset_parts": 5,
}


def make(policy: str, **chosen: Any) -> Any:
    network = make_network("fc", (1, 8, 8), 10, seed=0)
    return make_memory(small(policy=policy, **{**CHOSEN, **chosen}), 10, network)


INFORMATION = {"criterion": MIC(0.5), "gamma": 0.25, "noise": 0.4, "jitter": 0.2}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("auto", {"num_classes": 10, "noise": 0.4, "jitter": 0.2, "gamma": -0.5}),
        ("rs", {}),
        ("wrs", {}),
        ("fss-clust", {}),
        ("cbrs", {"num_classes": 10}),
        ("coreset", {"num_classes": 10, "parts": 5}),
        ("gss", {"group_size": 3, "groups": 4}),
        ("infors", {**INFORMATION, "num_classes": 10}),
        ("infogs", {**INFORMATION, "gamma_learnability": 0.75, "reservoir": False}),
        ("infogs-rs", {**INFORMATION, "gamma_learnability": 0.75, "reservoir": True}),
    ],
)
def test_a_policy_has_the_options_of_the_settings(
    policy: str, expected: dict[str, Any]
) -> None:
    memory = make(policy)
    found = {name: getattr(memory.writer, name) for name in expected}
    assert found == expected
    assert memory.capacity == 30
    assert isinstance(memory.sampler, SubsetSampler)
    if policy.startswith("info"):
        assert memory.writer.moments.decay == 0.9


def test_without_a_policy_there_is_no_memory() -> None:
    assert make("none") is None


def test_the_criterion_is_that_of_the_settings() -> None:
    assert make("infors", criterion="er").writer.criterion == EntropyReduction()
    own = make("infors", criterion=f"{__name__}:Distance").writer.criterion
    assert isinstance(own, Distance)


class Distance(Criterion):
    """A criterion of the user's, which has no option."""

    def __call__(
        self,
        leverage: torch.Tensor,
        squared_error: torch.Tensor,
        *,
        noise: float,
        num_outputs: int,
    ) -> torch.Tensor:
        return leverage


class Halved(ReservoirWriter):
    """A policy of the user's, with one of our options and one of its own."""

    def __init__(self, num_classes: int, share: float = 0.5) -> None:
        super().__init__()
        self.num_classes, self.share = num_classes, share


class Demanding(ReservoirWriter):
    def __init__(self, salary: int) -> None:
        super().__init__()


def nobody() -> None:
    """Not a policy."""


def test_a_policy_of_the_users_is_made_like_ours() -> None:
    writer = make(f"{__name__}:Halved").writer
    assert isinstance(writer, Halved)
    assert (writer.num_classes, writer.share) == (10, 0.5)


def test_a_policy_of_the_users_keeps_its_defaults_but_for_what_is_given() -> None:
    name = "info_replay:BalancedInfoReservoirWriter"
    network = make_network("fc", (1, 8, 8), 10, seed=0)
    for chosen in ({}, {"noise": 0.7, "eta": 0.5}):
        memory = make_memory(small(policy=name, **chosen), 10, network)
        assert memory is not None
        writer: Any = memory.writer
        assert (writer.gamma, writer.groups) == (-0.5, "modes")
        assert writer.noise == chosen.get("noise", 0.3)
        assert writer.criterion == MIC(chosen.get("eta", 1.0))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Demanding", "needs the option 'salary'"),
        ("nobody", "SelectionWriter, got None"),
    ],
)
def test_what_cannot_be_made_is_refused(name: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        make(f"{__name__}:{name}")


def test_coresets_need_a_slot_each() -> None:
    with pytest.raises(ValueError, match="capacity must be at least parts=5, got 4"):
        make("coreset", capacity=4)


def test_no_memory_has_no_delay() -> None:
    with pytest.raises(ValueError, match=r"^update_delay is of Task.* 'none', got 3$"):
        make("none", update_delay=3)
