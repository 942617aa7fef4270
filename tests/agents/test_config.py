"""Settings: the paper's by name, and a clear word where one makes no sense."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest
import torch

from agents.config import PRESETS, ExperimentConfig
from continual_envs import BENCHMARKS
from info_replay.registry import POLICIES

#: Table "Hyperparameters and Configurations of the Continual Learning Experiments".
PAPER: dict[str, dict[str, Any]] = {
    "SplitMNIST": {
        "network": "fc",
        "epochs": 1,
        "batch_size": 128,
        "replay_batch_size": 128,
        "capacity": 100,
        "augmented": False,
    },
    "SplitCIFAR10": {
        "network": "resnet18",
        "epochs": 50,
        "batch_size": 32,
        "replay_batch_size": 32,
        "capacity": 200,
        "augmented": True,
    },
    "SplitMiniImageNet": {
        "network": "resnet18",
        "epochs": 100,
        "batch_size": 32,
        "replay_batch_size": 32,
        "capacity": 1000,
        "augmented": True,
    },
}
PAPER["PermutedMNIST"] = PAPER["SplitMNIST"]

#: What the table lets one choose from: learning rate, alpha, beta, eta, gamma.
GRIDS = {
    "MNIST": ([0.03, 0.1, 0.3], [0.3, 1.0], [1.0], [0, 1, 3], [-0.3, 0, 0.3]),
    "images": ([0.01, 0.03], [0.3, 1.0], [1.0, 3.0], [0, 1, 3], [-0.3, 0, 0.3]),
}


@pytest.mark.parametrize("env", list(PAPER))
def test_presets_are_the_papers(env: str) -> None:
    config = ExperimentConfig.preset(env)
    assert config.env == env
    found = {name: getattr(config, name) for name in PAPER[env]}
    assert found == PAPER[env]
    assert (config.noise, config.jitter) == (0.3, 0.1)
    grid = GRIDS["MNIST" if config.network == "fc" else "images"]
    names = ("learning_rate", "alpha", "beta", "eta", "gamma")
    for name, choices in zip(names, grid, strict=True):
        assert getattr(config, name) in choices
    assert config.gamma_learnability in (0.0, 1.0)


@pytest.mark.parametrize("env", list(BENCHMARKS))
def test_every_stream_has_a_preset(env: str) -> None:
    policies = ["rs", "none", "gss", "infors"]
    if "Diabetes" not in env:
        policies = [*POLICIES, "none"]
    for policy in policies:
        assert ExperimentConfig.preset(env, policy=policy).policy == policy


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_can_be_chosen_for_another_stream(name: str) -> None:
    config = ExperimentConfig.preset("SplitMNIST", name)
    assert config.env == "SplitMNIST"
    for setting, value in PRESETS[name].items():
        assert getattr(config, setting) == value


def test_what_is_chosen_counts_more_than_the_preset() -> None:
    config = ExperimentConfig.preset(
        "SplitCIFAR10", capacity=7, augmented=False, epochs=1
    )
    assert (config.capacity, config.augmented, config.epochs) == (7, False, 1)
    assert config.network == "resnet18"


def test_settings_survive_json() -> None:
    config = ExperimentConfig.preset("SplitDigits", policy="rs", steps=3, decay=0.9)
    assert ExperimentConfig(**json.loads(json.dumps(config.as_dict()))) == config


def test_settings_cannot_be_changed_and_explain_themselves() -> None:
    config = ExperimentConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 3  # type: ignore[misc]
    for field in dataclasses.fields(config):
        assert field.metadata["help"]


NAN = float("nan")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("env", "SplitMnist", "one of SplitMNIST"),
        ("policy", "reservoir", "one of rs, wrs, cbrs"),
        ("policy", "reservoir", "none"),
        ("network", "vgg", "one of fc, resnet18"),
        *[
            (name, value, "at least 1")
            for name in (
                "imbalance",
                "epochs",
                "batch_size",
                "replay_batch_size",
                "capacity",
                "gss_group_size",
                "gss_groups",
                "coreset_parts",
                "steps",
                "threads",
            )
            for value in (0, -3)
        ],
        *[
            (name, value, "at least 0")
            for name in ("learning_rate", "alpha", "beta", "eta")
            for value in (-0.5,)
        ],
        ("seed", -1, "at least 0"),
        ("evaluations", -1, "at least 0"),
        *[
            (name, value, "above 0")
            for name in ("noise", "jitter", "checkpoint_every")
            for value in (0.0, -1.0)
        ],
        *[("decay", value, "between 0 and 1") for value in (0.0, 1.0, -0.5)],
        *[
            (name, value, "a finite number")
            for name in ("learning_rate", "alpha", "noise", "decay", "gamma")
            for value in (NAN, float("inf"), "much", True)
        ],
        *[
            (name, value, "a whole number")
            for name in ("seed", "capacity", "steps")
            for value in (1.5, "three", True)
        ],
        ("augmented", "no", "True or False"),
        ("data_dir", 3, "text"),
        ("seed", 2**63, "at most"),
        ("threads", 100_000, "at most 1024"),
        ("device", "tpu9", "'auto', 'cpu', 'cuda'"),
        ("device", "meta", "'auto', 'cpu', 'cuda'"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(
    name: str, value: Any, expected: str
) -> None:
    pattern = rf"{name} must be .*{re.escape(expected)}.*got {re.escape(repr(value))}"
    with pytest.raises(ValueError, match=pattern):
        ExperimentConfig(**{name: value})


@pytest.mark.parametrize("policy", ["cbrs", "wrs", "coreset"])
def test_policies_of_classes_are_refused_for_regression(policy: str) -> None:
    with pytest.raises(ValueError, match=f"'{policy}'.*SplitDiabetes has none"):
        ExperimentConfig.preset("SplitDiabetes", policy=policy)


@pytest.mark.parametrize(
    "chosen", [{"network": "resnet18"}, {"augmented": True}], ids=str
)
def test_what_is_for_images_is_refused_for_tables(chosen: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(chosen))}.*SplitDiabetes"):
        ExperimentConfig.preset("SplitDiabetes", policy="rs", **chosen)


def test_an_unknown_preset_or_stream_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"preset must be one of mnist.*got 'paper'"):
        ExperimentConfig.preset("SplitMNIST", "paper")
    with pytest.raises(ValueError, match=r"env must be one of SplitMNIST.*got 'x'"):
        ExperimentConfig.preset("x")


def test_the_best_device_there_is_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, expected in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda found=available: found)
        assert ExperimentConfig().torch_device == torch.device(expected)
    assert ExperimentConfig(device="cpu").torch_device == torch.device("cpu")


@pytest.mark.parametrize("name", ["batch_size", "replay_batch_size", "capacity"])
def test_batch_normalisation_needs_two_samples(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be at least 2.*got 1"):
        ExperimentConfig(network="resnet18", **{name: 1})


def test_a_memory_of_coresets_has_a_slot_for_each() -> None:
    ExperimentConfig(policy="coreset", capacity=12, coreset_parts=12)
    with pytest.raises(
        ValueError, match="capacity must be at least coreset_parts=13, got 12"
    ):
        ExperimentConfig(policy="coreset", capacity=12, coreset_parts=13)
    # Other policies do not look at it.
    ExperimentConfig(policy="rs", capacity=12, coreset_parts=13)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("noise", 1e-300, "at least 1e-06"),
        ("jitter", 1e300, "at most 1000000"),
        ("eta", 1e300, "at most 1000000"),
        ("imbalance", 10**23, "at most 1000000"),
        ("epochs", 10**23, "at most 1000000"),
        ("capacity", 10**12, "at most 100000000"),
        ("batch_size", 10**16, "at most 100000000"),
    ],
)
def test_numbers_beyond_reason_are_refused(
    name: str, value: float, expected: str
) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be {expected}, got"):
        ExperimentConfig(**{name: value})
