"""Tasks follow each other as promised; each is CartPole-v1 in disguise."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import pickle
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled, ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torchrl.envs import GymEnv
from torchrl.envs.utils import check_env_specs

from continual_envs import CONTROL_IDS, TaskSequenceEnv
from continual_envs.cartpole import CartPoleVariantEnv, Variant, make_variants
from tests.continual_envs.helpers import assert_same

laws = settings(deadline=None, derandomize=True, max_examples=30)
seeds = st.integers(0, 2**31 - 1)
kinds = st.sampled_from(["permuted", "physics"])
all_lengths = st.lists(st.integers(1, 60), min_size=1, max_size=3)
no_pygame = importlib.util.find_spec("pygame") is None


def episode(env: Any, random: np.random.Generator, **reset: Any) -> list[Any]:
    """All that a learner with random actions is told in one episode."""
    told: list[Any] = [env.reset(**reset)]
    over = False
    while not over:
        told.append(env.step(int(random.integers(2))))
        over = told[-1][2] or told[-1][3]
    return told


def contexts(told: list[Any]) -> list[int]:
    """The task that each observation of an episode tells."""
    return [int(one[0][4:].argmax()) for one in told]


# -- the variants ---------------------------------------------------------------------


@laws
@given(kind=kinds, count=st.integers(1, 3), seed=seeds)
def test_the_first_variant_is_cartpole(kind: str, count: int, seed: int) -> None:
    env = gymnasium.make(
        f"continual_envs/ContinualCartPole{'Physics' * (kind == 'physics')}-v0",
        lengths=[1000] * count,
    )
    plain = gymnasium.make("CartPole-v1")
    for reset in ({"seed": seed}, {}):
        ours = episode(env, np.random.default_rng(seed), **reset)
        theirs = episode(plain, np.random.default_rng(seed), **reset)
        assert_same([one[0][:4] for one in ours], [one[0] for one in theirs])
        assert [one[1:] for one in ours] == [one[1:] for one in theirs]


@laws
@given(number=st.integers(0, 383), seed=seeds)
def test_a_permuted_variant_is_cartpole_behind_a_veil(number: int, seed: int) -> None:
    variants = make_variants("permuted", 384)
    variant = variants[number]
    env = CartPoleVariantEnv(variants, number)
    plain = gymnasium.make("CartPole-v1")

    def unveil(observation: NDArray[np.float32]) -> NDArray[np.float32]:
        numbers = np.empty(4, dtype=np.float32)
        for place in range(4):
            numbers[variant.order[place]] = observation[place] * variant.signs[place]
        return numbers

    assert_same(unveil(env.reset(seed=seed)[0]), plain.reset(seed=seed)[0])
    random, over = np.random.default_rng(seed), False
    while not over:
        push = int(random.integers(2))
        theirs = plain.step(push)
        ours = env.step({0: 1, 1: 0}[push] if variant.swapped else push)
        assert_same(unveil(ours[0]), theirs[0])
        assert ours[1:] == theirs[1:]
        assert ours[0] in env.observation_space
        over = ours[2]


def test_the_first_permuted_variants_never_change() -> None:
    assert make_variants("permuted", 4) == [
        Variant(),
        Variant((3, 2, 1, 0), (-1, 1, 1, 1), True),
        Variant((2, 1, 0, 3), (-1, 1, -1, -1), False),
        Variant((0, 2, 3, 1), (-1, 1, 1, -1), True),
    ]


def test_no_two_permuted_variants_are_one_problem() -> None:
    variants = make_variants("permuted", 384)
    assert len(set(variants)) == 384
    for variant in variants:
        signs = tuple(-sign for sign in variant.signs)
        assert Variant(variant.order, signs, not variant.swapped) not in variants


def test_physics_variants_have_the_constants_of_the_docstring() -> None:
    env = TaskSequenceEnv(variants="physics")
    constants = [(9.8, 0.5, 0.1), (-9.8, 1.5, 1.0), (30.0, 0.2, 0.1)]
    for task, (gravity, length, mass) in enumerate(constants):
        made = env.make_task(task)
        told = episode(made, np.random.default_rng(1), seed=5)
        # gymnasium's own, with its constants set by hand.
        plain = gymnasium.make("CartPole-v1")
        inner: Any = plain.unwrapped
        inner.gravity, inner.length, inner.masspole = gravity, length, mass
        inner.total_mass, inner.polemass_length = 1.0 + mass, mass * length
        expected = episode(plain, np.random.default_rng(1), seed=5)
        assert_same([one[0][:4] for one in told], [one[0] for one in expected])
        assert set(contexts(told)) == {task}


LINEAR = {"plain": [0.03, 0.38, 0.61, 0.69], "hanging": [-0.42, -0.81, 0.35, 0.06]}
LINEAR["short"] = [0.05, 0.28, 0.94, 0.2]


def test_each_physics_variant_can_be_solved_and_needs_its_own_policy() -> None:
    env = TaskSequenceEnv(variants="physics")
    steps = np.zeros((3, 3))
    for (row, weights), task in itertools.product(enumerate(LINEAR.values()), range(3)):
        made = env.make_task(task)
        for seed in range(5):
            observation, _ = made.reset(seed=seed)
            over = False
            while not over:
                push = int(observation[:4] @ np.array(weights) > 0)
                observation, _, fell, late, _ = made.step(push)
                steps[row, task] += 1
                over = fell or late
    steps /= 5
    assert (steps.diagonal() == 500).all()
    assert steps[~np.eye(3, dtype=bool)].max() < 300


# -- the sequence ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["permuted", "physics"])
def test_spaces_are_shared(kind: str) -> None:
    env = TaskSequenceEnv(variants=kind)
    assert isinstance(env.observation_space, spaces.Box)
    assert env.observation_space.shape == (7,)
    assert env.observation_space.dtype == np.float32
    assert env.action_space == spaces.Discrete(2)
    for task in range(3):
        made = env.make_task(task)
        assert isinstance(made, TimeLimit)
        assert made.observation_space == env.observation_space
        assert made.action_space == env.action_space


@pytest.mark.parametrize("kind", ["permuted", "physics"])
@pytest.mark.parametrize("task", range(3))
def test_the_fastest_episode_is_within_bounds(kind: str, task: int) -> None:
    env = TaskSequenceEnv(variants=kind).make_task(task)
    bounds = env.observation_space
    assert isinstance(bounds, spaces.Box)
    assert np.isfinite(bounds.high).all()
    for action, corner in itertools.product((0, 1), (-0.2, 0.2)):
        # From a corner of what is allowed, pushed to one side only.
        observation, _ = env.reset(options={"low": corner, "high": corner + 1e-6})
        over = False
        while not over:
            assert observation in bounds
            observation, _, over, _, _ = env.step(action)
        assert observation in bounds


@laws
@given(kind=kinds, lengths=all_lengths, seed=seeds)
def test_tasks_change_at_the_first_reset_after_their_frames(
    kind: str, lengths: list[int], seed: int
) -> None:
    env = TaskSequenceEnv(lengths, kind)
    random = np.random.default_rng(seed)
    assert env.boundaries == list(itertools.accumulate(lengths))
    task = frames = since = 0
    ends: list[int] = []
    for number in range(3 * len(lengths) + 8):
        if task < len(lengths) - 1 and since >= lengths[task]:
            task, since = task + 1, 0
            ends.append(frames)
        told = episode(env, random, **({} if number else {"seed": seed}))
        assert contexts(told) == [task] * len(told)
        assert env.task == task
        frames += len(told) - 1
        since += len(told) - 1
        assert env.frames == frames
        assert env.boundaries[:task] == ends
        ahead = itertools.accumulate(lengths[task:], initial=frames - since)
        assert env.boundaries[task:] == list(ahead)[1:]
        for observation, *rest in told:
            assert observation in env.observation_space
            # No signal: the same types and an empty info from each call.
            assert rest[-1] == {}
        assert [one[1:4] for one in told[1:-1]] == [(1.0, False, False)] * (
            len(told) - 2
        )


def test_the_last_task_stays() -> None:
    env = TaskSequenceEnv((1, 1))
    random = np.random.default_rng(0)
    tasks = [contexts(episode(env, random))[0] for _ in range(6)]
    assert tasks == [0, 1, 1, 1, 1, 1]


def test_a_reset_with_a_seed_is_a_new_life() -> None:
    env = TaskSequenceEnv((1, 1, 1))
    first = [episode(env, np.random.default_rng(0), seed=3)]
    first += [episode(env, np.random.default_rng(n)) for n in range(3)]
    assert env.task == 2
    again = [episode(env, np.random.default_rng(0), seed=3)]
    assert env.task == 0
    assert env.frames == len(again[0]) - 1
    again += [episode(env, np.random.default_rng(n)) for n in range(3)]
    assert_same(first, again)
    other = episode(env, np.random.default_rng(0), seed=4)
    assert not np.array_equal(other[0][0], first[0][0][0])


def test_the_time_limit_ends_an_episode_and_may_change_the_task() -> None:
    env = gymnasium.make(
        "continual_envs/ContinualCartPolePhysics-v0", lengths=(400, 10, 10)
    )
    observation, _ = env.reset(seed=0)
    truncated, steps = False, 0
    while not truncated:
        push = int(observation[:4] @ np.array(LINEAR["plain"]) > 0)
        observation, _, terminated, truncated, _ = env.step(push)
        steps += 1
        assert not terminated
        assert observation[4] == 1
    assert steps == 500
    assert env.reset()[0][4:].tolist() == [0, 1, 0]
    assert env.unwrapped.boundaries == [500, 510, 520]


def test_a_task_alone_has_nothing_to_do_with_the_sequence() -> None:
    env, twin = TaskSequenceEnv((1, 1)), TaskSequenceEnv((1, 1))
    env.reset(seed=0)
    twin.reset(seed=0)
    episode(env.make_task(1), np.random.default_rng(0), seed=1)
    assert env.state_dict() == twin.state_dict()
    assert_same(env.step(1), twin.step(1))


# -- resuming -------------------------------------------------------------------------


@laws
@given(kind=kinds, lengths=all_lengths, seed=seeds, before=st.integers(0, 6))
def test_a_sequence_goes_on_to_the_bit(
    kind: str, lengths: list[int], seed: int, before: int
) -> None:
    env, random = TaskSequenceEnv(lengths, kind), np.random.default_rng(seed)
    for number in range(before):
        episode(env, random, **({} if number else {"seed": seed}))
    state = json.loads(json.dumps(env.state_dict()))
    other = TaskSequenceEnv(lengths, kind)
    other.reset(seed=1)
    other.load_state_dict(state)
    assert other.state_dict() == env.state_dict()
    assert (other.task, other.boundaries) == (env.task, env.boundaries)
    with pytest.raises(ResetNeeded, match="reset"):
        other.step(0)
    twin = copy.deepcopy(random)
    for _ in range(4):
        assert_same(episode(env, random), episode(other, twin))
    assert other.state_dict() == env.state_dict()


def test_a_made_environment_goes_on_too() -> None:
    made = [gymnasium.make(CONTROL_IDS[0], lengths=(15, 15)) for _ in range(2)]
    env, other = made
    episode(env, np.random.default_rng(0), seed=0)
    other.unwrapped.load_state_dict(env.unwrapped.state_dict())
    for number in range(4):
        ours = episode(env, np.random.default_rng(number))
        assert_same(ours, episode(other, np.random.default_rng(number)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variants": "physics"}, "variants='physics'"),
        ({"lengths": [5, 6]}, r"lengths=\[5, 6\]"),
        ({"frames": -1}, "-1 frames"),
        ({"frames": 2.5}, "2.5 frames"),
        ({"starts": []}, "cannot have started"),
        ({"starts": [1]}, "cannot have started"),
        ({"starts": [0, 4], "frames": 9}, "cannot have started"),
        ({"starts": [0, 5, 10], "frames": 99}, "cannot have started"),
        ({"starts": [0, 7], "frames": 6}, "cannot have started"),
        ({"starts": None}, "cannot have started"),
        ({"np_random": None}, "np_random"),
        ({"np_random": {"bit_generator": "MT19937"}}, "np_random"),
        (
            {
                "np_random": {
                    "bit_generator": "PCG64",
                    "state": {"state": -1, "inc": 1},
                    "has_uint32": 0,
                    "uinteger": 0,
                }
            },
            "np_random",
        ),
    ],
)
def test_a_wrong_state_is_refused_and_changes_nothing(
    change: dict[str, Any], message: str
) -> None:
    env = TaskSequenceEnv((5, 5))
    env.reset(seed=0)
    state = env.state_dict()
    with pytest.raises(ValueError, match=message):
        env.load_state_dict({**state, **change})
    assert env.state_dict() == state
    env.step(0)


@pytest.mark.parametrize("wrong", [{"seed": -1}, {"options": {"low": 1, "high": 0}}])
def test_a_reset_that_is_refused_changes_nothing(wrong: dict[str, Any]) -> None:
    env = TaskSequenceEnv((5, 5))
    episode(env, np.random.default_rng(0), seed=0)
    assert env.frames >= 5  # the next reset begins the second task
    before = env.frames, env.task, env.boundaries
    with pytest.raises((ValueError, gymnasium.error.Error)):
        env.reset(**wrong)
    assert (env.frames, env.task, env.boundaries) == before
    env.reset()
    assert env.task == 1


@pytest.mark.parametrize("key", ["variants", "lengths", "starts", "frames"])
def test_a_state_with_a_hole_is_refused(key: str) -> None:
    state = TaskSequenceEnv().state_dict()
    del state[key]
    with pytest.raises(ValueError, match=key):
        TaskSequenceEnv().load_state_dict(state)
    with pytest.raises(ValueError, match="dictionary"):
        TaskSequenceEnv().load_state_dict(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "clone",
    [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))],
    ids=["deepcopy", "pickle"],
)
@pytest.mark.parametrize("environment_id", CONTROL_IDS)
def test_a_copy_in_the_middle_of_an_episode_goes_on_alone(
    environment_id: str, clone: Any
) -> None:
    env = gymnasium.make(environment_id, lengths=(12, 12, 12))
    env.reset(seed=0)
    env.step(1)
    twin = clone(env)
    assert_same(env.step(0), twin.step(0))
    ours, theirs = (
        [episode(one, np.random.default_rng(n)) for n in range(4)]
        for one in (env, twin)
    )
    assert_same(ours, theirs)


# -- gymnasium and TorchRL ------------------------------------------------------------


@pytest.mark.parametrize("environment_id", CONTROL_IDS)
def test_gymnasium_has_nothing_to_complain_about(environment_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(environment_id)
        # Without pygame only pictures are missing.
        check_env(env.unwrapped, skip_render_check=no_pygame)


@pytest.mark.parametrize("environment_id", CONTROL_IDS)
def test_torchrl_runs_the_id(environment_id: str) -> None:
    env = GymEnv(environment_id, lengths=(20, 20), categorical_action_encoding=True)
    check_env_specs(env)
    env.set_seed(0)
    rollout = env.rollout(200, break_when_any_done=False)
    tasks = rollout["observation"][:, 4:].argmax(-1)
    assert rollout["observation"].shape == (200, 6)
    assert tasks[0] == 0
    assert tasks[-1] == 1
    assert (tasks.diff() >= 0).all()
    env.close()


@pytest.mark.parametrize("environment_id", CONTROL_IDS)
def test_lanes_are_independent(environment_id: str) -> None:
    vector = gymnasium.make_vec(
        environment_id,
        2,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
        lengths=(30, 30),
    )
    alone = [gymnasium.make(environment_id, lengths=(30, 30)) for _ in range(2)]
    seen, _ = vector.reset(seed=7)
    expected = [env.reset(seed=7 + lane)[0] for lane, env in enumerate(alone)]
    assert_same(list(seen), expected)
    random = np.random.default_rng(0)
    for _ in range(150):
        actions = random.integers(2, size=2)
        seen = vector.step(actions)[0]
        for lane, env in enumerate(alone):
            observation, _, terminated, truncated, _ = env.step(actions[lane])
            if terminated or truncated:
                observation, _ = env.reset()
            assert_same(seen[lane], observation)
    assert [env.unwrapped.task for env in alone] == [1, 1]
    assert not np.array_equal(expected[0], expected[1])
    vector.close()


def test_the_ids_have_cartpoles_time_limit_and_options() -> None:
    assert CONTROL_IDS == [
        "continual_envs/ContinualCartPole-v0",
        "continual_envs/ContinualCartPolePhysics-v0",
    ]
    for environment_id, kind in zip(CONTROL_IDS, ["permuted", "physics"], strict=True):
        assert gymnasium.spec(environment_id).max_episode_steps == 500
        env = gymnasium.make(environment_id).unwrapped
        assert isinstance(env, TaskSequenceEnv)
        assert env.lengths == (10_000, 10_000, 10_000)
        assert env.variants == kind


# -- wrong use ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lengths",
    [(), [], (0,), (5, -1), (5, 2.0), (True,), ("5",), 5, "55", None, np.ones((2, 2))],
    ids=repr,
)
def test_wrong_lengths_are_refused(lengths: Any) -> None:
    with pytest.raises(ValueError, match=r"^lengths must be .*, got "):
        TaskSequenceEnv(lengths)


def test_numpy_lengths_are_lengths() -> None:
    assert TaskSequenceEnv(np.array([3, 4])).lengths == (3, 4)  # type: ignore[arg-type]
    assert TaskSequenceEnv([np.int32(3)]).lengths == (3,)  # type: ignore[list-item]


@pytest.mark.parametrize("variants", ["Permuted", "", None, 3, ["permuted"]])
def test_unknown_variants_are_refused(variants: Any) -> None:
    with pytest.raises(ValueError, match="variants must be one of .* got"):
        TaskSequenceEnv(variants=variants)


@pytest.mark.parametrize(("variants", "known"), [("permuted", 384), ("physics", 3)])
def test_more_tasks_than_variants_are_refused(variants: str, known: int) -> None:
    TaskSequenceEnv([1] * known, variants)
    with pytest.raises(ValueError, match=f"{known} {variants} .* {known + 1} tasks"):
        TaskSequenceEnv([1] * (known + 1), variants)


@pytest.mark.parametrize("task", [-1, 3, 1.0, True, "1", None])
def test_unknown_tasks_are_refused(task: Any) -> None:
    with pytest.raises(ValueError, match="from 0 to 2, got"):
        TaskSequenceEnv().make_task(task)


@pytest.mark.parametrize("action", [2, -1, 0.5, None, [1]])
def test_wrong_actions_are_refused_and_do_not_count(action: Any) -> None:
    env = TaskSequenceEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="0 or 1, got"):
        env.step(action)
    assert env.frames == 0


def test_a_step_needs_an_episode() -> None:
    env = TaskSequenceEnv()
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(0)
    told = episode(env, np.random.default_rng(0), seed=0)
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(0)
    assert env.frames == len(told) - 1


def test_pictures_need_pygame_only_when_asked_for() -> None:
    with pytest.raises(ValueError, match="render_mode must be .* got 'ansi'"):
        TaskSequenceEnv(render_mode="ansi")
    with pytest.warns(UserWarning, match="render_mode"):
        assert TaskSequenceEnv().make_task(0).render() is None
    env = TaskSequenceEnv(render_mode="rgb_array")
    episode(env, np.random.default_rng(0), seed=0)
    for one in (env, env.make_task(1, "rgb_array")):
        one.reset(seed=0)
        if no_pygame:
            with pytest.raises(DependencyNotInstalled, match="pygame"):
                one.render()
        else:
            assert one.render().shape == (400, 600, 3)
