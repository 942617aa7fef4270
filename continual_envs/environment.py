"""A stream as a gymnasium environment: :class:`StreamEnv`.

An observation is a batch of inputs, an action the predictions for it, the reward how
good they are. Labels come after the predictions (test-then-train), and nothing tells
the tasks apart.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from continual_envs.benchmarks import Benchmark
from continual_envs.datasets import load_dataset
from continual_envs.evaluation import EvaluationSet
from continual_envs.options import StreamOptions
from continual_envs.rendering import picture
from continual_envs.streams import DriftStream, Segment, Stream, TaskStream, generator

__all__ = ["StreamEnv"]

Observation = NDArray[Any]
Info = dict[str, Any]

_HOLD_OUT = 2  # purpose of random numbers, beside those of the streams


class StreamEnv(gymnasium.Env[Observation, Any], abc.ABC):
    """An online stream of samples, told nothing but what a learner may know.

    ``step(prediction)`` scores the batch that was shown, tells its targets in the info
    and shows the next one. After the last batch the observation is zero. The last batch
    is padded with zeros.

    The evaluator, not the learner, may read :attr:`boundaries`,
    :attr:`evaluation_sets` and :attr:`imbalanced_task`.

    Args:
        name: of the benchmark, for messages.
        benchmark: the data set and its tasks.
        options: the user's choices.
        render_mode: ``"rgb_array"`` for :meth:`render`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        name: str,
        benchmark: Benchmark,
        options: StreamOptions,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(
                f"render_mode must be None or 'rgb_array', got {render_mode!r}"
            )
        self.name = name
        self.options = options
        self.render_mode = render_mode
        self.dataset = load_dataset(benchmark.dataset, options.data_dir)
        self.tasks = benchmark.make_tasks(self.dataset)
        self._drifts = benchmark.drifts
        # What may come more often than the rest: a task, or a class that drifts by.
        self._num_groups = len(self.tasks)
        if self._drifts:
            assert self.dataset.num_classes is not None
            self._num_groups = self.dataset.num_classes
        chosen = options.imbalanced_task
        if chosen is not None and not 0 <= chosen < self._num_groups:
            raise ValueError(
                f"imbalanced_task must be from 0 to {self._num_groups - 1}, got "
                f"{chosen}"
            )
        self._batch_shape = () if options.batch_size is None else (options.batch_size,)
        self._step_size = options.batch_size or 1
        self.observation_space = self._make_observation_space()
        self.action_space = self._make_action_space()
        self._stream: Stream | None = None
        self._seed = -1
        self._held_out = np.empty(0, dtype=np.int64)
        self._position = 0
        self._segments: list[Segment] = []
        self._targets = self.dataset.train.targets[:0]  # of the batch that is shown

    # -- spaces, scores and infos -----------------------------------------------------

    def _make_observation_space(self) -> spaces.Box:
        shape = (*self._batch_shape, *self.dataset.input_shape)
        inputs = self.dataset.train.inputs
        if inputs.dtype == np.uint8:
            return spaces.Box(0, 255, shape, np.uint8)
        both = np.concatenate([inputs, self.dataset.test.inputs])
        low, high = both.min(0), both.max(0)
        return spaces.Box(
            np.broadcast_to(np.minimum(low, 0), shape).copy(),
            np.broadcast_to(np.maximum(high, 0), shape).copy(),
            dtype=inputs.dtype.type,
        )

    @abc.abstractmethod
    def _make_action_space(self) -> spaces.Space[Any]:
        """The predictions of a batch."""

    @abc.abstractmethod
    def _check_prediction(self, action: Any) -> NDArray[Any]:
        """The predictions as an array of the batch's shape; raise if they are not."""

    @abc.abstractmethod
    def _reward(self, prediction: NDArray[Any], targets: NDArray[Any]) -> float:
        """How good predictions are of samples that are no padding."""

    @abc.abstractmethod
    def _info(self, targets: NDArray[Any]) -> Info:
        """What a learner is told of the samples it has predicted; maybe of none."""

    def _padded(self, values: NDArray[Any], fill: Any) -> NDArray[Any]:
        """Values of samples in the batch's shape, filled up."""
        if len(values) < self._step_size:
            padded = np.full(self._step_size, fill, dtype=values.dtype)
            padded[: len(values)] = values
            values = padded
        return values.reshape(self._batch_shape)

    def _told(self, segments: list[Segment], targets: NDArray[Any]) -> Info:
        """The info of samples that were predicted."""
        info = self._info(targets)
        if self.options.expose_task_id:
            tasks = [np.full(len(samples), task) for task, samples in segments]
            known = np.concatenate(tasks) if tasks else np.empty(0, dtype=np.int64)
            info["task_id"] = self._padded(known, -1)
        return info

    # -- gymnasium's interface --------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Start a stream from its beginning.

        Args:
            seed: of the order of the samples, of those held out and of the task that
                comes more often. By default a new one each time.
            options: there are none.

        Returns:
            The first batch, and the info that :meth:`step` gives, filled with -1.
        """
        if options:
            raise ValueError(f"reset has no options, got {options!r}")
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        self._seed, self._position = int(seed), 0
        self._held_out, self._stream = self._derive(int(seed))
        return self._show(), self._told([], self._targets[:0])

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Score predictions, tell the targets, show the next batch.

        Args:
            action: predictions for the last observation.

        Returns:
            The next batch, the score, whether the stream is over, ``False``, and the
            targets of the batch that was predicted.
        """
        stream = self._started()
        if self._position >= len(stream):
            raise gymnasium.error.ResetNeeded(
                "the stream is over: call reset() to start it again"
            )
        prediction = self._check_prediction(action).reshape(-1)
        targets = self._targets
        reward = self._reward(prediction[: len(targets)], targets)
        info = self._told(self._segments, targets)
        self._position += self._step_size
        observation = self._show()
        return observation, reward, self._position >= len(stream), False, info

    def render(self) -> NDArray[np.uint8] | None:
        """The current batch as one picture, shape ``(height, width, 3)``."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() needs render_mode='rgb_array' when the environment is made"
            )
            return None
        self._started()
        batch = self._filled(self._gather(self._segments))
        if batch.dtype != np.uint8:
            space = self.observation_space
            assert isinstance(space, spaces.Box)
            low = space.low.reshape(-1, batch.shape[1])[0]
            high = space.high.reshape(-1, batch.shape[1])[0]
            grey = 255 * (batch - low) / (high - low)
            batch = grey.round().astype(np.uint8)[None, None]
        return picture(batch)

    # -- the stream -------------------------------------------------------------------

    def _started(self) -> Stream:
        if self._stream is None:
            raise gymnasium.error.ResetNeeded(
                "there is no stream yet: call reset() first"
            )
        return self._stream

    def _derive(self, seed: int) -> tuple[NDArray[np.int64], Stream]:
        """What depends on the seed: the samples held out, and the stream."""
        train = np.arange(len(self.dataset.train))
        held_out = self._hold_out(seed) if self.options.validation else train[:0]
        repeats = [self.options.epochs] * self._num_groups
        repeats[self._imbalanced(seed)] *= self.options.imbalance
        if self._drifts:
            kept = np.setdiff1d(train, held_out, assume_unique=True)
            labels = self.dataset.train.targets[kept]
            width = self.options.width
            return held_out, DriftStream(kept, labels, repeats, seed, width)
        tasks = [task.train for task in self.tasks]
        if len(held_out):
            tasks = [np.setdiff1d(samples, held_out) for samples in tasks]
        return held_out, TaskStream(tasks, repeats, seed)

    def _imbalanced(self, seed: int) -> int:
        chosen = self.options.imbalanced_task
        return seed % self._num_groups if chosen is None else chosen

    def _hold_out(self, seed: int) -> NDArray[np.int64]:
        """A tenth of the training samples of each class, or of each task."""
        if self.dataset.num_classes is None:
            groups = [task.train for task in self.tasks]
        else:
            labels = self.dataset.train.targets
            groups = [
                np.flatnonzero(labels == label)
                for label in range(self.dataset.num_classes)
            ]
        random = generator(seed, _HOLD_OUT)
        return np.concatenate(
            [random.permutation(group)[: round(len(group) / 10)] for group in groups]
        )

    def _show(self) -> Observation:
        """The batch at the current position, zero after the last one."""
        stream = self._started()
        stop = min(self._position + self._step_size, len(stream))
        self._segments = stream.take(self._position, stop)
        self._targets = self._gather_targets(self._segments)
        batch = self._filled(self._gather(self._segments))
        return batch.reshape(*self._batch_shape, *self.dataset.input_shape)

    def _filled(self, batch: Observation) -> Observation:
        """A batch filled up with zeros."""
        if len(batch) == self._step_size:
            return batch
        padded = np.zeros((self._step_size, *batch.shape[1:]), dtype=batch.dtype)
        padded[: len(batch)] = batch
        return padded

    def _gather(self, segments: list[Segment]) -> Observation:
        """Inputs of samples as their tasks show them, a copy."""
        inputs = self.dataset.train.inputs
        parts = [
            self.tasks[task].show(inputs.take(samples, axis=0))
            for task, samples in segments
        ]
        return parts[0] if len(parts) == 1 else np.concatenate([inputs[:0], *parts])

    def _gather_targets(self, segments: list[Segment]) -> NDArray[Any]:
        targets = self.dataset.train.targets
        parts = [targets.take(samples) for _, samples in segments]
        return parts[0] if len(parts) == 1 else np.concatenate([targets[:0], *parts])

    # -- for the evaluator ------------------------------------------------------------

    @property
    def imbalanced_task(self) -> int:
        """The task, or the class that drifts by, that comes more often."""
        if self.options.imbalanced_task is None:
            self._started()
        return self._imbalanced(self._seed)

    @property
    def num_steps(self) -> int:
        """Number of steps until the stream is over."""
        return math.ceil(len(self._started()) / self._step_size)

    @property
    def boundaries(self) -> list[int]:
        """Number of steps after which each task has been seen whole."""
        stream = self._started()
        return [math.ceil(end / self._step_size) for end in stream.boundaries]

    @property
    def evaluation_sets(self) -> list[EvaluationSet]:
        """What to judge a learner by, for each task: test data or those held out."""
        if not self.options.validation:
            test = self.dataset.test
            return [EvaluationSet(test, task.test, task) for task in self.tasks]
        self._started()
        return [
            EvaluationSet(
                self.dataset.train, np.intersect1d(task.train, self._held_out), task
            )
            for task in self.tasks
        ]

    # -- resuming ---------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        options = self.options
        return {
            "name": self.name,
            "samples": len(self.dataset.train),
            "batch_size": options.batch_size,
            "epochs": options.epochs,
            "imbalance": options.imbalance,
            "imbalanced_task": options.imbalanced_task,
            "validation": options.validation,
            "width": options.width,
        }

    def state_dict(self) -> dict[str, Any]:
        """Where the stream is, as plain values that JSON can hold.

        Returns:
            The state, for :meth:`load_state_dict`.
        """
        self._started()
        return {
            **self._identity(),
            "seed": self._seed,
            "position": self._position,
            "np_random": self.np_random.bit_generator.state,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> tuple[Observation, Info]:
        """Continue from a :meth:`state_dict`, maybe of another process.

        An environment from ``gymnasium.make`` must be reset once before, as its
        wrappers do not know that the stream has begun.

        Args:
            state_dict: of an environment with the same options.

        Returns:
            What the last ``reset`` or ``step`` before saving returned: the batch to
            predict now, and the info.

        Raises:
            ValueError: if it is of another stream; nothing is changed then.
        """
        if not isinstance(state_dict, dict):
            raise ValueError(
                f"the state of a stream is a dictionary, got {type(state_dict)}"
            )
        for key, expected in self._identity().items():
            found = state_dict.get(key)
            if found != expected:
                raise ValueError(
                    f"cannot continue a stream with {key}={found!r} as one with "
                    f"{key}={expected!r}"
                )
        for key in ("seed", "position", "np_random"):
            if key not in state_dict:
                raise ValueError(f"this is not the state of a stream: it has no {key}")
        seed, position = state_dict["seed"], state_dict["position"]
        for key, value in (("seed", seed), ("position", position)):
            if not isinstance(value, int) or value < 0:
                raise ValueError(
                    f"the {key} of a stream is a whole number from 0 on, got {value!r}"
                )
        held_out, stream = self._derive(seed)
        last = math.ceil(len(stream) / self._step_size) * self._step_size
        if not 0 <= position <= last or position % self._step_size:
            raise ValueError(
                f"the position of this stream is a multiple of {self._step_size} from "
                f"0 to {last}, got {position}"
            )
        try:
            self.np_random.bit_generator.state = state_dict["np_random"]
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"np_random is not a generator's state: {error}"
            ) from error
        self._seed, self._position = seed, position
        self._held_out, self._stream = held_out, stream
        before = max(position - self._step_size, 0)
        told = stream.take(before, min(position, len(stream)))
        return self._show(), self._told(told, self._gather_targets(told))
