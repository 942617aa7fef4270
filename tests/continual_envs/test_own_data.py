"""Streams of one's own data: good environments that go on where they stopped."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import TensorDataset
from torchrl.envs import GymWrapper
from torchrl.envs.utils import check_env_specs

from continual_envs import (
    STREAM_ID,
    ClassificationStreamEnv,
    RegressionStreamEnv,
    make_dataset,
    make_stream,
)
from tests.continual_envs.helpers import assert_same, play, rest, still

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(120, 4))
Y = np.arange(120) % 6
IMAGES = RANDOM.integers(0, 256, (120, 5, 6), dtype=np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of images, one folder per class."""
    root = tmp_path_factory.mktemp("images")
    for number, pixels in enumerate(IMAGES):
        path = root / "abcdef"[number % 6] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
    return root


def live_classes() -> Iterator[Any]:
    return zip(itertools.cycle(X), itertools.cycle(Y))


def live_numbers() -> Iterator[Any]:
    return zip(itertools.cycle(X), itertools.cycle(X[:, :3]))


SOURCES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "vectors": lambda _: {"data": (X, Y)},
    "images": lambda _: {"data": (IMAGES, Y)},
    "tensors": lambda _: {"data": (torch.tensor(X), torch.tensor(Y))},
    "torch data set": lambda _: {
        "data": TensorDataset(torch.tensor(X), torch.tensor(Y))
    },
    "data set": lambda _: {"data": make_dataset((X, Y))},
    "number": lambda _: {"data": (X, 20 + X[:, 0])},
    "number of images": lambda _: {"data": (IMAGES, X[:, 0])},
    "numbers": lambda _: {"data": (X, X[:, :3])},
    "numbers by column": lambda _: {"data": (X, X[:, :3]), "column": 1},
    "constant": lambda _: {"data": (np.ones((50, 2)), np.full(50, 0.5))},
    "given tasks": lambda _: {"data": (X, Y), "task_ids": Y // 2},
    "permuted": lambda _: {"data": (X, Y), "cut": "permuted", "blur": 0.3},
    "drift": lambda _: {"data": (X, Y), "cut": "drift", "label_noise": 0.2},
    "folder": lambda path: {"data": path},
    "live classes": lambda _: {"data": live_classes, "num_classes": 6},
    "live classes, test": lambda _: {"data": live_classes, "test": (X, Y)},
    "live numbers": lambda _: {"data": live_numbers},
}


@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.parametrize("source", SOURCES)
def test_gymnasium_has_nothing_to_complain_about(
    source: str, batch_size: int | None, folder: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Good advice for motors: here the range is that of the numbers to predict.
        warnings.filterwarnings("ignore", message=".*symmetric and normalized space")
        env = gymnasium.make(
            STREAM_ID,
            batch_size=batch_size,
            render_mode="rgb_array",
            **SOURCES[source](folder),
        )
        check_env(env.unwrapped)


@pytest.mark.parametrize("source", ["vectors", "numbers", "folder", "live classes"])
def test_torchrl_runs_batches(source: str, folder: Path) -> None:
    made = gymnasium.make(STREAM_ID, batch_size=8, **SOURCES[source](folder))
    env = GymWrapper(made, categorical_action_encoding=True)
    check_env_specs(env)
    shape = made.unwrapped.dataset.input_shape
    assert env.rollout(3)["observation"].shape == (3, 8, *shape)


@given(
    source=st.sampled_from(list(SOURCES)),
    batch_size=st.none() | st.integers(1, 30),
    steps=st.integers(0, 40),
    seed=st.integers(0, 2**31 - 1),
)
def test_a_stream_of_any_data_goes_on_from_any_step(
    folder: Path, source: str, batch_size: int | None, steps: int, seed: int
) -> None:
    def make() -> Any:
        return make_stream(batch_size=batch_size, **SOURCES[source](folder))

    env = make()
    observation, info = env.reset(seed=seed)
    left = env.num_steps - 1 if env.num_steps else steps
    for _ in range(min(steps, left)):
        observation, _, _, _, info = env.step(still(env))
    other = make()
    seen = other.load_state_dict(json.loads(json.dumps(env.state_dict())))
    assert_same(seen, (observation, info))
    if env.num_steps is None:
        following = [[one.step(still(one)) for _ in range(5)] for one in (env, other)]
        assert_same(*following)
    else:
        assert rest(other, *seen) == rest(env, observation, info)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"data": (X + 1, Y)}, "data"),
        ({"test_share": 0.3}, "data"),
        ({"test_seed": 1}, "data"),
        ({"tasks": 3}, "tasks"),
        ({"class_order": [5, 4, 3, 2, 1, 0]}, "class_order"),
        ({"class_sizes": [2, 4]}, "tasks"),
        ({"cut": "none"}, "cut"),
        ({"longtail": 5}, "longtail"),
        ({"blur": 0.5}, "blur"),
        ({"label_noise": 0.5}, "label_noise"),
    ],
)
def test_a_state_of_other_data_or_of_another_shape_is_refused(
    change: dict[str, Any], differs: str
) -> None:
    env = make_stream((X, Y), batch_size=8)
    env.reset(seed=0)
    state = json.loads(json.dumps(env.state_dict()))
    other = make_stream(**{"data": (X, Y), "batch_size": 8, **change})
    with pytest.raises(ValueError, match=f"cannot continue a stream.* {differs}\\b"):
        other.load_state_dict(state)
    same = make_stream((X.copy(), Y.copy()), batch_size=8)
    same.load_state_dict(state)


