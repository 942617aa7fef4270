"""The numbers of the paper's three tables of continual-learning benchmarks.

They are in the appendix, after "More baselines": Table ``tab:cl-numbers`` ("The means
and standard errors of the continual learning benchmarks"), ``tab:cl-bwd-numbers``
(backward transfers) and ``tab:cl-fwd-numbers`` (forward transfers). All are in percent,
over 10 seeds. The paper has no forward transfer of Split CIFAR-10 and Split
MiniImageNet, no Coreset on other streams than Split MNIST, and InfoGS-RS in a figure
only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = [
    "IMBALANCES",
    "METHODS",
    "PAPER",
    "TABLES",
    "PaperNumber",
    "differences_from_paper",
    "differences_text",
    "paper_number",
]


class PaperNumber(NamedTuple):
    """A cell of a table of the paper, in percent.

    Attributes:
        mean: over 10 seeds.
        error: its standard error.
    """

    mean: float
    error: float


#: Columns of the tables.
IMBALANCES = (1, 3, 10, 30)

#: What the paper calls each policy.
METHODS = {
    "rs": "RS",
    "wrs": "WRS",
    "cbrs": "CBRS",
    "gss": "GSS",
    "fss-clust": "FSS-Clust",
    "coreset": "Coreset",
    "infogs": "InfoGS",
    "infogs-rs": "InfoGS-RS",
    "infors": "InfoRS",
}

#: Where each number is from.
TABLES = {
    "average": "Appendix, Table 2 (tab:cl-numbers)",
    "forward_transfer": "Appendix, Table 3 (tab:cl-fwd-numbers)",
    "backward_transfer": "Appendix, Table 4 (tab:cl-bwd-numbers)",
}


def _row(text: str) -> tuple[PaperNumber, ...]:
    cells = (cell.split() for cell in text.split(","))
    return tuple(PaperNumber(float(mean), float(error)) for mean, error in cells)


#: By measure, stream and policy: one number for each of :data:`IMBALANCES`.
PAPER: dict[str, dict[str, dict[str, tuple[PaperNumber, ...]]]] = {
    "average": {
        "PermutedMNIST": {
            "rs": _row("75.41 0.32, 74.90 0.42, 72.90 0.47, 66.35 0.41"),
            "wrs": _row("73.76 0.41, 73.97 0.43, 71.92 0.50, 69.44 0.77"),
            "cbrs": _row("76.86 0.31, 75.07 0.42, 71.02 0.44, 65.73 0.72"),
            "gss": _row("64.46 0.48, 63.45 0.64, 61.74 1.11, 59.36 1.59"),
            "fss-clust": _row("70.53 0.33, 70.12 0.57, 68.35 0.82, 65.82 0.90"),
            "infogs": _row("79.10 0.36, 79.03 0.29, 76.51 0.39, 72.59 0.69"),
            "infors": _row("77.50 0.19, 77.07 0.32, 73.97 0.48, 67.67 0.62"),
        },
        "SplitMNIST": {
            "rs": _row("81.49 0.72, 78.74 1.17, 71.94 1.87, 52.76 1.41"),
            "wrs": _row("75.75 1.24, 73.90 0.97, 68.82 2.39, 65.87 2.92"),
            "cbrs": _row("80.96 1.43, 79.71 0.55, 79.43 2.28, 75.08 2.73"),
            "gss": _row("45.36 0.95, 45.10 0.96, 44.16 1.15, 49.54 2.57"),
            "fss-clust": _row("52.85 1.13, 54.59 1.69, 54.36 2.11, 55.33 2.89"),
            "coreset": _row("69.77 0.75, 63.47 2.21, 50.30 2.97, 42.05 2.19"),
            "infogs": _row("78.55 1.37, 78.35 1.56, 69.90 2.18, 67.19 3.52"),
            "infors": _row("80.02 1.53, 81.48 0.98, 73.81 2.43, 63.70 2.63"),
        },
        "SplitCIFAR10": {
            "rs": _row("50.32 0.30, 48.31 0.54, 40.59 0.67, 32.88 1.43"),
            "wrs": _row("34.14 0.59, 37.66 0.30, 37.64 0.68, 36.65 0.76"),
            "cbrs": _row("48.35 0.55, 48.64 0.39, 47.65 0.31, 48.90 0.56"),
            "infogs": _row("44.99 1.37, 48.02 0.65, 44.59 0.77, 46.18 0.82"),
            "infors": _row("52.61 0.36, 51.11 0.35, 46.66 0.76, 42.10 0.71"),
        },
        "SplitMiniImageNet": {
            "rs": _row("23.48 0.24, 23.19 0.30, 20.93 0.51, 16.89 0.67"),
            "wrs": _row("17.24 0.27, 17.04 0.21, 16.93 0.39, 15.87 0.25"),
            "cbrs": _row("21.74 0.07, 21.41 0.11, 21.10 0.16, 20.52 0.26"),
            "infogs": _row("20.05 0.15, 19.89 0.17, 19.51 0.26, 19.16 0.33"),
            "infors": _row("23.83 0.14, 23.35 0.22, 22.03 0.39, 19.69 0.44"),
        },
    },
    "backward_transfer": {
        "PermutedMNIST": {
            "rs": _row("-19.27 0.26, -21.30 0.31, -23.34 0.30, -31.48 0.43"),
            "wrs": _row("-21.69 0.30, -21.98 0.58, -24.60 0.72, -28.07 0.76"),
            "cbrs": _row("-19.98 0.43, -21.30 0.39, -24.72 0.31, -30.43 0.65"),
            "gss": _row("-32.58 0.57, -33.53 0.74, -34.55 0.96, -36.23 1.22"),
            "fss-clust": _row("-24.72 0.34, -25.42 0.59, -27.38 0.82, -30.14 0.90"),
            "infogs": _row("-15.68 0.30, -17.20 0.26, -19.58 0.28, -22.74 0.62"),
            "infors": _row("-18.16 0.22, -20.20 0.52, -22.44 0.51, -28.95 0.57"),
        },
        "SplitMNIST": {
            "rs": _row("-21.90 1.53, -25.58 1.36, -36.75 1.88, -53.51 1.32"),
            "wrs": _row("-24.33 1.99, -26.03 1.36, -37.78 3.19, -39.65 4.42"),
            "cbrs": _row("-22.62 1.29, -23.75 1.02, -25.33 2.67, -25.88 3.62"),
            "gss": _row("-65.27 1.25, -65.58 1.43, -65.59 1.33, -62.55 2.17"),
            "fss-clust": _row("-56.49 1.45, -54.52 2.14, -53.10 3.27, -54.19 3.67"),
            "coreset": _row("-18.72 0.79, -34.04 2.88, -50.00 4.29, -59.13 3.74"),
            "infogs": _row("-21.62 1.93, -28.59 1.99, -33.11 3.25, -34.81 5.12"),
            "infors": _row("-18.52 1.06, -23.81 1.83, -31.74 3.83, -43.37 2.71"),
        },
        "SplitCIFAR10": {
            "rs": _row("-44.09 0.75, -50.74 1.53, -53.00 2.26, -52.66 4.51"),
            "wrs": _row("-61.35 1.03, -58.45 0.96, -55.91 0.95, -56.33 1.51"),
            "cbrs": _row("-53.92 0.50, -55.62 0.54, -53.56 0.49, -55.32 0.83"),
            "infogs": _row("-51.92 2.42, -43.14 1.26, -42.80 1.19, -49.30 1.78"),
            "infors": _row("-43.46 0.66, -46.72 1.06, -47.02 1.75, -51.63 2.62"),
        },
        "SplitMiniImageNet": {
            "rs": _row("-52.52 0.27, -52.68 0.59, -53.62 1.58, -52.67 3.09"),
            "wrs": _row("-61.11 0.37, -60.59 0.47, -59.63 0.44, -61.28 0.31"),
            "cbrs": _row("-58.33 0.15, -57.91 0.17, -58.91 0.29, -59.34 0.23"),
            "infogs": _row("-58.80 0.13, -59.14 0.32, -59.87 0.34, -60.91 0.31"),
            "infors": _row("-53.04 0.23, -53.41 0.62, -53.89 1.27, -57.28 1.06"),
        },
    },
    "forward_transfer": {
        "PermutedMNIST": {
            "rs": _row("0.88 0.27, 0.73 0.24, 0.74 0.24, 0.75 0.27"),
            "wrs": _row("0.86 0.28, 0.65 0.22, 0.84 0.25, 0.80 0.25"),
            "cbrs": _row("0.90 0.22, 0.84 0.30, 0.72 0.33, 0.81 0.22"),
            "gss": _row("0.74 0.26, 0.64 0.29, 0.77 0.25, 0.55 0.25"),
            "fss-clust": _row("1.91 0.23, 1.89 0.28, 1.74 0.28, 1.74 0.34"),
            "infogs": _row("0.75 0.26, 0.67 0.32, 0.78 0.29, 0.58 0.28"),
            "infors": _row("0.64 0.30, 0.92 0.25, 0.82 0.25, 0.58 0.23"),
        },
        "SplitMNIST": {
            "rs": _row("-9.68 0.89, -9.68 0.89, -9.68 0.89, -9.68 0.89"),
            "wrs": _row("-9.68 0.89, -9.68 0.89, -9.68 0.89, -9.68 0.89"),
            "cbrs": _row("-9.68 0.89, -9.68 0.89, -9.68 0.89, -9.68 0.89"),
            "gss": _row("-9.68 0.89, -9.68 0.89, -9.68 0.89, -9.68 0.89"),
            "fss-clust": _row("-10.09 1.58, -10.09 1.58, -10.09 1.58, -10.09 1.58"),
            "coreset": _row("-10.09 1.58, -10.09 1.58, -10.09 1.58, -10.09 1.58"),
            "infogs": _row("-9.68 0.89, -9.68 0.89, -9.68 0.89, -9.68 0.89"),
            "infors": _row("-9.68 0.89, -9.68 0.89, -9.68 0.89, -9.68 0.89"),
        },
    },
}

# Table "Hyperparameters and Configurations" (tab:details): what the paper did not tune.
_MNIST = {
    "network": "fc",
    "epochs": 1,
    "batch_size": 128,
    "replay_batch_size": 128,
    "capacity": 100,
}
_RESNET = {
    "network": "resnet18",
    "batch_size": 32,
    "replay_batch_size": 32,
    "augmented": True,
}
_CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "SplitMNIST": _MNIST,
    "PermutedMNIST": _MNIST,
    "SplitCIFAR10": {**_RESNET, "epochs": 50, "capacity": 200},
    "SplitMiniImageNet": {**_RESNET, "epochs": 100, "capacity": 1000},
}
# Not settings of the paper's: a run with another value is another experiment.
_ALWAYS: dict[str, Any] = {
    "learner": "der++",
    "validation": False,
    "steps": None,
    "samples_per_class": None,
    "longtail": None,
    "blur": None,
    "label_noise": None,
    "tasks": None,
    "cut": None,
    "class_order": None,
    "class_sizes": None,
}


def paper_number(
    measure: str, stream: str, policy: str, imbalance: int
) -> PaperNumber | None:
    """The paper's number, if it has one.

    Args:
        measure: ``"average"``, ``"backward_transfer"`` or ``"forward_transfer"``.
        stream: name of the benchmark.
        policy: of the memory.
        imbalance: ``r``.

    Example:
        >>> paper_number("average", "SplitMNIST", "infors", 10)
        PaperNumber(mean=73.81, error=2.43)
        >>> paper_number("average", "SplitDigits", "infors", 10) is None
        True
    """
    row = PAPER.get(measure, {}).get(stream, {}).get(policy)
    if row is None or imbalance not in IMBALANCES:
        return None
    return row[IMBALANCES.index(imbalance)]


def differences_from_paper(stream: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the paper has fixed and a run has otherwise.

    Args:
        stream: name of the benchmark.
        settings: of the run; a missing one counts as the paper's.

    Returns:
        The paper's values by the name of the setting; nothing if the run can be
        compared, or the paper does not have the stream.

    Example:
        >>> differences_from_paper("SplitCIFAR10", {"epochs": 2, "capacity": 200})
        {'epochs': 50}
    """
    if stream not in _CONFIGURATIONS:
        return {}
    expected = {**_ALWAYS, **_CONFIGURATIONS[stream]}
    return {
        name: value
        for name, value in expected.items()
        if settings.get(name, value) != value
    }


def differences_text(differences: Mapping[str, Any]) -> str:
    """What :func:`differences_from_paper` returns, in words.

    Args:
        differences: the paper's values by the name of the setting.

    Example:
        >>> differences_text({"capacity": 100, "steps": None})
        'capacity = 100, steps not set'
    """
    return ", ".join(
        f"{name} not set" if value is None else f"{name} = {value}"
        for name, value in differences.items()
    )
