"""Settings: the paper's by name, and a clear word where one makes no sense."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch

from agents.supervised.config import PRESETS, ExperimentConfig
from agents.supervised.networks import make_network
from continual_envs import BENCHMARKS, load_dataset
from info_replay.registry import POLICIES

#: Table "Hyperparameters and Configurations of the Continual Learning Experiments".
NAMES = ("network", "epochs", "batch_size", "replay_batch_size", "capacity")
PAPER = {
    "SplitMNIST": ("fc", 1, 128, 128, 100),
    "PermutedMNIST": ("fc", 1, 128, 128, 100),
    "SplitCIFAR10": ("resnet18", 50, 32, 32, 200),
    "SplitMiniImageNet": ("resnet18", 100, 32, 32, 1000),
}
#: What the table lets one choose from.
CHOICES = ("learning_rate", "alpha", "beta", "eta", "gamma")
GRIDS = {
    "fc": ([0.03, 0.1, 0.3], [0.3, 1.0], [1.0], [0, 1, 3], [-0.3, 0, 0.3]),
    "resnet18": ([0.01, 0.03], [0.3, 1.0], [1.0, 3.0], [0, 1, 3], [-0.3, 0, 0.3]),
}


@pytest.mark.parametrize("env", list(PAPER))
def test_presets_are_the_papers(env: str) -> None:
    config = ExperimentConfig.preset(env)
    assert config.env == env
    assert tuple(getattr(config, name) for name in NAMES) == PAPER[env]
    assert config.augmented == (config.network == "resnet18")
    assert (config.noise, config.jitter, config.criterion) == (0.3, 0.1, "mic")
    for name, choices in zip(CHOICES, GRIDS[config.network], strict=True):
        assert getattr(config, name) in choices
    assert config.gamma_learnability in (0.0, 1.0)


@pytest.mark.parametrize("env", list(BENCHMARKS))
def test_every_stream_has_a_preset(env: str) -> None:
    for policy in (*POLICIES, "none"):
        assert ExperimentConfig.preset(env, policy=policy).policy == policy


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_can_be_chosen_for_another_stream_and_changed(name: str) -> None:
    config = ExperimentConfig.preset("SplitMNIST", name, capacity=7)
    assert config.env == "SplitMNIST"
    for setting, value in {**PRESETS[name], "capacity": 7}.items():
        assert getattr(config, setting) == value


def test_settings_survive_json() -> None:
    config = ExperimentConfig.preset("SplitDigits", policy="rs", steps=3, decay=0.9)
    assert ExperimentConfig(**json.loads(json.dumps(config.as_dict()))) == config


@pytest.mark.parametrize(
    ("names", "values", "expected"),
    [
        ("env", ["SplitMnist"], "one of SplitMNIST, "),
        ("policy", ["reservoir"], "'rs', .* or 'module:Name'.*'none' for no replay"),
        ("network", ["vgg"], "'fc', .*'resnet18'.* or 'module:Name'"),
        ("criterion", ["micc"], "'mic', .* or 'module:Name'.*did you mean 'mic'"),
        ("imbalance epochs", [0, 10**23], "at least 1 and at most 1000000"),
        ("batch_size replay_batch_size capacity", [0, 10**9], "1 and at most 10{8}"),
        ("gss_group_size gss_groups coreset_parts steps", [0, -3], "at least 1"),
        ("learning_rate alpha beta", [-0.5], "at least 0"),
        ("evaluations", [-1], "at least 0"),
        ("seed", [-1, 2**63], "at least 0 and at most"),
        ("eta", [-0.5, 1e300], "at least 0 and at most 1000000"),
        ("noise jitter", [0.0, -1.0, 1e-300, 1e7], "at least 1e-06 and at most 10{6}"),
        ("checkpoint_every", [0.0], "above 0"),
        ("decay", [0.0, 1.0, -0.5], "above 0 and below 1"),
        ("threads", [0, 100_000], "at least 1 and at most 1024"),
        ("device", ["tpu9", "meta"], "'auto', 'cpu', 'cuda'"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_expected(
    names: str, values: list[Any], expected: str
) -> None:
    for name in names.split():
        for value in values:
            with pytest.raises(
                ValueError, match=f"{name} must be .*{expected}"
            ) as told:
                ExperimentConfig(**{name: value})
            assert f"got {value!r}" in str(told.value)


def test_a_policy_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(
        ValueError, match="policy 'gone:Writer'.*No module named 'gone'"
    ):
        ExperimentConfig(policy="gone:Writer")


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        *(
            ({"policy": policy}, f"policy {policy!r}")
            for policy in "cbrs wrs coreset".split()
        ),
        ({"network": "resnet18"}, "network='resnet18'"),
        ({"augmented": True}, "augmented=True"),
    ],
)
def test_what_does_not_fit_the_data_is_refused(
    chosen: dict[str, Any], expected: str
) -> None:
    config = ExperimentConfig.preset("SplitDiabetes", **{"policy": "rs", **chosen})
    with pytest.raises(ValueError, match=f"^{re.escape(expected)} needs .* has none$"):
        config.check_dataset(load_dataset("Diabetes"))
    config.check_dataset(load_dataset("Digits"))


def test_all_other_policies_fit_any_data() -> None:
    for policy in {*POLICIES, "none"} - {"cbrs", "wrs", "coreset"}:
        config = ExperimentConfig.preset("SplitDiabetes", policy=policy)
        config.check_dataset(load_dataset("Diabetes"))


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
def test_batch_normalization_needs_two_samples(name: str) -> None:
    config = ExperimentConfig(network="resnet18", **{name: 1})
    with pytest.raises(ValueError, match=rf"{name} must be at least 2.*got 1"):
        config.check_network(make_network("resnet18", (3, 32, 32), 10, seed=0))
    config.check_network(make_network("fc", (3, 32, 32), 10, seed=0))
