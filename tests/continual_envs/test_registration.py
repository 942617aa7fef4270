"""The registered ids are good citizens of gymnasium and of TorchRL."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from torchrl.envs import GymEnv, GymWrapper
from torchrl.envs.utils import check_env_specs

import continual_envs
from continual_envs import BENCHMARKS, IDS, make_stream
from tests.continual_envs.helpers import assert_same, play, require_data

LOCAL = ["SplitDigits", "PermutedDigits", "DriftDigits", "SplitDiabetes"]


def test_the_ids_of_the_design_are_registered() -> None:
    promised = {
        f"continual_envs/{name}-v0"
        for name in (
            "SplitMNIST",
            "PermutedMNIST",
            "SplitCIFAR10",
            "SplitMiniImageNet",
            "SplitDigits",
            "PermutedDigits",
        )
    }
    assert promised <= set(IDS) <= set(gymnasium.registry)
    assert len(IDS) == len(BENCHMARKS)


def test_importing_again_registers_nothing_twice() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        continual_envs.registration.register_all()


@pytest.mark.parametrize("options", [{}, {"batch_size": 8}], ids=["single", "batch"])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_gymnasium_has_nothing_to_complain_about(
    name: str, options: dict[str, Any]
) -> None:
    require_data(BENCHMARKS[name].dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(f"continual_envs/{name}-v0", **options)
        check_env(env.unwrapped)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_torchrl_runs_the_id(name: str) -> None:
    require_data(BENCHMARKS[name].dataset)
    env = GymEnv(f"continual_envs/{name}-v0", categorical_action_encoding=True)
    env = env.auto_register_info_dict()
    check_env_specs(env)
    told = "target" if name == "SplitDiabetes" else "label"
    rollout = env.rollout(3)
    assert told in rollout["next"].keys()
    env.close()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_torchrl_runs_batches(name: str) -> None:
    require_data(BENCHMARKS[name].dataset)
    made = gymnasium.make(f"continual_envs/{name}-v0", batch_size=8)
    env = GymWrapper(made, categorical_action_encoding=True)
    check_env_specs(env)
    observation = env.rollout(3)["observation"]
    assert observation.shape == (3, 8, *made.unwrapped.dataset.input_shape)
    env.close()


@pytest.mark.parametrize("name", LOCAL)
def test_lanes_of_a_vector_environment_are_streams_of_their_own_seed(name: str) -> None:
    def lanes(seed: int) -> tuple[list[Any], list[Any], list[Any]]:
        vector = gymnasium.make_vec(
            f"continual_envs/{name}-v0", 3, vectorization_mode="sync", batch_size=100
        )
        observation, _ = vector.reset(seed=seed)
        seen, rewards, ends = [observation.copy()], [], []
        # The three streams are equally long: no lane starts again before the end.
        for _ in range(3):
            action = np.zeros(vector.action_space.shape, vector.action_space.dtype)
            observation, reward, end, _, _ = vector.step(action)
            seen.append(observation.copy())
            rewards.append(reward.copy())
            ends.append(end.copy())
        vector.close()
        return seen, rewards, ends

    seen, rewards, ends = lanes(40)
    assert_same(lanes(40), (seen, rewards, ends))
    for lane in range(3):
        alone = play(make_stream(name, batch_size=100), 40 + lane)
        assert_same([one[lane] for one in seen], alone.observations[: len(seen)])
        assert [one[lane] for one in rewards] == alone.rewards[: len(rewards)]
        assert [one[lane] for one in ends] == alone.ends[: len(ends)]
    assert not np.array_equal(seen[0][0], seen[0][1])
    assert not np.array_equal(seen[0][1], seen[0][2])


def test_lanes_have_one_copy_of_the_data() -> None:
    vector = gymnasium.make_vec(
        "continual_envs/SplitDigits-v0", 3, vectorization_mode="sync"
    )
    assert len({id(env.unwrapped.dataset.train.inputs) for env in vector.envs}) == 1


#: Digests of streams and of their evaluation sets, of the first release.
RELEASED = {
    "SplitDigits": ({"imbalance": 3, "validation": True}, "3940cea4033f15c5"),
    "PermutedDigits": ({"expose_task_id": True}, "4f6e39e8a2441426"),
    "DriftDigits": ({"width": 0.2, "epochs": 2}, "7596c68f98106d44"),
    "SplitDiabetes": (
        {"epochs": 2, "imbalanced_task": 1, "imbalance": 2},
        "1269e74ba4814612",
    ),
}


@pytest.mark.parametrize("name", RELEASED)
def test_streams_are_those_of_the_first_release_bit_for_bit(name: str) -> None:
    options, expected = RELEASED[name]
    env = make_stream(name, batch_size=64, **options)
    episode = play(env, 7)
    found = hashlib.sha256()
    for observation, info in zip(
        episode.observations[:-1], episode.infos[1:], strict=True
    ):
        found.update(observation.tobytes())
        for key in sorted(info):
            found.update(info[key].tobytes())
    for one in env.evaluation_sets:
        found.update(one.inputs.tobytes() + one.targets.tobytes())
    assert found.hexdigest()[:16] == expected


@pytest.mark.parametrize("name", BENCHMARKS)
def test_an_id_is_a_data_set_and_options(name: str) -> None:
    require_data(BENCHMARKS[name].dataset)
    entry = BENCHMARKS[name]
    one = make_stream(name, batch_size=100)
    other = make_stream(entry.dataset, batch_size=100, **entry.options)
    assert_same(one.reset(seed=3), other.reset(seed=3))
    assert one.boundaries == other.boundaries
