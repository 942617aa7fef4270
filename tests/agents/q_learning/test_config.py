"""Settings of Q-learning: a wrong one is refused by its name and its value."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import torch

from agents.q_learning import DQNConfig
from agents.q_learning.config import MEMORIES

NAN, INF = float("nan"), float("inf")
FIELDS = dataclasses.fields(DQNConfig)
WHOLE = [field.name for field in FIELDS if str(field.type).startswith("int")]
NUMBERS = [field.name for field in FIELDS if str(field.type).startswith("float")]
TEXTS = [field.name for field in FIELDS if str(field.type).startswith("str")]
SWITCHES = [field.name for field in FIELDS if str(field.type) == "bool"]


def refused(name: str, value: Any, expected: str) -> None:
    """One error that names the setting, what it must be, and the value."""
    with pytest.raises(ValueError, match=re.escape(expected)) as error:
        DQNConfig(**{name: value})
    text = str(error.value)
    assert text.startswith(name)
    assert repr(value) in text
    assert "\n" not in text


def test_the_defaults_make_a_run() -> None:
    config = DQNConfig()
    assert config.as_dict() == {field.name: field.default for field in FIELDS}
    assert config.task_lengths is None
    assert config.torch_device.type in ("cpu", "cuda")
    assert all(field.metadata["help"] for field in FIELDS)
    assert {*WHOLE, *NUMBERS, *TEXTS, *SWITCHES} == {field.name for field in FIELDS}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("value", [1.5, "3", True])
def test_a_whole_number_must_be_one(name: str, value: Any) -> None:
    refused(name, value, "must be a whole number")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [NAN, INF, "0.5", False])
def test_a_number_must_be_finite(name: str, value: Any) -> None:
    refused(name, value, "must be a finite number")


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_must_be_one(name: str) -> None:
    refused(name, 3, "must be text")


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_must_be_true_or_false(name: str) -> None:
    refused(name, 1, "must be True or False")


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_only_what_has_no_default_may_be_left_open(field: Any) -> None:
    if field.default is None:
        assert getattr(DQNConfig(**{field.name: None}), field.name) is None
    else:
        with pytest.raises(ValueError, match=f"{field.name} must be .*, got None"):
            DQNConfig(**{field.name: None})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("policy", "reservoir", "must be one of infors, rs, fifo, prioritized"),
        ("target", "reward", "must be one of auto, td, dyn"),
        ("engine", "slurm", "must be one of local, ray"),
        ("device", "tpu9", "must be 'auto', 'cpu', 'cuda'"),
        ("device", "meta", "must be 'auto', 'cpu', 'cuda'"),
        ("capacity", 0, "must be at least 1"),
        ("num_envs", 0, "must be at least 1"),
        ("frames_per_batch", 0, "must be at least 1"),
        ("batch_size", 0, "must be at least 1"),
        ("updates_per_batch", 0, "must be at least 1"),
        ("width", 0, "must be at least 1"),
        ("episodes", 0, "must be at least 1"),
        ("collectors", 0, "must be at least 1"),
        ("frames", 0, "must be at least 1"),
        ("threads", 0, "must be at least 1"),
        ("seed", -1, "must be at least 0"),
        ("learning_starts", -1, "must be at least 0"),
        ("learning_rate", -0.1, "must be at least 0"),
        ("epsilon_frames", -1, "must be at least 0"),
        ("eta", -1.0, "must be at least 0"),
        ("evaluations", -1, "must be at least 0"),
        ("discount", 1.1, "must be from 0 to 1"),
        ("discount", -0.1, "must be from 0 to 1"),
        ("tau", 2.0, "must be from 0 to 1"),
        ("epsilon_start", 1.5, "must be from 0 to 1"),
        ("epsilon_end", -0.5, "must be from 0 to 1"),
        ("noise", 0.0, "must be above 0"),
        ("jitter", -1.0, "must be above 0"),
        ("checkpoint_every", 0.0, "must be above 0"),
        ("recent", 1.0, "must be from 0 to below 1"),
        ("recent", -0.1, "must be from 0 to below 1"),
        ("decay", 0.0, "must be between 0 and 1"),
        ("decay", 1.0, "must be between 0 and 1"),
        ("lengths", "", "must be whole numbers with commas in between"),
        ("lengths", "100,", "must be whole numbers with commas in between"),
        ("lengths", "100;200", "must be whole numbers with commas in between"),
        ("lengths", "100,2.5", "must be whole numbers with commas in between"),
        ("lengths", "100,-5", "each at least 8, the copies"),
        ("lengths", "100,7", "each at least 8, the copies"),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: Any, expected: str) -> None:
    refused(name, value, expected)


def test_exploration_does_not_rise() -> None:
    expected = "epsilon_end must be at most epsilon_start=0.1, got 0.2"
    with pytest.raises(ValueError, match=expected):
        DQNConfig(epsilon_start=0.1)


def test_lengths_are_shared_by_the_copies_of_all_collectors() -> None:
    assert DQNConfig(lengths="20,400").task_lengths == (20, 400)
    with pytest.raises(ValueError, match="each at least 32, .*got '20,400'"):
        DQNConfig(lengths="20,400", engine="ray", collectors=4)


def test_the_copies_must_share_a_batch_of_frames_evenly() -> None:
    expected = "frames_per_batch must be a multiple of num_envs=5, got 32"
    with pytest.raises(ValueError, match=expected):
        DQNConfig(num_envs=5)
    assert DQNConfig(num_envs=5, frames_per_batch=35).num_envs == 5


def test_lengths_are_a_list_of_numbers() -> None:
    assert DQNConfig(lengths="5000,6000, 8").task_lengths == (5000, 6000, 8)
    assert DQNConfig(lengths="8").task_lengths == (8,)


@pytest.mark.parametrize("policy", MEMORIES)
def test_every_memory_can_be_chosen(policy: str) -> None:
    assert DQNConfig(policy=policy).policy == policy


def test_extreme_values_that_make_sense_are_taken() -> None:
    config = DQNConfig(
        learning_rate=0.0, tau=0.0, discount=1.0, evaluations=0, learning_starts=0
    )
    assert config.tau == 0


def test_settings_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DQNConfig().capacity = 5  # type: ignore[misc]


def test_the_device_is_that_of_the_settings() -> None:
    assert DQNConfig(device="cpu").torch_device == torch.device("cpu")
    assert DQNConfig(device="cuda:1").torch_device == torch.device("cuda:1")
