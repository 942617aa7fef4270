"""Settings of the paper for each data set."""

from __future__ import annotations

from typing import Any

__all__ = ["OF_POLICY", "PRESETS", "PRESET_OF_DATASET", "preset_settings"]

#: Settings of the paper's Table "Hyperparameters and Configurations"; where the table
#: gives a grid, one choice of it. "digits", "diabetes" and "own", for data of the
#: user's, are ours.
PRESETS: dict[str, dict[str, Any]] = {
    "mnist": {},
    "cifar10": {
        "network": "resnet18",
        "epochs": 50,
        "batch_size": 32,
        "replay_batch_size": 32,
        "capacity": 200,
        "learning_rate": 0.03,
        "augmented": True,
    },
    "mini-imagenet": {
        "network": "resnet18",
        "epochs": 100,
        "batch_size": 32,
        "replay_batch_size": 32,
        "capacity": 1000,
        "learning_rate": 0.03,
        "augmented": True,
    },
    "digits": {
        "epochs": 5,
        "batch_size": 32,
        "replay_batch_size": 32,
        "capacity": 50,
    },
    "diabetes": {
        "epochs": 20,
        "batch_size": 16,
        "replay_batch_size": 32,
        "capacity": 50,
        "learning_rate": 0.03,
    },
    "own": {"batch_size": 32, "replay_batch_size": 32},
}

#: What was best for a policy in addition to a preset, on held-out data with one setting
#: for all imbalances: docs/results/split_mnist.md.
OF_POLICY: dict[str, dict[str, dict[str, Any]]] = {
    "mnist": {
        "rs": {"alpha": 1.0},
        "cbrs": {"alpha": 1.0},
        "gss": {"alpha": 1.0},
        "fss-clust": {"alpha": 1.0},
        "coreset": {"alpha": 1.0, "beta": 0.3, "learning_rate": 0.03},
        "auto": {"alpha": 1.0},
        "infors": {"alpha": 1.0, "decay": 0.99},
        "infogs": {"alpha": 1.0, "decay": 0.99},
        "infogs-rs": {"alpha": 1.0, "decay": 0.99},
    },
}


def preset_settings(name: str, policy: str) -> dict[str, Any]:
    """The settings of a preset with a policy.

    Args:
        name: of the preset.
        policy: of the memory.

    Example:
        >>> preset_settings("mnist", "rs")
        {'alpha': 1.0}
    """
    return {**PRESETS[name], **OF_POLICY.get(name, {}).get(policy, {})}


#: The preset that goes with a data set.
PRESET_OF_DATASET = {
    "MNIST": "mnist",
    "CIFAR10": "cifar10",
    "MiniImageNet": "mini-imagenet",
    "Digits": "digits",
    "Diabetes": "diabetes",
}
