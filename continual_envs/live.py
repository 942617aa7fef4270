"""Batches from an iterator that may never end: :class:`LiveSource`."""

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs.checks import is_whole
from continual_envs.datasets import DataOptions, Dataset, Part, read_test_part
from continual_envs.datasets.arrays import to_array, to_inputs, to_labels, to_numbers
from continual_envs.datasets.base import SampleError
from continual_envs.datasets.images import Rows
from continual_envs.evaluation import EvaluationSet
from continual_envs.feed import Feed
from continual_envs.options import StreamOptions
from continual_envs.source import Batch, Source
from continual_envs.tasks import Task

__all__ = ["LIVE_OPTIONS", "LiveSource"]

#: Options that live streams have.
LIVE_OPTIONS = ("batch_size", "num_classes", "targets", "image_size", "batched")


class LiveSource(Source):
    """Samples of an iterator as they come, each checked on arrival.

    Args:
        feed: yields pairs of an input and a target, or of batches of these.
        test: test data, ``None`` for none.
        options: the user's choices of the stream.
        data_options: the user's choices of the data.

    Example:
        >>> def samples():
        ...     for number in itertools.count():
        ...         yield np.full(3, number, dtype=np.float32), number % 2
        >>> classes = DataOptions(num_classes=2)
        >>> source = LiveSource(Feed(samples), None, StreamOptions(), classes)
        >>> source.start(seed=0)
        >>> source.read(0, 4).targets.tolist()
        [0, 1, 0, 1]
    """

    def __init__(
        self,
        feed: Feed,
        test: Any,
        options: StreamOptions,
        data_options: DataOptions,
    ) -> None:
        data_options.check_used("a live stream", LIVE_OPTIONS)
        self._feed = feed
        self._options = data_options
        self._batch_size = options.batch_size
        if test is None:
            dataset = self._look()
        else:
            part, num_classes = read_test_part(test, data_options)
            nothing = Part(part.inputs[:0], part.targets[:0])
            dataset = Dataset("live", nothing, part, num_classes)
        super().__init__(dataset)
        self._samples: Iterable[Any] = ()
        self._iterator: Iterator[Any] = iter(())
        self._arrived: deque[tuple[NDArray[Any], NDArray[Any]]] = deque()
        self._position = 0  # of the next sample that is read
        self._received = 0  # samples that the iterator has yielded
        self._snapshots: deque[tuple[int, Any]] = deque()
        self._error: Exception | None = None
        # The iterator and its state when restore() was called.
        self._before: tuple[Any, Any] | None = None

    def _look(self) -> Dataset:
        """What samples look like, from the first one."""
        inputs, targets = self._arrays([self._feed.peek()], 0)
        num_classes = self._options.num_classes
        if num_classes is None and self._options.targets != "numbers":
            if targets.dtype.kind != "f" or self._options.targets == "labels":
                raise ValueError(
                    "a live stream of labels needs num_classes=, or test data as test=;"
                    f" its first target is {targets[0]}"
                )
        inputs = to_inputs(inputs, "the first X of the stream")
        if num_classes is None:
            targets = to_numbers(targets).astype(np.float32)
        else:
            targets = np.empty(0, dtype=np.int64)
        nothing = Part(inputs[:0], targets[:0])
        return Dataset("live", nothing, nothing, num_classes)

    # -- reading ----------------------------------------------------------------------

    def start(self, seed: int) -> None:
        """Start the iterator."""
        self.restore(seed, 0, {})

    def read(self, position: int, count: int) -> Batch:
        """The next samples; a live stream can only be read in order."""
        assert position == self._position, "a live stream is read in order"
        if self._error is not None:
            raise self._error
        try:
            self._receive(position + count)
        except Exception as error:
            self._error = error  # samples are lost: only a reset helps
            raise
        inputs, targets = self._take(count)
        self._position += count
        # When a stream goes on, the batch before the one that is shown is told again.
        while len(self._snapshots) > 1 and self._snapshots[1][0] <= position - count:
            self._snapshots.popleft()
        return Batch(inputs, targets, 0)

    def _receive(self, until: int) -> None:
        """Let samples arrive until there are enough, or the iterator ends."""
        while self._received < until:
            self._remember()
            many = 1 if self._options.batched else until - self._received
            items = list(itertools.islice(self._iterator, many))
            if not items:
                return
            try:
                arrays = self._arrays(items, self._received)
                self._arrived.append(self._checked(*arrays, self._received))
            except ValueError as error:  # not one of the iterator's own
                raise SampleError(str(error)) from error
            self._received += len(self._arrived[-1][1])

    def _take(self, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Samples that have arrived, in arrays of their own."""
        train = self.dataset.train
        inputs, targets = [train.inputs[:0]], [train.targets[:0]]
        while count and self._arrived:
            x, y = self._arrived.popleft()
            if len(y) > count:
                self._arrived.appendleft((x[count:], y[count:]))
                x, y = x[:count], y[:count]
            inputs.append(x)
            targets.append(y)
            count -= len(y)
        return np.concatenate(inputs), np.concatenate(targets)

    def _arrays(
        self, items: list[Any], first: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Inputs and targets of samples, or of one batch."""
        for number, item in enumerate(items):
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise ValueError(
                    f"what arrived after {first + number} samples is a "
                    f"{type(item).__name__}, expected a pair (input, target)"
                )
        if self._options.batched:
            x, y = (
                np.array(to_array(v, n)) for v, n in zip(items[0], "Xy", strict=True)
            )
            if not x.ndim or x.shape[:1] != y.shape[:1]:
                raise ValueError(
                    f"the batch after {first} samples has inputs of shape {x.shape} "
                    f"and targets of {y.shape}: give one target per sample"
                )
            return x, y
        inputs = Rows(len(items), self._options.image_size, first)
        for row, (x, _) in enumerate(items):
            inputs.put(row, x)
        targets = [
            to_array(y, f"the target of sample {first + row}")
            for row, (_, y) in enumerate(items)
        ]
        if len({target.shape for target in targets}) > 1:
            raise ValueError(
                f"the targets of samples {first} to {first + len(items) - 1} have "
                "different shapes: give all the same shape"
            )
        return inputs.array, np.stack(targets)

    def _checked(
        self, inputs: NDArray[Any], targets: NDArray[Any], first: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Samples as the stream shows them; refuses those of another kind."""
        name = "of the stream"
        x = to_inputs(inputs, f"X {name}", first)
        expected = self.dataset.train.inputs
        if x.shape[1:] != expected.shape[1:] or x.dtype != expected.dtype:
            raise ValueError(
                f"sample {first} of the stream is {x.dtype} of shape {x.shape[1:]}, "
                f"expected {expected.dtype} of shape {expected.shape[1:]}"
            )
        classes = self.dataset.num_classes
        if classes is None:
            y = to_numbers(targets, f"y {name}", first).astype(np.float32)
            shape = self.dataset.train.targets.shape[1:]
            if y.shape[1:] != shape:
                raise ValueError(
                    f"the target of sample {first} of the stream has the shape "
                    f"{y.shape[1:]}, expected {shape}"
                )
            return x, y
        if targets.dtype.kind == "f" and self._options.targets != "labels":
            raise ValueError(
                f"the labels of the stream must be whole numbers, got "
                f'{targets.flat[0]} at sample {first}: y.astype("int64")'
            )
        labels = to_labels(targets, f"y {name}", first)
        if labels.max() >= classes:
            row = int(np.flatnonzero(labels >= classes)[0])
            raise ValueError(
                f"sample {first + row} of the stream has the label {labels[row]}, "
                f"expected one from 0 to {classes - 1}: num_classes= gives their number"
            )
        return x, labels

    # -- for the evaluator ------------------------------------------------------------

    @property
    def length(self) -> None:
        """Nobody knows it."""
        return None

    @property
    def boundaries(self) -> list[int]:
        """None are known."""
        return []

    @property
    def imbalanced_task(self) -> None:
        """There is none."""
        return None

    @property
    def evaluation_sets(self) -> list[EvaluationSet]:
        """One with all test data, or none."""
        test = self.dataset.test
        if not len(test):
            return []
        task = Task(np.empty(0, dtype=np.int64), np.arange(len(test)))
        return [EvaluationSet(test, task.test, task)]

    # -- resuming ---------------------------------------------------------------------

    def identity(self) -> dict[str, Any]:
        """The kind of samples and the test data."""
        return {
            "batch_size": self._batch_size,
            "batched": self._options.batched,
            "fingerprint": self.dataset.fingerprint,
        }

    def _remember(self) -> None:
        """Keep the state of a source that has one, before it yields."""
        if hasattr(self._samples, "state_dict"):
            self._snapshots.append((self._received, self._samples.state_dict()))

    def state(self) -> dict[str, Any]:
        """A state of the iterator from which the batch that is told can be reached."""
        if not self._snapshots:
            return {}
        received, state = self._snapshots[0]
        return {"source": {"received": received, "state": state}}

    def restore(self, seed: int, position: int, state: dict[str, Any]) -> None:
        """Start the iterator and leave samples out up to a position."""
        self._before = None
        samples = self._feed.start(seed)
        received, saved = 0, state.get("source")
        if state and (saved is not None) != hasattr(samples, "state_dict"):
            raise ValueError("the stream and its state must both have a source's state")
        if saved is not None:
            received = _check_saved(saved, position)
            self._before = samples, copy.deepcopy(samples.state_dict())
            samples.load_state_dict(saved["state"])
        iterator = iter(samples)
        arrived: deque[tuple[NDArray[Any], NDArray[Any]]] = deque()
        while received < position:
            item = next(iterator, None)
            if item is None:
                raise ValueError(
                    f"the stream ended after {received} samples, it cannot go on after "
                    f"{position}"
                )
            if not self._options.batched:
                received += 1
                continue
            x, y = self._arrays([item], received)
            received += len(y)
            if received > position:
                rest = slice(len(y) - (received - position), None)
                arrived.append(self._checked(x[rest], y[rest], position))
        self._samples, self._iterator, self._arrived = samples, iterator, arrived
        self._position, self._received, self._error = position, received, None
        # Not cleared: a copy of this source that fails must not touch the original.
        self._snapshots = deque()
        if saved is not None:
            self._snapshots.append((saved["received"], saved["state"]))

    def give_up(self) -> None:
        """Put the iterator's own state back."""
        if self._before is not None:
            samples, state = self._before
            samples.load_state_dict(state)


def _check_saved(saved: Any, position: int) -> int:
    """How many samples a source had yielded when its state was saved."""
    if not isinstance(saved, dict) or not {"received", "state"} <= saved.keys():
        raise ValueError("this is not the state of a live stream's source")
    received = saved["received"]
    if not is_whole(received) or not 0 <= received <= position:
        raise ValueError(
            f"the source must have yielded 0 to {position} samples, got "
            f"{received!r:.40}"
        )
    return int(received)
