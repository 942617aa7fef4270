"""Settings of the figures: every field is an option of ``info-replay figure NAME``.

Nothing heavy is imported here, so that the command line can show its help at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from agents.settings import Settings, option

__all__ = [
    "METHODS",
    "RUN_SETTINGS",
    "MemorySettings",
    "RelearningSettings",
    "SweepFigureSettings",
    "ToySettings",
    "TsneSettings",
    "parse_methods",
    "parse_numbers",
]

#: What figures call the methods that select a memory.
METHODS = {
    "rs": "RS",
    "infogs": "InfoGS",
    "infogs-eta0": "InfoGS without learnability",
}

_MOST_NUMBERS = 10_000


def parse_numbers(name: str, text: str, least: int = 0) -> list[int]:
    """Whole numbers from text such as ``0-4,7``.

    Args:
        name: of the setting.
        text: its value.
        least: the smallest number allowed.

    Returns:
        The numbers in the order given, each only once.

    Raises:
        ValueError: naming the setting, if the text is something else.

    Example:
        >>> parse_numbers("seeds", "0-2,7")
        [0, 1, 2, 7]
    """
    found: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(-(\d{1,9}))?\s*", part, re.ASCII)
        first, last = (0, -1) if match is None else (int(match[1]), int(match[1]))
        if match is not None and match[3] is not None:
            last = int(match[3])
        if not least <= first <= last < first + _MOST_NUMBERS:
            raise ValueError(
                f"{name} must be whole numbers of at least {least}, such as 25,50 or "
                f"0-4, got {text!r}"
            )
        found.update(dict.fromkeys(range(first, last + 1)))
    return [*found]


def parse_methods(text: str) -> list[str]:
    """Names of methods from text such as ``rs,infogs``.

    Args:
        text: names with commas between.

    Raises:
        ValueError: if one of them is unknown.

    Example:
        >>> parse_methods("rs, infogs")
        ['rs', 'infogs']
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in METHODS:
            raise ValueError(
                f"methods must be some of {', '.join(METHODS)}, got {name!r}"
            )
    return [*dict.fromkeys(names)]


def _check_sizes(text: str) -> None:
    parse_numbers("sizes", text, least=2)


def _check_seeds(text: str) -> None:
    parse_numbers("seeds", text)


@dataclass(frozen=True)
class ToySettings(Settings):
    """Settings of the figure ``toy``.

    The default seed is the first one with which both points are outside of the 95 %
    interval before they are memorized, and only the left one is afterwards, as the
    paper describes its figure.
    """

    seed: int = option(0, "of the memory's values", min=0, max=2**63 - 1)


@dataclass(frozen=True)
class MemorySettings(Settings):
    """How memories are selected from fixed features.

    The paper has the batch size, the order of classes, noise and jitter. Its grid for
    CIFAR-10 has ``eta = 1`` and ``gamma_l = 0``; with ``gamma_l = 0`` and features that
    separate the classes well, no item of a new class passes the learnability threshold,
    so the default is lower.
    """

    features: str | None = option(
        None,
        "an .npz file of fixed features: X, y, X_test, y_test (must be given)",
        group="data",
    )
    classes_per_task: int = option(
        2, "classes that come together in the stream, in order", group="data", min=1
    )
    batch_size: int = option(32, "items that are offered at a time", min=1)
    eta: float = option(
        1.0, "weight of the learnability in InfoGS", group="InfoGS", min=0, max=1e9
    )
    gamma: float = option(
        0.0, "gamma_i of the information improvement threshold", group="InfoGS"
    )
    gamma_learnability: float = option(
        -3.0, "gamma_l of the learnability threshold", group="InfoGS"
    )
    noise: float = option(0.3, "sigma of the Bayesian model", group="InfoGS", above=0)
    jitter: float = option(0.1, "c of the Bayesian model", group="InfoGS", above=0)


@dataclass(frozen=True)
class RelearningSettings(MemorySettings):
    """Settings of the figure ``relearning``."""

    methods: str = option("rs,infogs,infogs-eta0", "to compare", check=parse_methods)
    sizes: str = option("25,50,100,200,500", "of the memory", check=_check_sizes)
    seeds: str = option("0-4", "of the order of items and of RS", check=_check_seeds)
    penalty: float = option(
        1.0, "L2 penalty of the linear classifier, 1 / C of scikit-learn", above=0
    )
    mixed: bool = option(
        False, "go on with results of another version of the code", matters=False
    )


@dataclass(frozen=True)
class TsneSettings(MemorySettings):
    """Settings of the figure ``tsne``."""

    methods: str = option(
        "infogs-eta0,infogs,rs",
        "one per column",
        check=parse_methods,
    )
    sizes: str = option("200,25", "of the memory, one per row", check=_check_sizes)
    seed: int = option(
        0, "of the order of items, RS, the subsample and t-SNE", min=0, max=2**32 - 1
    )
    points: int = option(5000, "training items that are drawn", min=10, max=5000)
    perplexity: float = option(30.0, "of t-SNE", min=1)


#: Settings of a figure's own runs that its description takes as they are.
RUN_SETTINGS = ("env", "epochs", "samples_per_class")


@dataclass(frozen=True)
class SweepFigureSettings(Settings):
    """Settings of figures that are drawn from runs of a sweep."""

    results: str | None = option(
        None,
        "folders of finished sweeps with the figure's methods, with commas in between; "
        "else its own runs are done, in a folder beside the picture",
        matters=False,
    )
    methods: str | None = option(
        None, "methods of these sweeps to draw, with ; in between (the figure's)"
    )
    env: str | None = option(
        None,
        "stream of its own runs (SplitMNIST)",
        choices="continual_envs:BENCHMARKS",
    )
    seeds: str | None = option(
        None,
        "of its own runs (0-4; 0-9 of imbalance, greedy and timing; 0 of evolution)",
        check=_check_seeds,
    )
    epochs: int | None = option(
        None, "n_e of its own runs (that of the stream's preset; 1 of MNIST's)", min=1
    )
    samples_per_class: int | None = option(
        None, "training samples that each class of its own runs keeps (all)", min=1
    )
    workers: int | None = option(
        None, "runs at a time (one for each core)", min=1, matters=False
    )
    mixed: bool = option(
        False, "go on with results of another version of the code", matters=False
    )

    def __post_init__(self) -> None:
        """Refuse settings of own runs where there are none."""
        super().__post_init__()
        for name in (*RUN_SETTINGS, "seeds", "workers", "mixed"):
            value = getattr(self, name)
            if self.results is not None and value not in (None, False):
                raise ValueError(
                    f"{name} is of a figure's own runs, so results and {name} cannot "
                    f"both be given, got {name}={value!r}"
                )
        if self.methods is not None and self.results is None:
            raise ValueError(
                f"methods chooses among those of results, which is not given, got "
                f"methods={self.methods!r}"
            )
