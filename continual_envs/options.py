"""What the user may choose of a stream, checked in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from continual_envs.checks import (
    check_count,
    check_share,
    check_switch,
    is_number,
    is_whole,
)

__all__ = ["CUTS", "StreamOptions"]

#: How a data set can be cut into tasks, and which options each cut has of its own.
CUTS: dict[str, tuple[str, ...]] = {
    "label": ("tasks", "class_order", "class_sizes", "expose_task_id"),
    "column": ("tasks", "column", "expose_task_id"),
    "given": ("expose_task_id",),
    "permuted": ("tasks", "expose_task_id"),
    "drift": ("width",),
    "none": ("expose_task_id",),
}


@dataclass(frozen=True)
class StreamOptions:
    """Options of every stream.

    Args:
        batch_size: samples per step; ``None`` for one sample without a batch dimension.
        epochs: how often the samples of each task come (``n_e`` of the paper).
        imbalance: how much more often those of one task come (``r`` of the paper).
        imbalanced_task: which task, or class of a drifting stream, that is; by default
            the seed modulo their number.
        validation: whether to hold a tenth of the training data out and to evaluate on
            it instead of the test data.
        expose_task_id: whether infos tell the task of each sample.
        cut: how the data become tasks: ``"label"``, ``"column"``, ``"given"``,
            ``"permuted"``, ``"drift"`` (no tasks, the frequencies of classes drift) or
            ``"none"`` (one task). By default by the task ids if there are any, else by
            label, and targets that are numbers are not cut.
        tasks: how many tasks; by default one per class, or 5.
        column: which input the cut ``"column"`` goes by.
        class_order: all classes, in the order in which they come.
        class_sizes: how many classes each task has; by default equally many.
        width: of a drifting stream, how long a class is around: deviation in units of
            its share of the stream.
        samples_per_class: how many training samples each class keeps at most, drawn
            from the seed; by default all.
        longtail: how much more samples the largest class keeps than the smallest, the
            others in between exponentially.
        blur: share of the samples of each task that comes in other tasks.
        label_noise: share of the training samples of each class with a wrong label.
    """

    batch_size: int | None = None
    epochs: int = 1
    imbalance: int = 1
    imbalanced_task: int | None = None
    validation: bool = False
    expose_task_id: bool = False
    cut: str | None = None
    tasks: int | None = None
    column: int | None = None
    class_order: Sequence[int] | None = None
    class_sizes: Sequence[int] | None = None
    width: float = 0.5
    samples_per_class: int | None = None
    longtail: float = 1.0
    blur: float = 0.0
    label_noise: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values that make no stream."""
        if self.batch_size is not None:
            check_count("batch_size", self.batch_size, " or None for single samples")
        check_count("epochs", self.epochs)
        check_count("imbalance", self.imbalance)
        if self.imbalanced_task is not None and not is_whole(self.imbalanced_task):
            raise ValueError(
                "imbalanced_task must be the number of a task or None, got "
                f"{self.imbalanced_task!r}"
            )
        check_switch("validation", self.validation)
        check_switch("expose_task_id", self.expose_task_id)
        if self.cut is not None and self.cut not in CUTS:
            raise ValueError(
                f"cut must be one of {', '.join(map(repr, CUTS))}, got {self.cut!r}"
            )
        if self.tasks is not None:
            check_count("tasks", self.tasks)
        for name in ("class_order", "class_sizes"):
            self._check_whole_numbers(name)
        if not is_number(self.width) or not 0 < self.width <= 1e6:
            raise ValueError(
                f"width must be a positive number up to 1e6, got {self.width!r}"
            )
        if self.samples_per_class is not None:
            check_count("samples_per_class", self.samples_per_class, " or None for all")
        if not is_number(self.longtail) or self.longtail < 1:
            raise ValueError(
                f"longtail must be a number of at least 1, got {self.longtail!r}"
            )
        check_share("blur", self.blur)
        check_share("label_noise", self.label_noise)

    def _check_whole_numbers(self, name: str) -> None:
        values = getattr(self, name)
        if values is None:
            return
        least = 1 if name == "class_sizes" else 0
        try:
            numbers = tuple(values)
        except TypeError:
            numbers = (None,)
        if not all(is_whole(value) and value >= least for value in numbers):
            raise ValueError(
                f"{name} must be a list of whole numbers from {least} on, got "
                f"{values!r}"
            )
        object.__setattr__(self, name, tuple(int(value) for value in numbers))

    @classmethod
    def names(cls, cut: str | None = None) -> list[str]:
        """The names of the options.

        Args:
            cut: only those that this cut has; all if it is not known.

        Returns:
            The names.
        """
        others = set() if cut is None else set().union(*CUTS.values()) - {*CUTS[cut]}
        return [field.name for field in fields(cls) if field.name not in others]

    def plain(self) -> dict[str, Any]:
        """All options as values that JSON can hold.

        Returns:
            Names and values, sequences as lists.
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }
