"""What the user may choose of how data are read, checked in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from continual_envs.checks import check_count, check_share, check_switch, is_whole

__all__ = ["DataOptions"]


@dataclass(frozen=True)
class DataOptions:
    """Options of :func:`~continual_envs.make_dataset`.

    Args:
        test_share: how much of each class is held out where no test data are given.
        test_seed: which samples these are; not the seed of the stream, so that all
            streams of one data set are judged by the same samples.
        num_classes: number of classes; follows from the labels if it is not given. A
            live stream without test data needs it.
        targets: ``"labels"``, ``"numbers"``, or ``"auto"``: whole numbers are labels.
        standardize: whether inputs that are vectors of floats, and targets that are
            numbers, are brought to mean 0 and deviation 1; by default they are.
        image_size: height and width to which images are resized.
        input_key: column of the inputs of a Hugging Face data set, or several columns
            of numbers.
        target_key: column of its targets.
        task_ids: a whole number per sample, for ``cut="given"``.
        test_task_ids: the same for the test data.
        batched: of a live stream, whether it yields batches instead of samples.
        data_dir: folder of the data sets that have a name; else the environment
            variable ``CONTINUAL_ENVS_DATA``, else the user's cache folder.
    """

    test_share: float = 0.2
    test_seed: int = 0
    num_classes: int | None = None
    targets: str = "auto"
    standardize: bool | None = None
    image_size: tuple[int, int] | None = None
    input_key: str | Sequence[str] | None = None
    target_key: str | None = None
    task_ids: Any = None
    test_task_ids: Any = None
    batched: bool = False
    data_dir: str | Path | None = None

    def __post_init__(self) -> None:
        """Refuse values that have no meaning."""
        check_share("test_share", self.test_share)
        if self.test_share in (0, 1):
            raise ValueError(
                "test_share must be above 0 and below 1, got "
                f"{self.test_share!r}: give test= to hold nothing out"
            )
        if not is_whole(self.test_seed) or self.test_seed < 0:
            raise ValueError(
                f"test_seed must be a whole number from 0 on, got {self.test_seed!r}"
            )
        if self.num_classes is not None:
            check_count("num_classes", self.num_classes)
        if self.targets not in ("auto", "labels", "numbers"):
            raise ValueError(
                "targets must be 'auto', 'labels' or 'numbers', got "
                f"{self.targets!r}; test data are given as test="
            )
        if self.targets == "numbers" and self.num_classes is not None:
            raise ValueError(
                f"targets='numbers' has no num_classes, got {self.num_classes!r}"
            )
        if self.standardize is not None:
            check_switch("standardize", self.standardize)
        check_switch("batched", self.batched)
        if self.image_size is not None:
            size = self.image_size
            if not isinstance(size, tuple | list) or len(size) != 2:
                raise ValueError(
                    f"image_size must be (height, width), got {self.image_size!r}"
                )
            for side in size:
                check_count("each side of image_size", side)

    @classmethod
    def names(cls) -> list[str]:
        """The names of all options."""
        return [field.name for field in fields(cls)]

    def check_used(self, kind: str, used: Sequence[str]) -> None:
        """Refuse options that a kind of data does not have.

        Args:
            kind: of the data, for the message.
            used: the names of those that it has.

        Raises:
            ValueError: if another one was given.
        """
        for field in fields(self):
            value, default = getattr(self, field.name), field.default
            # An array cannot be compared with None.
            given = value is not None if default is None else value != default
            if given and field.name not in (*used, "data_dir"):
                raise ValueError(
                    f"{field.name} does not apply to {kind}; what applies is "
                    f"{', '.join(used) or 'no option'}"
                )