def test_whether_a_stream_is_for_regression_follows_from_its_targets() -> None:
    assert isinstance(make_stream((X, Y)), ClassificationStreamEnv)
    assert isinstance(make_stream((X, X[:, 0])), RegressionStreamEnv)
    assert isinstance(make_stream((X, Y), targets="numbers"), RegressionStreamEnv)
    assert isinstance(make_stream("Diabetes"), RegressionStreamEnv)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_action_space_is_the_range_of_the_targets(outputs: int) -> None:
    targets = X[:, 0] if outputs == 1 else X[:, :outputs]
    env = make_stream((X, targets), batch_size=8, standardize=False)
    low, high = env.action_space.low, env.action_space.high
    assert low.shape == ((8,) if outputs == 1 else (8, 3))
    expected = targets.astype(np.float32)
    np.testing.assert_array_equal(low[0], expected.min(0))
    np.testing.assert_array_equal(high[7], expected.max(0))


def test_several_numbers_are_scored_by_their_mean_squared_error() -> None:
    env = make_stream((X, X[:, :3]), test=(X, X[:, :3]), batch_size=50)
    episode = play(env, 0)
    left = 120
    for info, reward in zip(episode.infos[1:], episode.rewards, strict=True):
        count = min(left, 50)
        left -= count
        assert info["target"].shape == (50, 3)
        assert info["mask"].tolist() == [True] * count + [False] * (50 - count)
        assert (info["target"][count:] == -1).all()
        squares = [float(v) ** 2 for row in info["target"][:count] for v in row]
        assert reward == pytest.approx(-sum(squares) / len(squares), rel=1e-6)


def test_own_data_come_once_per_epoch_and_are_never_those_held_out() -> None:
    env = make_stream((X, Y), tasks=3, batch_size=7, epochs=2, standardize=False)
    seen = Counter(x.tobytes() for x in play(env, 0).inputs)
    out = {x.tobytes() for one in env.evaluation_sets for x in one.inputs}
    assert set(seen.values()) == {2}
    assert not set(seen) & out
    assert set(seen) | out == {x.tobytes() for x in X.astype(np.float32)}


def test_the_seed_of_the_stream_does_not_change_the_test_data() -> None:
    env = make_stream((X, Y))
    before = [one.inputs for one in env.evaluation_sets]
    env.reset(seed=5)
    assert_same(before, [one.inputs for one in env.evaluation_sets])


def test_lanes_of_own_data_share_one_data_set() -> None:
    data = make_dataset((X, Y))
    vector = gymnasium.make_vec(
        STREAM_ID, 2, vectorization_mode="sync", data=data, batch_size=4
    )
    first, second = (env.unwrapped for env in vector.envs)
    assert np.shares_memory(first.dataset.train.inputs, second.dataset.train.inputs)
    observation, _ = vector.reset(seed=3)
    assert not np.array_equal(observation[0], observation[1])


def test_a_missing_gymnasium_is_named_with_what_to_install() -> None:
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "try:\n    import continual_envs\n"
        "except ImportError as error:\n    print(error)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == (
        "continual_envs needs gymnasium: pip install 'info-replay[streams]'"
    )


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, continual_envs; from continual_envs import make_stream\n"
        "make_stream(([[1.0], [2.0]] * 10, [0, 1] * 10)).reset(seed=0)\n"
        "heavy = {'torch', 'torchvision', 'sklearn', 'matplotlib', 'datasets'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


def test_task_ids_go_with_no_other_cut() -> None:
    with pytest.raises(ValueError, match="task_ids goes with cut='given', got cut='n"):
        make_stream((X, Y), task_ids=np.zeros(len(Y), dtype=int), cut="none")
