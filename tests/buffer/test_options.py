"""A memory by the name of its policy: options, and policies of other people.

What registries do by themselves is in ``tests/test_registry.py``.
"""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint
from inspect import signature
from typing import Any

import pytest
import torch
from torchrl.data import RandomSampler

from info_replay import (
    MIC,
    EntropyReduction,
    HybridWriter,
    InfoReservoirReplayBuffer,
    InfoReservoirWriter,
    ReservoirWriter,
    SelectiveReplayBuffer,
    make_criterion,
    make_replay_buffer,
    register_policy,
    registry,
)
from info_replay.registry import POLICIES

from .helpers import CAPACITY, CLASSES, linear_gradients, make_stream

#: What any of the policies has a use for, and what the buffer has.
COMMON: dict[str, Any] = {
    "num_classes": CLASSES,
    "criterion": MIC(eta=0.5),
    "gamma": 0.1,
    "gamma_learnability": -2.0,
    "noise": 0.2,
    "jitter": 0.3,
    "decay": 0.9,
    "dtype": torch.float32,
    "parts": 2,
    "gradients": linear_gradients,
    "group_size": 3,
    "feature_key": "feature",
    "target_key": "target",
    "batch_size": 4,
    "sampler": RandomSampler(),
}
NAMES = (
    "auto",
    "rs",
    "wrs",
    "cbrs",
    "gss",
    "fss-clust",
    "coreset",
    "infogs",
    "infogs-rs",
    "infors",
)


@pytest.mark.parametrize("recent", [None, 3])
def test_a_loop_over_all_policies_can_give_them_the_same_options(
    recent: int | None,
) -> None:
    for name in NAMES:
        if recent and name in ("fss-clust", "coreset"):
            continue  # a ring does not go with memories that shrink
        buffer = make_replay_buffer(name, CAPACITY, recent=recent, **COMMON)
        buffer.extend(make_stream(40))
        assert len(buffer.sample()) == 4
        assert isinstance(buffer.writer, HybridWriter) == (recent is not None)
        assert isinstance(buffer, InfoReservoirReplayBuffer) == (name == "infors")
        # The writer has got those that are its own.
        policy = buffer.writer.policy
        own = signature(POLICIES.get(name)).parameters.keys() & COMMON.keys()
        assert {key: getattr(policy, key) for key in own} == {
            key: COMMON[key] for key in own
        }


@pytest.mark.parametrize("name", ["rs", "infors", "coreset"])
@pytest.mark.parametrize(
    ("option", "meant"),
    [("num_clases", "num_classes"), ("gama", "gamma"), ("bach_size", "batch_size")],
)
def test_a_misspelled_option_is_refused_with_the_nearest_one(
    name: str, option: str, meant: str
) -> None:
    with pytest.raises(TypeError, match=f"{option!r}; did you mean {meant!r}"):
        make_replay_buffer(name, CAPACITY, **{**COMMON, option: 3})


@pytest.mark.parametrize(
    ("name", "option"),
    [("cbrs", "num_classes"), ("coreset", "num_classes"), ("gss", "gradients")],
)
def test_an_option_that_a_policy_needs_is_named(name: str, option: str) -> None:
    with pytest.raises(TypeError, match=f"{name!r} needs the option {option!r}"):
        make_replay_buffer(name, CAPACITY)


def test_an_unknown_policy_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="got 'infor'; did you mean 'infors'") as it:
        make_replay_buffer("infor", CAPACITY)
    assert all(repr(name) in str(it.value) for name in NAMES)


# -- your own -------------------------------------------------------------------------


class MyWriter(ReservoirWriter):
    def __init__(self, flavor: str) -> None:
        super().__init__()
        self.flavor = flavor


class MyCriterion(EntropyReduction):
    pass


def make_my_writer(**options: Any) -> MyWriter:
    return MyWriter(**options)


def test_any_class_or_function_is_a_policy() -> None:
    for name in ("MyWriter", "make_my_writer"):
        buffer = make_replay_buffer(f"{__name__}:{name}", CAPACITY, flavor="hot")
        assert type(buffer) is SelectiveReplayBuffer
        assert buffer.writer.flavor == "hot"
    assert type(make_criterion(f"{__name__}:MyCriterion")) is MyCriterion
    name = "info_replay:InfoReservoirWriter"
    buffer = make_replay_buffer(name, CAPACITY, gamma=0.5, recent=2)
    assert isinstance(buffer.writer.policy, InfoReservoirWriter)


@pytest.mark.parametrize("way", ["registered", "registered function", "installed"])
def test_a_policy_with_a_name_is_like_ours(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(POLICIES, "_entries", dict(POLICIES._entries))
    if way == "registered":
        register_policy("mine")(MyWriter)
    elif way == "registered function":
        register_policy("mine")(functools.partial(MyWriter, flavor="mild"))
    else:
        point = EntryPoint("mine", f"{__name__}:MyWriter", POLICIES.group)
        monkeypatch.setattr(
            registry, "installed_points", lambda group: [point] * (group == point.group)
        )
    buffer = make_replay_buffer("mine", CAPACITY, **COMMON, flavor="hot")
    assert type(buffer.writer) is MyWriter
    assert buffer.writer.flavor == "hot"
    # Its option is one of those that other policies ignore, and is needed by it alone.
    make_replay_buffer("rs", CAPACITY, flavor="hot")
    if way == "registered function":
        assert make_replay_buffer("mine", CAPACITY).writer.flavor == "mild"
    else:
        with pytest.raises(TypeError, match="'mine' needs the option 'flavor'"):
            make_replay_buffer("mine", CAPACITY)
    with pytest.raises(ValueError, match="did you mean 'mine'"):
        make_replay_buffer("mines", CAPACITY)
