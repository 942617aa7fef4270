"""What a run asks of its learner, and what learners share: :class:`Learner`."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torchrl.data import TensorDictReplayBuffer

from agents.runs.stopwatch import Stopwatch

__all__ = ["DivergenceError", "Learner", "without_padding"]


class DivergenceError(RuntimeError):
    """The network's numbers have grown beyond what can be computed with."""

    def __init__(self, reason: object) -> None:
        super().__init__(
            f"learning has diverged: {reason}. A smaller learning_rate, alpha or beta "
            "may help"
        )


class Learner(Protocol):
    """Predicts a batch, is told its targets, and learns from them.

    Attributes:
        memory: what it replays from, ``None`` for no replay.
        stopwatch: where its time goes.
    """

    memory: TensorDictReplayBuffer | None
    stopwatch: Stopwatch

    def act(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Predictions for a batch that :meth:`learn` will be given next."""

    def learn(
        self,
        observation: NDArray[Any],
        target: NDArray[Any],
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        """Learn from a batch whose targets are known now.

        Raises:
            DivergenceError: if training diverges.
        """

    def predict(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Predictions for an evaluation; what is learned does not depend on it."""

    def check_finite(self) -> None:
        """Look whether the network can still be learned with; waits for the device.

        Raises:
            DivergenceError: if it cannot.
        """

    def state_dict(self) -> dict[str, Any]:
        """Everything that later steps depend on, as plain values and tensors."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`."""


def without_padding(
    observation: NDArray[Any],
    target: NDArray[Any],
    mask: NDArray[np.bool_] | None,
    num_classes: int | None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The samples of a batch that count.

    Args:
        observation: inputs, shape ``(n, ...)``.
        target: labels or numbers, shape ``(n,)``.
        mask: which of them are not padding; by default labels that are not -1, and all
            numbers.
        num_classes: number of classes, ``None`` for regression.

    Returns:
        Observation and target; the same arrays if there is no padding.

    Raises:
        ValueError: if shapes, types or labels are wrong.

    Example:
        >>> inputs, labels = np.zeros((4, 2)), np.array([1, 0, 2, -1])
        >>> without_padding(inputs, labels, None, num_classes=3)[1]
        array([1, 0, 2])
    """
    for name, values in (("target", target), ("mask", mask)):
        if values is not None and values.shape != observation.shape[:1]:
            raise ValueError(
                f"{name} must have the shape {observation.shape[:1]}, got "
                f"{values.shape}"
            )
    if num_classes is None:
        if target.dtype != np.float32:
            raise ValueError(f"target must be float32, got {target.dtype}")
    elif target.dtype != np.int64 or (
        target.size and not -1 <= target.min() <= target.max() < num_classes
    ):
        raise ValueError(
            f"target must be int64 labels from 0 to {num_classes - 1}, or -1 for "
            f"padding, got {target.dtype} from {target.min()} to {target.max()}"
        )
    if mask is None and num_classes is not None:
        mask = target >= 0
    if mask is None or mask.all():
        return observation, target
    return observation[mask], target[mask]
