"""N batches give N rewards; labels come after predictions; a seed is a stream."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st

from continual_envs import StreamEnv, load_dataset, make_stream
from continual_envs.datasets import Dataset, Part
from tests.continual_envs.helpers import (
    assert_same,
    digest,
    make_numbered,
    numbered_dataset,
    numbers_of,
    play,
    still,
)

laws = settings(deadline=None, derandomize=True, max_examples=30)
seeds = st.integers(0, 2**31 - 1)
batch_sizes = st.none() | st.integers(1, 100)
LOCAL = ["SplitDigits", "PermutedDigits", "DriftDigits", "SplitDiabetes"]
CLASSES = ["SplitDigits", "PermutedDigits", "DriftDigits"]


@laws
@given(
    benchmark=st.sampled_from(CLASSES),
    batch_size=batch_sizes,
    epochs=st.integers(1, 2),
    seed=seeds,
)
def test_n_batches_give_n_rewards_and_end_with_a_zero_observation(
    benchmark: str, batch_size: int | None, epochs: int, seed: int
) -> None:
    env = make_numbered(benchmark, batch_size=batch_size, epochs=epochs)
    samples = 80 * epochs * (20 if benchmark == "PermutedDigits" else 1)
    steps = math.ceil(samples / (batch_size or 1))
    episode = play(env, seed)
    assert len(episode.rewards) == steps == env.num_steps
    assert episode.ends == [False] * (steps - 1) + [True]
    assert not episode.observations[-1].any()
    assert all(batch.any() for batch in episode.observations[:-1])
    for observation in episode.observations:
        assert observation in env.observation_space
    with pytest.raises(ResetNeeded, match="over.*reset"):
        env.step(still(env))


@pytest.mark.parametrize("benchmark", LOCAL)
def test_nothing_works_before_the_first_reset(benchmark: str) -> None:
    env = make_stream(benchmark, validation=True, render_mode="rgb_array")
    for use in (
        lambda: env.step(still(env)),
        lambda: env.boundaries,
        lambda: env.num_steps,
        lambda: env.evaluation_sets,
        lambda: env.imbalanced_task,
        lambda: env.state_dict(),
        lambda: env.render(),
    ):
        with pytest.raises(ResetNeeded, match="reset"):
            use()


@laws
@given(batch_size=batch_sizes, seed=seeds)
def test_padding_has_label_minus_one_and_does_not_count(
    batch_size: int | None, seed: int
) -> None:
    env = make_numbered("SplitDigits", batch_size=batch_size)
    random = np.random.default_rng(seed)
    actions: list[Any] = []

    def guess(observation: Any, step: int) -> Any:
        actions.append(random.integers(0, 10, env.action_space.shape))
        return actions[-1]

    episode = play(env, seed, guess)
    size = batch_size or 1
    left = 80
    told = zip(actions, episode.infos[1:], episode.rewards, strict=True)
    for (action, info, reward), batch in zip(told, episode.observations, strict=False):
        real = min(left, size)
        left -= real
        labels = np.atleast_1d(info["label"])
        assert (labels[real:] == -1).all()
        assert (labels[:real] >= 0).all()
        assert not batch.reshape(size, -1)[real:].any()
        hits = [
            int(a) == int(y)
            for a, y in zip(np.atleast_1d(action)[:real], labels[:real], strict=True)
        ]
        assert reward == pytest.approx(sum(hits) / real, abs=1e-15)
        assert isinstance(reward, float)
    assert left == 0


@pytest.mark.parametrize("batch_size", [None, 1, 7, 64, 1000])
def test_a_regression_stream_scores_by_the_negative_squared_error(
    batch_size: int | None,
) -> None:
    env = make_stream("SplitDiabetes", batch_size=batch_size)
    assert env.action_space == spaces.Box(
        -1, 1, () if batch_size is None else (batch_size,), np.float32
    )
    random = np.random.default_rng(0)
    actions: list[Any] = []

    def guess(observation: Any, step: int) -> Any:
        actions.append(random.uniform(-1, 1, env.action_space.shape))
        return actions[-1]

    episode = play(env, 3, guess)
    size, left = batch_size or 1, len(env.dataset.train)
    assert len(episode.rewards) == math.ceil(left / size)
    for action, info, reward in zip(
        actions, episode.infos[1:], episode.rewards, strict=True
    ):
        real = min(left, size)
        left -= real
        mask = np.atleast_1d(info["mask"])
        assert mask.tolist() == [True] * real + [False] * (size - real)
        target = np.atleast_1d(info["target"])
        assert (target[real:] == -1).all()
        pairs = zip(np.atleast_1d(action).tolist(), target.tolist(), strict=True)
        errors = [(a - y) ** 2 for a, y in list(pairs)[:real]]
        assert reward == pytest.approx(-sum(errors) / real, rel=1e-6)
    # The targets are those of the inputs that were shown.
    of = {
        x.tobytes(): y
        for x, y in zip(
            env.dataset.train.inputs, env.dataset.train.targets, strict=True
        )
    }
    for x, y in zip(episode.inputs, episode.targets, strict=True):
        assert of[x.tobytes()] == y


@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.parametrize("benchmark", LOCAL)
def test_infos_have_the_same_keys_types_and_shapes_at_reset_and_step(
    benchmark: str, batch_size: int | None
) -> None:
    env = make_stream(benchmark, batch_size=batch_size)
    _, first = env.reset(seed=0)
    *_, second = env.step(still(env))
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert isinstance(value, np.ndarray)
        assert (value.shape, value.dtype) == (second[key].shape, second[key].dtype)
        assert value.shape == (() if batch_size is None else (8,))
        assert (value == (False if key == "mask" else -1)).all()


@laws
@given(benchmark=st.sampled_from(CLASSES), batch_size=batch_sizes, seed=seeds)
def test_an_info_tells_the_labels_of_the_observation_before(
    benchmark: str, batch_size: int | None, seed: int
) -> None:
    data = numbered_dataset()
    env = make_numbered(benchmark, data, batch_size=batch_size)
    episode = play(env, seed)
    assert (np.atleast_1d(episode.infos[0]["label"]) == -1).all()
    expected = data.train.targets[numbers_of(episode.inputs)]
    assert episode.labels.tolist() == expected.tolist()
    if len(episode.rewards) > 20:
        # Not those of the observation that comes with it.
        shifted = expected[(batch_size or 1) :]
        assert episode.labels[: len(shifted)].tolist() != shifted.tolist()


@laws
@given(benchmark=st.sampled_from(LOCAL), seed=seeds, first=seeds, second=seeds)
def test_what_is_shown_and_told_does_not_depend_on_the_actions(
    benchmark: str, seed: int, first: int, second: int
) -> None:
    seen = []
    for choice in (first, second):
        env = make_stream(benchmark, batch_size=500)
        env.action_space.seed(choice)
        episode = play(env, seed, lambda *_, env=env: env.action_space.sample())
        seen.append(digest(episode.observations, episode.infos, episode.ends))
    assert seen[0] == seen[1]


def relabelled(data: Dataset, labels: Any) -> Dataset:
    part = Part(data.train.inputs.copy(), np.asarray(labels))
    return Dataset(data.name, part, data.test, data.num_classes)


@laws
@given(
    benchmark=st.sampled_from(["SplitDigits", "PermutedDigits"]),
    batch_size=batch_sizes,
    seed=seeds,
    choice=seeds,
)
def test_no_label_shows_before_its_prediction_was_made(
    benchmark: str, batch_size: int | None, seed: int, choice: int
) -> None:
    """Change labels without changing tasks: whatever changes tells labels."""
    data = numbered_dataset(labels=np.arange(110) % 10)  # no class gets empty
    random = np.random.default_rng(choice)
    flipped = random.random(80) < 0.2
    other = relabelled(data, data.train.targets ^ flipped)  # 0 and 1, 2 and 3, ...
    one, two = (
        play(make_numbered(benchmark, which, batch_size=batch_size), seed)
        for which in (data, other)
    )
    # No observation tells a label.
    assert_same(one.observations, two.observations)
    # An info tells labels of the observation before it and of no other.
    size = batch_size or 1
    numbers = numbers_of(one.inputs)
    for step, (a, b) in enumerate(zip(one.infos[1:], two.infos[1:], strict=True)):
        assert a.keys() == b.keys() == {"label"}
        mine = flipped[numbers[step * size : (step + 1) * size]]
        differs = np.atleast_1d(a["label"] != b["label"])
        assert differs[: len(mine)].tolist() == mine.tolist()
        assert not differs[len(mine) :].any()
    assert_same(one.infos[0], two.infos[0])


@pytest.mark.parametrize("benchmark", LOCAL)
def test_what_was_shown_and_told_stays_as_it_was(benchmark: str) -> None:
    env = make_stream(benchmark, batch_size=100)
    kept = [env.reset(seed=5)]
    at_once = [digest(kept[-1])]
    for _ in range(env.num_steps):
        observation, _, _, _, info = env.step(still(env))
        kept.append((observation, info))
        at_once.append(digest(kept[-1]))
    assert [digest(one) for one in kept] == at_once


@pytest.mark.parametrize("benchmark", LOCAL)
def test_who_writes_into_what_was_shown_changes_nothing(benchmark: str) -> None:
    expected = play(make_stream(benchmark, batch_size=100), 5)
    env = make_stream(benchmark, batch_size=100)
    observation, info = env.reset(seed=5)
    rewards = []
    for _ in range(env.num_steps):
        observation[...] = 0
        for value in info.values():
            value[...] = 0
        observation, reward, _, _, info = env.step(still(env))
        rewards.append(reward)
    assert rewards == expected.rewards
    assert play(env, 5).digest == expected.digest


@laws
@given(
    benchmark=st.sampled_from(LOCAL),
    batch_size=st.integers(50, 300),
    seed=seeds,
    steps=st.integers(0, 4),
    before=seeds,
)
def test_a_reset_in_the_middle_starts_clean(
    benchmark: str, batch_size: int, seed: int, steps: int, before: int
) -> None:
    fresh = make_stream(benchmark, batch_size=batch_size, imbalance=2, validation=True)
    used = make_stream(benchmark, batch_size=batch_size, imbalance=2, validation=True)
    used.reset(seed=before)
    for _ in range(min(steps, used.num_steps - 1)):
        used.step(still(used))
    assert play(used, seed).digest == play(fresh, seed).digest
    assert used.boundaries == fresh.boundaries
    assert used.imbalanced_task == fresh.imbalanced_task


@laws
@given(benchmark=st.sampled_from(LOCAL), one=seeds, other=seeds)
def test_seeds_are_streams(benchmark: str, one: int, other: int) -> None:
    def stream(seed: int) -> str:
        return play(make_stream(benchmark, batch_size=400), seed).digest

    assert stream(one) == stream(one)
    assert (stream(one) == stream(other)) == (one == other)


@pytest.mark.parametrize("benchmark", LOCAL)
def test_a_reset_without_a_seed_gives_a_new_stream_that_can_be_had_again(
    benchmark: str,
) -> None:
    def streams(env: StreamEnv) -> list[str]:
        return [play(env, seed, None).digest for seed in (11, None, None, None)]

    first = streams(make_stream(benchmark, batch_size=200))
    assert len(set(first)) == 4
    env = make_stream(benchmark, batch_size=200)
    env.reset()
    assert streams(env) == first


def test_two_environments_that_were_never_seeded_differ() -> None:
    one, other = (make_stream("SplitDigits", batch_size=100) for _ in range(2))
    assert play(one).digest != play(other).digest


def test_spaces_are_those_of_the_design() -> None:
    batch = make_stream("SplitDigits", batch_size=3)
    assert batch.observation_space == spaces.Box(0, 255, (3, 1, 8, 8), np.uint8)
    assert batch.action_space == spaces.MultiDiscrete([10] * 3)
    single = make_stream("SplitDigits")
    assert single.observation_space == spaces.Box(0, 255, (1, 8, 8), np.uint8)
    assert single.action_space == spaces.Discrete(10)


def test_all_of_the_diabetes_data_lies_in_the_observation_space() -> None:
    data = load_dataset("Diabetes")
    space = make_stream("SplitDiabetes").observation_space
    for part in (data.train, data.test):
        assert all(row in space for row in part.inputs)
    assert np.zeros(10, dtype=np.float32) in space


@pytest.mark.parametrize("benchmark", ["SplitDigits", "PermutedDigits"])
def test_infos_tell_tasks_only_if_asked_to(benchmark: str) -> None:
    plain = make_stream(benchmark, batch_size=64, imbalance=2)
    telling = make_stream(benchmark, batch_size=64, imbalance=2, expose_task_id=True)
    silent, told = play(plain, 1), play(telling, 1)
    assert all(info.keys() == {"label"} for info in silent.infos)
    assert_same(silent.observations, told.observations)
    assert (told.infos[0]["task_id"] == -1).all()
    last = told.infos[-1]
    assert ((last["task_id"] == -1) == (last["label"] == -1)).all()
    if benchmark == "SplitDigits":
        expected = told.labels // 2
    else:
        lengths = [1500 * (2 if task == 1 else 1) for task in range(20)]
        expected = np.repeat(np.arange(20), lengths)
    assert told.task_ids.tolist() == expected.tolist()


@pytest.mark.parametrize("benchmark", ["SplitDigits", "SplitDiabetes"])
def test_a_single_sample_is_told_its_task(benchmark: str) -> None:
    env = make_stream(benchmark, expose_task_id=True)
    _, info = env.reset(seed=0)
    assert info["task_id"].shape == ()
    assert info["task_id"] == -1
    *_, info = env.step(0)
    assert info["task_id"] == 0


def test_gymnasium_says_so_when_reset_was_forgotten() -> None:
    env = gymnasium.make("continual_envs/SplitDigits-v0")
    with pytest.raises(ResetNeeded):
        env.step(0)
