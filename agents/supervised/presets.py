"""Settings of the paper for each data set."""

from __future__ import annotations

from typing import Any

__all__ = ["PRESETS", "PRESET_OF_DATASET"]

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

#: The preset that goes with a data set.
PRESET_OF_DATASET = {
    "MNIST": "mnist",
    "CIFAR10": "cifar10",
    "MiniImageNet": "mini-imagenet",
    "Digits": "digits",
    "Diabetes": "diabetes",
}
