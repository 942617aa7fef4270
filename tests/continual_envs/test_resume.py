"""A stream that is saved goes on as if nothing had happened."""

from __future__ import annotations

import copy
import json
from typing import Any

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from continual_envs import make_stream
from tests.continual_envs.helpers import (
    assert_same,
    make_numbered,
    rest,
    still,
)

laws = settings(deadline=None, derandomize=True, max_examples=25)
seeds = st.integers(0, 2**31 - 1)


@laws
@given(
    benchmark=st.sampled_from(["SplitDigits", "PermutedDigits", "DriftDigits"]),
    batch_size=st.none() | st.integers(1, 90),
    validation=st.booleans(),
    seed=seeds,
    data=st.data(),
)
def test_a_stream_goes_on_from_any_step_also_the_last(
    benchmark: str,
    batch_size: int | None,
    validation: bool,
    seed: int,
    data: st.DataObject,
) -> None:
    options = {"batch_size": batch_size, "validation": validation, "imbalance": 2}
    env = make_numbered(benchmark, **options)
    observation, info = env.reset(seed=seed)
    for _ in range(data.draw(st.integers(0, env.num_steps))):
        observation, _, _, _, info = env.step(still(env))
    other = make_numbered(benchmark, **options)
    seen = other.load_state_dict(json.loads(json.dumps(env.state_dict())))
    assert_same(seen, (observation, info))
    assert other.state_dict() == env.state_dict()
    assert other.boundaries == env.boundaries
    assert other.imbalanced_task == env.imbalanced_task
    for one, two in zip(env.evaluation_sets, other.evaluation_sets, strict=True):
        assert_same(one.inputs, two.inputs)
    if not env.state_dict()["position"] >= env.num_steps * (batch_size or 1):
        assert rest(other, *seen) == rest(env, observation, info)
    else:
        for over in (env, other):
            with pytest.raises(gymnasium.error.ResetNeeded):
                over.step(still(over))
        assert_same(other.reset(), env.reset())


def test_a_stream_can_be_loaded_into_an_environment_that_is_elsewhere() -> None:
    env = make_stream("SplitDigits", batch_size=64)
    seen = env.reset(seed=1)
    state = env.state_dict()
    other = make_stream("SplitDigits", batch_size=64)
    other.reset(seed=2)
    for _ in range(5):
        other.step(still(other))
    assert_same(other.load_state_dict(state), seen)
    assert rest(other, *seen) == rest(env, *seen)


def test_an_environment_of_gymnasium_goes_on_after_a_reset() -> None:
    env = gymnasium.make("continual_envs/SplitDigits-v0", batch_size=64)
    env.reset(seed=1)
    for _ in range(3):
        env.step(still(env))
    other = gymnasium.make("continual_envs/SplitDigits-v0", batch_size=64)
    other.reset()
    other.unwrapped.load_state_dict(env.unwrapped.state_dict())
    assert_same(other.step(still(other)), env.step(still(env)))


def test_a_saved_state_does_not_change_when_the_stream_goes_on() -> None:
    env = make_stream("SplitDigits", batch_size=64)
    env.reset(seed=1)
    state = env.state_dict()
    before = copy.deepcopy(state)
    for _ in range(3):
        env.step(still(env))
    env.reset()
    assert state == before
    other = make_stream("SplitDigits", batch_size=64)
    other.load_state_dict(state)
    other.reset()
    assert state == before


BASE: dict[str, Any] = {"batch_size": 32, "epochs": 2, "imbalance": 3}


@pytest.mark.parametrize(
    ("name", "options", "differs"),
    [
        ("PermutedDigits", BASE, "name"),
        ("SplitDigits", BASE | {"batch_size": 33}, "batch_size"),
        ("SplitDigits", BASE | {"batch_size": None}, "batch_size"),
        ("SplitDigits", BASE | {"epochs": 1}, "epochs"),
        ("SplitDigits", BASE | {"imbalance": 4}, "imbalance"),
        ("SplitDigits", BASE | {"imbalanced_task": 0}, "imbalanced_task"),
        ("SplitDigits", BASE | {"validation": True}, "validation"),
    ],
)
def test_another_stream_is_refused_and_changes_nothing(
    name: str, options: dict[str, Any], differs: str
) -> None:
    foreign = make_stream(name, **options)
    foreign.reset(seed=1)
    foreign.step(still(foreign))
    env, twin = make_stream("SplitDigits", **BASE), make_stream("SplitDigits", **BASE)
    for one in (env, twin):
        one.reset(seed=5)
        one.step(still(one))
    theirs, mine = foreign.state_dict()[differs], env.state_dict()[differs]
    with pytest.raises(ValueError, match="cannot continue a stream") as caught:
        env.load_state_dict(foreign.state_dict())
    assert f"{differs}={theirs!r}" in str(caught.value)
    assert f"{differs}={mine!r}" in str(caught.value)
    assert env.state_dict() == twin.state_dict()
    assert_same(env.step(still(env)), twin.step(still(twin)))
    assert_same(env.reset(), twin.reset())


def test_a_drift_of_another_width_is_refused() -> None:
    env = make_stream("DriftDigits", width=0.5)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"width=0.5 .*width=0.25"):
        make_stream("DriftDigits", width=0.25).load_state_dict(env.state_dict())


@pytest.mark.parametrize(
    "damage",
    [
        lambda state: state.clear(),
        lambda state: state.pop("seed"),
        lambda state: state.pop("position"),
        lambda state: state.pop("np_random"),
        lambda state: state.update(position=-32),
        lambda state: state.update(position=10**9),
        lambda state: state.update(position=7),
        lambda state: state.update(position="far"),
        lambda state: state.update(seed=-1),
        lambda state: state.update(np_random={}),
        lambda state: state["np_random"].update(bit_generator="MT19937"),
    ],
    ids=[
        "empty",
        "no seed",
        "no position",
        "no np_random",
        "before the start",
        "after the end",
        "inside a batch",
        "position is a word",
        "negative seed",
        "empty np_random",
        "another generator",
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage: Any) -> None:
    env, twin = make_stream("SplitDigits", **BASE), make_stream("SplitDigits", **BASE)
    for one in (env, twin):
        one.reset(seed=5)
        one.step(still(one))
    other = make_stream("SplitDigits", **BASE)
    other.reset(seed=6)
    state = copy.deepcopy(other.state_dict())
    damage(state)
    with pytest.raises(ValueError):  # noqa: PT011
        env.load_state_dict(state)
    assert env.state_dict() == twin.state_dict()
    assert_same(env.step(still(env)), twin.step(still(twin)))
    assert_same(env.reset(), twin.reset())
