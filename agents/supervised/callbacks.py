"""What a user's code is told along a run: :class:`Callback`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from info_replay.registry import Registry

if TYPE_CHECKING:
    from agents.supervised.experiment import Experiment

__all__ = ["CALLBACKS", "Callback"]

#: Callbacks by name; ``"module:Class"`` finds any.
CALLBACKS: Registry[Any] = Registry("callback", "info_replay.callbacks")


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

    def on_step(self, experiment: Experiment, reward: float) -> None:
        """A batch was predicted and learned from.

        Args:
            experiment: the run.
            reward: of the predictions.
        """

    def on_evaluation(self, experiment: Experiment, scores: list[float]) -> None:
        """Every task was scored.

        Args:
            experiment: the run.
            scores: of each task.
        """
