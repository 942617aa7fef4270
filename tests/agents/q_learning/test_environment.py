"""Environments of a run: found by name, shared fairly, or refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from agents.q_learning.environment import (
    SHORT_NAMES,
    environment_id,
    make_task_envs,
    make_torchrl_env,
    num_frames,
)

from .helpers import IMAGES, small

SEQUENCE = "continual_envs/ContinualCartPole-v0"
#: Every way to name this package's sequence of tasks.
NAMES = ["ContinualCartPole", SEQUENCE, f"continual_envs:{SEQUENCE}"]


class StillEnv(gymnasium.Env[Any, Any]):
    """Any spaces; nothing ever happens."""

    def __init__(self, observation: Any, action: Any) -> None:
        self.observation_space, self.action_space = observation, action


def register(name: str, observation: Any, action: Any) -> str:
    env_id = f"tests/{name}-v0"
    if env_id not in gymnasium.registry:
        spaces_ = {"observation": observation, "action": action}
        gymnasium.register(env_id, StillEnv, kwargs=spaces_)
    return env_id


# -- names ----------------------------------------------------------------------------


def test_own_sequences_have_short_names() -> None:
    assert SHORT_NAMES == {
        "ContinualCartPole": "continual_envs/ContinualCartPole-v0",
        "ContinualCartPolePhysics": "continual_envs/ContinualCartPolePhysics-v0",
    }
    for name, env_id in SHORT_NAMES.items():
        assert environment_id(small(env=name)) == env_id


@pytest.mark.parametrize("name", NAMES)
def test_a_sequence_is_one_by_any_of_its_names(name: str) -> None:
    config = small(env=name, lengths="20,30")
    assert num_frames(config) == 50
    assert len(make_task_envs(config)) == 2
    assert num_frames(small(env=name)) == 30_000
    assert len(make_task_envs(small(env=name))) == 3


def test_a_module_may_register_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_module.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Mine-v3', CartPoleEnv, max_episode_steps=9)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = small(env="some_module:Mine-v3")
    try:
        env = make_torchrl_env(config)
        assert env.batch_size == (2,)
        assert env.observation_spec_unbatched["observation"].shape == (4,)
        assert len(make_task_envs(config)) == 1
    finally:
        gymnasium.registry.pop("Mine-v3", None)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "CartPole",
        "CartPole-v99",
        "NoSuchEnv-v0",
        "no_such_module:CartPole-v1",
        ".relative:CartPole-v1",
        ":CartPole-v1",
        "a:b:CartPole-v1",
        "json:NoSuchEnv-v0",
    ],
)
def test_an_unknown_id_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="env must be one of ContinualCart") as refused:
        make_torchrl_env(small(env=name))
    assert f"got {name!r}: " in str(refused.value)


def test_an_environment_that_needs_what_is_not_installed_is_refused() -> None:
    env_id = "tests/Missing-v0"
    if env_id not in gymnasium.registry:
        gymnasium.register(env_id, "no_such_module_at_all:Env")
    with pytest.raises(ValueError, match="'tests/Missing-v0' cannot be made: .*no_suc"):
        make_torchrl_env(small(env=env_id))


@pytest.mark.parametrize("name", ["CartPole-v1", IMAGES])
def test_lengths_are_for_sequences(name: str) -> None:
    config = small(env=name, lengths="100,100")
    for ask in (environment_id, make_torchrl_env, make_task_envs):
        with pytest.raises(ValueError, match="lengths are those of a seq") as refused:
            ask(config)
        assert repr(name) in str(refused.value)


# -- spaces ---------------------------------------------------------------------------

VECTOR, TWO = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)


@pytest.mark.parametrize(
    ("name", "observation", "action"),
    [
        ("Continuous", VECTOR, spaces.Box(-1, 1, (2,))),
        ("ManyActions", VECTOR, spaces.MultiDiscrete([2, 2])),
        ("FromOne", VECTOR, spaces.Discrete(2, start=1)),
        ("Nested", spaces.Dict({"position": VECTOR, "speed": VECTOR}), TWO),
        ("Pair", spaces.Tuple([VECTOR, VECTOR]), TWO),
        ("Number", spaces.Discrete(4), TWO),
        ("NoChannels", spaces.Box(0, 255, (84, 84), np.uint8), TWO),
        ("Scalar", spaces.Box(0, 1, ()), TWO),
    ],
)
def test_spaces_that_q_learning_cannot_use_are_refused(
    name: str, observation: Any, action: Any
) -> None:
    env_id = register(name, observation, action)
    wrong = action if action is not TWO else observation
    what = "discrete actions 0, 1" if wrong is action else "vectors or images with"
    with pytest.raises(ValueError, match=f"needs {what}") as refused:
        make_torchrl_env(small(env=env_id))
    assert repr(env_id) in str(refused.value)
    assert str(wrong) in str(refused.value)


# -- frames ---------------------------------------------------------------------------


def lengths_of(env: Any) -> list[tuple[int, ...]]:
    return [copy.unwrapped.lengths for copy in env.envs]


def test_copies_share_the_lengths() -> None:
    config = small(lengths="16,25", num_envs=4, frames_per_batch=8)
    assert lengths_of(make_torchrl_env(config)) == [(4, 6)] * 4
    # Two collectors with two copies each.
    config = small(lengths="16,25", num_envs=2)
    assert lengths_of(make_torchrl_env(config, copies=4)) == [(4, 6)] * 2
    assert lengths_of(make_torchrl_env(small())) == [(5000, 5000, 5000)] * 2


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"frames": 123}, 123),
        ({"frames": 123, "lengths": "50,60"}, 123),
        ({"lengths": "50,60"}, 110),
        ({}, 30_000),
        ({"env": "ContinualCartPolePhysics", "lengths": "7,8,9"}, 24),
        ({"env": "CartPole-v1"}, 30_000),
        ({"env": "CartPole-v1", "frames": 77}, 77),
    ],
)
def test_the_frames_of_a_run(chosen: dict[str, Any], expected: int) -> None:
    assert num_frames(small(**chosen)) == expected


def test_actions_are_numbers_and_copies_are_stepped_together() -> None:
    env = make_torchrl_env(small(num_envs=4))
    env.set_seed(0)
    rollout = env.rollout(30, break_when_any_done=False)
    assert rollout.batch_size == (4, 30)
    assert rollout["action"].shape == (4, 30)
    starts = rollout["observation"][:, 0]
    assert len({tuple(start.tolist()) for start in starts}) == 4
    # After a fall a copy goes on with a new episode, the others with theirs.
    ends = rollout["next", "done"].squeeze(-1)
    assert ends.any()
    going = ~ends[:, :-1]
    following = rollout["observation"][:, 1:]
    assert following[going].equal(rollout["next", "observation"][:, :-1][going])
    assert (following[~going][:, :4].abs() <= 0.05).all()


# -- evaluation -----------------------------------------------------------------------


def shown(env: gymnasium.Env[Any, Any]) -> NDArray[Any]:
    return env.reset(seed=0)[0]


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_every_task_has_a_group_of_environments(name: str) -> None:
    groups = make_task_envs(small(env=name, lengths="8,8,8", episodes=2))
    assert [len(group) for group in groups] == [2, 2, 2]
    for task, group in enumerate(groups):
        for env in group:
            assert shown(env)[4:].tolist() == [float(task == i) for i in range(3)]
    assert len({id(env) for group in groups for env in group}) == 6


@pytest.mark.parametrize("name", ["CartPole-v1", IMAGES])
def test_a_single_task_has_one_group(name: str) -> None:
    groups = make_task_envs(small(env=name, episodes=3))
    assert [len(group) for group in groups] == [3]
    assert shown(groups[0][0]).shape == gymnasium.make(name).observation_space.shape
