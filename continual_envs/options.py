"""What the user may choose of a stream, checked in one place."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["StreamOptions", "is_whole"]


@dataclass(frozen=True)
class StreamOptions:
    """Options of every stream.

    Args:
        batch_size: samples a step; ``None`` for one sample without a batch dimension.
        epochs: how often the samples of each task come (``n_e`` of the paper).
        imbalance: how much more often those of one task come (``r`` of the paper).
        imbalanced_task: which task, or class of a drifting stream, that is; by default
            the seed modulo their number.
        validation: whether to hold a tenth of the training data out and to evaluate on
            it instead of the test data.
        data_dir: folder of the data sets; else the environment variable
            ``CONTINUAL_ENVS_DATA``, else the user's cache folder.
        expose_task_id: whether infos tell the task of each sample.
        width: of a drifting stream, how long a class is around: deviation in units of
            its share of the stream.
    """

    batch_size: int | None = None
    epochs: int = 1
    imbalance: int = 1
    imbalanced_task: int | None = None
    validation: bool = False
    data_dir: str | Path | None = None
    expose_task_id: bool = False
    width: float = 0.5

    def __post_init__(self) -> None:
        """Refuse values that make no stream."""
        if self.batch_size is not None:
            _check_count("batch_size", self.batch_size, " or None for single samples")
        _check_count("epochs", self.epochs)
        _check_count("imbalance", self.imbalance)
        if self.imbalanced_task is not None and not is_whole(self.imbalanced_task):
            raise ValueError(
                "imbalanced_task must be the number of a task or None, got "
                f"{self.imbalanced_task!r}"
            )
        for name in ("validation", "expose_task_id"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(
                    f"{name} must be True or False, got {getattr(self, name)!r}"
                )
        if (
            isinstance(self.width, bool)
            or not isinstance(self.width, int | float)
            or not 0 < self.width <= 1e6
        ):
            raise ValueError(
                f"width must be a positive number up to 1e6, got {self.width!r}"
            )

    @classmethod
    def of(cls, name: str, drifts: bool, values: dict[str, Any]) -> StreamOptions:
        """Options of a benchmark; refuses those that it does not know.

        Args:
            name: of the benchmark.
            drifts: whether its stream drifts.
            values: the options that were given.

        Returns:
            The options.

        Raises:
            TypeError: if there is no such option.
            ValueError: if one has a wrong value.
        """
        foreign = {"expose_task_id"} if drifts else {"width"}
        known = [field.name for field in fields(cls) if field.name not in foreign]
        for option in values:
            if option not in known:
                # TorchRL's GymEnv tries an option and looks for Python's own words.
                raise TypeError(
                    f"{name} got an unexpected keyword argument {option!r}, expected "
                    f"one of {known}"
                )
        return cls(**values)


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, of Python or numpy; ``True`` is none.

    Args:
        value: anything.

    Returns:
        Whether it is.
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_count(name: str, value: object, otherwise: str = "") -> None:
    if not is_whole(value) or value < 1:  # type: ignore[operator]
        raise ValueError(
            f"{name} must be a whole number of at least 1{otherwise}, got {value!r}"
        )
