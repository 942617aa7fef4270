"""A stream as a gymnasium environment: :class:`StreamEnv`.

An observation is a batch of inputs, an action the predictions for it, the reward how
good they are. Labels come after the predictions (test-then-train), and nothing tells
the tasks apart.
"""

from __future__ import annotations

import abc
import copy
import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from continual_envs.datasets import Dataset
from continual_envs.evaluation import EvaluationSet
from continual_envs.options import StreamOptions
from continual_envs.rendering import gray_levels, picture
from continual_envs.source import Batch, Source
from continual_envs.stream_state import check_state
from continual_envs.tasks import Task

__all__ = ["StreamEnv", "value_range"]

Observation = NDArray[Any]
Info = dict[str, Any]


class StreamEnv(gymnasium.Env[Observation, Any], abc.ABC):
    """An online stream of samples, told nothing but what a learner may know.

    ``step(prediction)`` scores the batch that was shown, tells its targets in the info
    and shows the next one. After the last batch the observation is zero. The last batch
    is padded with zeros.

    The evaluator, not the learner, may read :attr:`boundaries`,
    :attr:`evaluation_sets` and :attr:`imbalanced_task`.

    Args:
        name: of the stream, for messages.
        source: where the batches come from.
        options: the user's choices.
        render_mode: ``"rgb_array"`` for :meth:`render`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        name: str,
        source: Source,
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
        self._source = source
        self._batch_shape = () if options.batch_size is None else (options.batch_size,)
        self._step_size = options.batch_size or 1
        self.observation_space = self._make_observation_space()
        self.action_space = self._make_action_space()
        self._seed: int | None = None
        self._position = 0
        self._batch = self._nothing()  # what is shown

    @property
    def dataset(self) -> Dataset:
        """The data; a live stream has no training part."""
        return self._source.dataset

    @property
    def tasks(self) -> list[Task]:
        """The tasks, none of a live stream."""
        return self._source.tasks

    # -- spaces, scores and infos -----------------------------------------------------

    def _make_observation_space(self) -> spaces.Box:
        shape = (*self._batch_shape, *self.dataset.input_shape)
        train, test = self.dataset.train.inputs, self.dataset.test.inputs
        if train.dtype == np.uint8:
            return spaces.Box(0, 255, shape, np.uint8)
        low, high = value_range(train, test)
        if any(task.permutation is not None for task in self.tasks):
            low, high = low.min(), high.max()  # any value may be anywhere
        return spaces.Box(
            np.broadcast_to(np.minimum(low, 0), shape).copy(),
            np.broadcast_to(np.maximum(high, 0), shape).copy(),
            dtype=train.dtype.type,
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
        shape = values.shape[1:]
        if len(values) < self._step_size:
            padded = np.full((self._step_size, *shape), fill, dtype=values.dtype)
            padded[: len(values)] = values
            values = padded
        return values.reshape(self._batch_shape + shape)

    def _told(self, batch: Batch) -> Info:
        """The info of samples that were predicted."""
        info = self._info(batch.targets)
        if self.options.expose_task_id:
            known = np.empty(len(batch.targets), dtype=np.int64)
            known[:] = batch.tasks
            info["task_id"] = self._padded(known, -1)
        return info

    def _nothing(self) -> Batch:
        """A batch without samples."""
        train = self.dataset.train
        return Batch(train.inputs[:0], train.targets[:0], 0)

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
        self._source.start(int(seed))
        self._seed, self._position = int(seed), 0
        self._batch = self._source.read(0, self._step_size)
        return self._observation(), self._told(self._nothing())

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Score predictions, tell the targets, show the next batch.

        Args:
            action: predictions for the last observation.

        Returns:
            The next batch, the score, whether the stream is over, ``False``, and the
            targets of the batch that was predicted.
        """
        self._check_started()
        predicted = self._batch
        count = len(predicted.targets)
        if not count:
            raise gymnasium.error.ResetNeeded(
                "the stream is over: call reset() to start it again"
            )
        prediction = self._check_prediction(action)
        if not self._batch_shape:
            prediction = prediction[None]
        reward = self._reward(prediction[:count], predicted.targets)
        following = self._source.read(self._position + self._step_size, self._step_size)
        self._position += self._step_size
        self._batch = following
        is_over = not len(following.targets)
        return self._observation(), reward, is_over, False, self._told(predicted)

    def render(self) -> NDArray[np.uint8] | None:
        """The current batch as one picture, shape ``(height, width, 3)``."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() needs render_mode='rgb_array' when the environment is made"
            )
            return None
        self._check_started()
        batch = self._filled(self._batch.inputs)
        space = self.observation_space
        assert isinstance(space, spaces.Box)
        of_one = len(self._batch_shape) * (0,)
        low, high = space.low[of_one], space.high[of_one]
        if not len(self.dataset.train):  # a live stream: nobody knows its range
            low, high = value_range(batch, batch)
        return picture(gray_levels(batch, low, high))

    # -- the stream -------------------------------------------------------------------

    def _check_started(self) -> None:
        if self._seed is None:
            raise gymnasium.error.ResetNeeded(
                "there is no stream yet: call reset() first"
            )

    def _observation(self) -> Observation:
        """The current batch, zero after the last one."""
        batch = self._filled(self._batch.inputs)
        if self.render_mode is not None and batch is self._batch.inputs:
            batch = batch.copy()  # a learner may write into it before it is rendered
        return batch.reshape(*self._batch_shape, *self.dataset.input_shape)

    def _filled(self, batch: Observation) -> Observation:
        """A batch filled up with zeros."""
        if len(batch) == self._step_size:
            return batch
        padded = np.zeros((self._step_size, *batch.shape[1:]), dtype=batch.dtype)
        padded[: len(batch)] = batch
        return padded

    # -- for the evaluator ------------------------------------------------------------

    @property
    def imbalanced_task(self) -> int | None:
        """The task, or the class that drifts by, that comes more often."""
        if self.options.imbalanced_task is None:
            self._check_started()
        return self._source.imbalanced_task

    @property
    def num_steps(self) -> int | None:
        """Number of steps until the stream is over, ``None`` if nobody knows."""
        self._check_started()
        length = self._source.length
        return None if length is None else math.ceil(length / self._step_size)

    @property
    def boundaries(self) -> list[int]:
        """Number of steps after which each task has been seen whole."""
        self._check_started()
        return [math.ceil(end / self._step_size) for end in self._source.boundaries]

    @property
    def evaluation_sets(self) -> list[EvaluationSet]:
        """What to judge a learner by, for each task: test data or those held out."""
        if self.options.validation:
            self._check_started()
        return self._source.evaluation_sets

    # -- resuming ---------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        return {"name": self.name, **self._source.identity()}

    def state_dict(self) -> dict[str, Any]:
        """Where the stream is, as plain values that JSON can hold.

        Returns:
            The state, for :meth:`load_state_dict`.
        """
        self._check_started()
        return {
            **self._identity(),
            **self._source.state(),
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
        return self.prepare_load(state_dict)()

    def prepare_load(
        self, state_dict: dict[str, Any]
    ) -> Callable[[], tuple[Observation, Info]]:
        """Do all of :meth:`load_state_dict` that may fail, and change nothing.

        Args:
            state_dict: of an environment with the same options.

        Returns:
            A function that does the rest, which cannot fail.

        Raises:
            ValueError: if it is of another stream.
        """
        saved = check_state(state_dict, self._identity(), self._step_size)
        seed, position, random = saved
        source = copy.copy(self._source)
        before = max(position - self._step_size, 0)
        told = self._nothing()
        try:
            source.restore(seed, before, state_dict)
            if position:
                told = source.read(before, self._step_size)
            batch = source.read(position, self._step_size)
        except BaseException:
            source.give_up()
            raise

        def load() -> tuple[Observation, Info]:
            self._source, self._batch = source, batch
            self._seed, self._position = seed, position
            self.np_random = random
            return self._observation(), self._told(told)

        return load


def value_range(
    train: NDArray[Any], test: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The least and the greatest value of each column of a data set.

    Args:
        train: shape ``(n, ...)``.
        test: shape ``(m, ...)``.

    Returns:
        Two arrays of shape ``(...)``. Where a column is constant, the greatest is one
        more; without training data, as of a live stream, any finite number is possible.
    """
    if not len(train):
        most = np.full(train.shape[1:], np.finfo(train.dtype).max, dtype=train.dtype)
        return -most, most
    parts = [part for part in (train, test) if len(part)]
    low = np.minimum.reduce([part.min(0) for part in parts])
    high = np.maximum.reduce([part.max(0) for part in parts])
    return low, np.where(low == high, low + 1, high).astype(train.dtype)
