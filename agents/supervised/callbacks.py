"""What a user's code is told along a run: :class:`Callback`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from agents.runs.folder import RunFolder
from agents.supervised.config import ExperimentConfig
from agents.supervised.learner import Learner
from agents.supervised.snapshots import write_snapshot
from continual_envs import StreamEnv
from info_replay.registry import Registry

__all__ = [
    "CALLBACKS",
    "Callback",
    "KeepMemories",
    "Run",
    "TaskStarts",
    "make_callbacks",
]

#: Callbacks by name; ``"module:Class"`` finds any.
CALLBACKS: Registry[Any] = Registry("callback", "info_replay.callbacks")


class Run(Protocol):
    """What a callback sees: an :class:`~agents.supervised.experiment.Experiment`.

    Attributes:
        config: the settings.
        agent: the learner, with its network and memory.
        env: the stream.
        folder: of its files; ``None`` if nothing is kept.
        step: steps so far.
        num_steps: steps of the whole run, ``None`` of a stream without an end.
    """

    config: ExperimentConfig
    agent: Learner
    env: StreamEnv
    folder: RunFolder | None
    step: int
    num_steps: int | None

    def save(self) -> None:
        """Write a checkpoint."""


class Callback:
    """Called along a run; override what you need.

    A callback may look at everything, ``experiment.agent.memory`` for instance. It is
    not part of a checkpoint: a resumed run calls it from where it goes on.

    Example:
        >>> from agents import train
        >>> class Watch(Callback):
        ...     def on_evaluation(self, experiment, scores):
        ...         print(experiment.step, len(experiment.agent.memory), len(scores))
        >>> run = train("SplitDigits", policy="rs", steps=4, evaluations=2,
        ...             callbacks=[Watch()])
        0 0 5
        2 50 5
        4 50 5
    """

    def on_step(self, experiment: Run, reward: float) -> None:
        """A batch was predicted and learned from.

        Args:
            experiment: the run.
            reward: of the predictions.
        """

    def on_evaluation(self, experiment: Run, scores: list[float]) -> None:
        """Every task was scored.

        Args:
            experiment: the run.
            scores: of each task.
        """


class TaskStarts(Callback):
    """Tells an oracle in memory where tasks begin (Sec. 3.1, "update timing")."""

    def on_step(self, experiment: Run, reward: float) -> None:
        """A task may be over."""
        if experiment.step in experiment.env.boundaries:
            self._start_task(experiment)

    def on_evaluation(self, experiment: Run, scores: list[float]) -> None:
        """The first evaluation is before the first step."""
        if experiment.step == 0:
            self._start_task(experiment)

    def _start_task(self, experiment: Run) -> None:
        writer: Any = experiment.agent.memory.writer  # type: ignore[union-attr]
        writer.start_task()


class KeepMemories(Callback):
    """Keeps what is in memory at each evaluation, for reports."""

    def on_evaluation(self, experiment: Run, scores: list[float]) -> None:
        """The memory may have changed."""
        memory = experiment.agent.memory
        if experiment.folder is not None and memory is not None and len(memory):
            write_snapshot(experiment.folder, experiment.step, memory)


def make_callbacks(
    given: Iterable[Callback] | Callback, config: ExperimentConfig
) -> list[Callback]:
    """All callbacks of a run.

    Args:
        given: in Python, one or several.
        config: which may name one more, and an oracle that is told of tasks.

    Raises:
        ValueError: if one has not the methods of :class:`Callback`.
    """
    callbacks = [given] if isinstance(given, Callback) else [*given]
    if config.callback is not None:
        callbacks.append(CALLBACKS.get(config.callback)())
    # Before a callback saves: a run that is resumed then does not evaluate again.
    if config.snapshots:
        callbacks.insert(0, KeepMemories())
    if config.update_delay is not None:
        callbacks.insert(0, TaskStarts())
    for each in callbacks:
        told = hasattr(each, "on_step") and hasattr(each, "on_evaluation")
        if not told or isinstance(each, type):
            raise ValueError(
                f"a callback must have on_step and on_evaluation, as agents.Callback, "
                f"got {each!r}"
            )
    return callbacks
