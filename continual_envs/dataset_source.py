"""Batches from a data set in memory: :class:`DatasetSource`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs.blur import BlurredStream
from continual_envs.datasets import Dataset
from continual_envs.evaluation import EvaluationSet
from continual_envs.options import StreamOptions
from continual_envs.randomness import Purpose, generator
from continual_envs.shapes import long_tail, noisy_labels, subset
from continual_envs.source import Batch, Source
from continual_envs.streams import DriftStream, Stream, TaskStream
from continual_envs.tasks import cut_tasks

__all__ = ["DatasetSource"]


class DatasetSource(Source):
    """A data set, cut into tasks, in an order and a shape that the seed decides.

    Args:
        dataset: the data.
        cut: how they become tasks, one of :data:`~continual_envs.options.CUTS`.
        options: the user's choices.

    Example:
        >>> from continual_envs import load_dataset
        >>> source = DatasetSource(load_dataset("Digits"), "label", StreamOptions())
        >>> source.start(seed=0)
        >>> source.read(0, 3).targets.tolist(), source.length
        ([0, 0, 0], 1500)
    """

    def __init__(self, dataset: Dataset, cut: str, options: StreamOptions) -> None:
        super().__init__(dataset)
        self._cut = cut
        self._options = options
        self._check_shape()
        self.tasks = cut_tasks(dataset, cut, options)
        self._is_permuted = any(task.permutation is not None for task in self.tasks)
        # What may come more often than the rest: a task, or a class that drifts by.
        self._num_groups = len(self.tasks)
        if cut == "drift":
            assert dataset.num_classes is not None
            self._num_groups = dataset.num_classes
        chosen = options.imbalanced_task
        if chosen is not None and not 0 <= chosen < self._num_groups:
            raise ValueError(
                f"imbalanced_task must be from 0 to {self._num_groups - 1}, got "
                f"{chosen}"
            )
        if options.blur and len(self.tasks) < 2:
            raise ValueError(
                f"blur={options.blur} needs at least two tasks, {dataset.name} is cut "
                "into one"
            )
        self._groups = self._validation_groups() if options.validation else {}
        self._seed = -1
        self._targets = dataset.train.targets
        self._held_out = np.empty(0, dtype=np.int64)
        self._stream: Stream = TaskStream([self._held_out], [1], 0)

    def _check_shape(self) -> None:
        options, name = self._options, self.dataset.name
        if self.dataset.num_classes is None:
            if self._cut == "drift":
                raise ValueError(
                    f"cut='drift' needs classes, the targets of {name} are numbers"
                )
            for option in ("samples_per_class", "longtail", "label_noise"):
                if getattr(options, option) != getattr(StreamOptions, option):
                    raise ValueError(
                        f"{option}={getattr(options, option)} needs classes, the "
                        f"targets of {name} are numbers"
                    )
        elif options.label_noise and self.dataset.num_classes < 2:
            raise ValueError(
                f"label_noise={options.label_noise} needs at least two classes, {name} "
                "has one"
            )
        if options.blur and self._cut == "drift":
            raise ValueError(
                f"blur={options.blur} needs tasks, and cut='drift' has none: a larger "
                "width does the same"
            )

    def start(self, seed: int) -> None:
        """Draw the samples held out, the shape and the order."""
        self.restore(seed, 0, {})

    def restore(self, seed: int, position: int, state: dict[str, Any]) -> None:
        """Begin a stream anew: it can be read from any position."""
        held_out, targets, stream = self._derive(seed)
        if position and position >= len(stream):
            raise ValueError(
                f"this stream has {len(stream)} samples, got a position after "
                f"{position} of them"
            )
        self._held_out, self._targets, self._stream = held_out, targets, stream
        self._seed = seed

    def give_up(self) -> None:
        """Nothing: the user has no objects here."""

    def read(self, position: int, count: int) -> Batch:
        """Samples from a position on."""
        stream = self._stream
        numbers, tasks = stream.take(position, min(position + count, len(stream)))
        inputs = self.dataset.train.inputs.take(numbers, axis=0)
        if self._is_permuted:
            if isinstance(tasks, int):
                inputs = self.tasks[tasks].show(inputs)
            else:
                for task in np.unique(tasks):
                    rows = np.flatnonzero(tasks == task)
                    inputs[rows] = self.tasks[task].show(inputs[rows])
        return Batch(inputs, self._targets.take(numbers, axis=0), tasks)

    @property
    def length(self) -> int:
        """Number of samples of the stream."""
        return len(self._stream)

    @property
    def boundaries(self) -> list[int]:
        """Number of samples after which each task is over."""
        return self._stream.boundaries

    @property
    def imbalanced_task(self) -> int:
        """The task, or the class that drifts by, that comes more often."""
        return self._imbalanced(self._seed)

    @property
    def evaluation_sets(self) -> list[EvaluationSet]:
        """One per task: its test data, or those held out of the training data."""
        if not self._options.validation:
            test = self.dataset.test
            return [EvaluationSet(test, task.test, task) for task in self.tasks]
        return [
            EvaluationSet(
                self.dataset.train, np.intersect1d(task.train, self._held_out), task
            )
            for task in self.tasks
        ]

    def identity(self) -> dict[str, Any]:
        """The data and the options that change their order."""
        options = self._options.plain()
        options.pop("expose_task_id")
        return {
            **options,
            "cut": self._cut,
            "tasks": len(self.tasks),
            "fingerprint": self.dataset.fingerprint,
        }

    # -- what depends on the seed -----------------------------------------------------

    def _derive(self, seed: int) -> tuple[NDArray[np.int64], NDArray[Any], Stream]:
        """The samples held out, the targets of all samples, and the stream."""
        options, classes = self._options, self.dataset.num_classes
        targets = self.dataset.train.targets
        samples = np.arange(len(targets))
        held_out = self._hold_out(seed) if options.validation else samples[:0]
        if len(held_out):
            samples = np.setdiff1d(samples, held_out, assume_unique=True)
        if options.samples_per_class is not None:
            samples = subset(targets, samples, options.samples_per_class, seed)
        if options.longtail > 1:
            assert classes is not None
            samples = long_tail(targets, samples, classes, options.longtail, seed)
        told = targets
        if options.label_noise:
            assert classes is not None
            told = noisy_labels(targets, samples, classes, options.label_noise, seed)
        return held_out, told, self._order(samples, seed)

    def _order(self, samples: NDArray[np.int64], seed: int) -> Stream:
        options = self._options
        repeats = [options.epochs] * self._num_groups
        repeats[self._imbalanced(seed)] *= options.imbalance
        if self._cut == "drift":
            labels = self.dataset.train.targets[samples]
            return DriftStream(samples, labels, repeats, seed, options.width)
        tasks = [task.train for task in self.tasks]
        if len(samples) < len(self.dataset.train):
            shown = np.zeros(len(self.dataset.train), dtype=bool)
            shown[samples] = True
            tasks = [numbers[shown[numbers]] for numbers in tasks]
        stream = TaskStream(tasks, repeats, seed)
        return BlurredStream(stream, options.blur, seed) if options.blur else stream

    def _imbalanced(self, seed: int) -> int:
        chosen = self._options.imbalanced_task
        return seed % self._num_groups if chosen is None else chosen

    def _validation_groups(self) -> dict[str, NDArray[np.int64]]:
        """The training samples of each class, or of each task, by its name."""
        if self.dataset.num_classes is not None:
            labels = self.dataset.train.targets
            groups = {
                f"class {label}": np.flatnonzero(labels == label)
                for label in range(self.dataset.num_classes)
            }
        else:
            # All permuted tasks have the same samples.
            tasks = self.tasks[:1] if self._is_permuted else self.tasks
            groups = {f"task {n}": task.train for n, task in enumerate(tasks)}
        for name, samples in groups.items():
            if not _tenth(samples):
                raise ValueError(
                    f"{name} has {len(samples)} training samples, validation=True "
                    "needs 6 to hold a tenth out: give more samples, or leave it out"
                )
        return groups

    def _hold_out(self, seed: int) -> NDArray[np.int64]:
        """A tenth of the training samples of each class, or of each task."""
        random = generator(seed, Purpose.HOLD_OUT)
        held_out = np.concatenate(
            [
                random.permutation(samples)[: _tenth(samples)]
                for samples in self._groups.values()
            ]
        )
        for number, task in enumerate(self.tasks):
            if not np.isin(task.train, held_out).any():
                raise ValueError(
                    f"task {number} has {len(task.train)} training samples, none of "
                    f"which validation=True holds out with seed {seed}: give it more "
                    "samples, or leave validation out"
                )
        return held_out


def _tenth(samples: NDArray[np.int64]) -> int:
    return round(len(samples) / 10)
