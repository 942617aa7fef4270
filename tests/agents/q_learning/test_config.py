"""Settings of Q-learning: a wrong one is refused by its name and its value."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from agents.q_learning import DQNConfig
from agents.q_learning.config import MEMORIES
from info_replay import InfoGreedyWriter, ReservoirWriter

make_partial = functools.partial(InfoGreedyWriter, reservoir=True)


class Looking(ReservoirWriter):
    """A policy of the user's that looks at features without an option for their key."""

    feature_key = "feature"


@pytest.mark.parametrize(
    ("names", "values", "expected"),
    [
        ("policy", ["reservoir"], "one of auto, infors, rs, fifo, prioritized"),
        ("target", ["reward"], "one of auto, td, dyn"),
        ("engine", ["slurm"], "one of local, ray"),
        ("criterion", ["x"], "'mic', 'ig', 'er' or 'module:Name'"),
        ("device", ["tpu9", "meta"], "'auto', 'cpu', 'cuda'"),
        ("capacity num_envs frames_per_batch batch_size", [0], "at least 1"),
        ("updates_per_batch width episodes collectors frames", [0], "at least 1"),
        ("learning_starts epsilon_frames evaluations", [-1], "at least 0"),
        ("learning_rate eta", [-0.1], "at least 0"),
        ("seed", [-1, 2**63], "at least 0 and at most 9223372036854775807"),
        ("threads", [0, 2000], "at least 1 and at most 1024"),
        ("discount tau", [-0.1, 1.1], "at least 0 and at most 1"),
        ("epsilon_start epsilon_end", [-0.5, 1.5], "at least 0 and at most 1"),
        ("noise jitter checkpoint_every", [0.0, -1.0], "above 0"),
        ("recent", [-0.1, 1.0], "at least 0 and below 1"),
        ("decay", [0.0, 1.0], "above 0 and below 1"),
        ("lengths", ["", "100,", "100;200", "100,2.5"], "numbers with commas in betw"),
        ("lengths", ["100,-5", "100,7"], "each at least 8, the copies"),
    ],
)
def test_a_wrong_value_is_refused(names: str, values: list[Any], expected: str) -> None:
    for name in names.split():
        for value in values:
            with pytest.raises(
                ValueError, match=f"^{name} must be .*{expected}"
            ) as told:
                DQNConfig(**{name: value})
            assert repr(value) in str(told.value)


def test_settings_that_do_not_go_together_are_refused() -> None:
    for chosen, expected in (
        ({"epsilon_start": 0.1}, "epsilon_end must be .* epsilon_start=0.1, got 0.2"),
        ({"num_envs": 5}, "frames_per_batch must be a multiple of num_envs=5, got 32"),
        (
            {"lengths": "20,400", "engine": "ray", "collectors": 4},
            "each at least 32, .*got '20,400'",
        ),
    ):
        with pytest.raises(ValueError, match=expected):
            DQNConfig(**chosen)
    assert DQNConfig(num_envs=5, frames_per_batch=35).num_envs == 5


def test_lengths_are_a_list_of_numbers() -> None:
    assert DQNConfig().task_lengths is None
    assert DQNConfig(lengths="5000,6000, 8").task_lengths == (5000, 6000, 8)


@pytest.mark.parametrize(
    ("policy", "keeps_features"),
    [
        *((policy, policy in ("auto", "infors")) for policy in MEMORIES),
        ("info_replay:InfoGreedyWriter", True),
        ("info_replay:ReservoirWriter", False),
        (f"{__name__}:make_partial", True),
        (f"{__name__}:Looking", True),
    ],
)
def test_every_memory_can_be_chosen_and_one_of_the_users(
    policy: str, keeps_features: bool
) -> None:
    assert DQNConfig(policy=policy).keeps_features == keeps_features


def test_the_device_is_that_of_the_settings() -> None:
    assert DQNConfig(device="cpu").torch_device == torch.device("cpu")
    assert DQNConfig(device="cuda:1").torch_device == torch.device("cuda:1")
