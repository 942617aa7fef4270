"""Streams whose targets are classes: :class:`ClassificationStreamEnv`."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from continual_envs.environment import Info, StreamEnv

__all__ = ["ClassificationStreamEnv"]


class ClassificationStreamEnv(StreamEnv):
    """A stream of samples to classify; the reward is the accuracy on the batch.

    ``info["label"]`` has the labels of the batch that was predicted, -1 for padding and
    after a reset.

    Example:
        >>> import gymnasium
        >>> import continual_envs
        >>> env = gymnasium.make("continual_envs/SplitDigits-v0", batch_size=4)
        >>> observation, info = env.reset(seed=0)
        >>> observation.shape, observation.dtype, info["label"]
        ((4, 1, 8, 8), dtype('uint8'), array([-1, -1, -1, -1]))
        >>> _, reward, terminated, _, info = env.step(np.array([0, 1, 0, 1]))
        >>> bool(reward == (info["label"] == [0, 1, 0, 1]).mean())
        True
    """

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        assert self.dataset.num_classes is not None
        return self.dataset.num_classes

    def _make_action_space(self) -> spaces.Space[Any]:
        if self.options.batch_size is None:
            return spaces.Discrete(self.num_classes)
        return spaces.MultiDiscrete([self.num_classes] * self.options.batch_size)

    def _check_prediction(self, action: Any) -> NDArray[Any]:
        prediction = np.asarray(action)
        if prediction.shape != self._batch_shape or prediction.dtype.kind not in "iu":
            raise ValueError(
                "the action must be classes as whole numbers, shape "
                f"{self._batch_shape}, got {prediction.dtype} of shape "
                f"{prediction.shape}"
            )
        # Seen as unsigned, a negative number is a large one.
        unsigned = prediction.astype(np.int64, copy=False).view(np.uint64)
        if unsigned.max() >= self.num_classes:
            raise ValueError(
                f"the action must be classes from 0 to {self.num_classes - 1}, got "
                f"values from {prediction.min()} to {prediction.max()}"
            )
        return prediction

    def _reward(self, prediction: NDArray[Any], targets: NDArray[Any]) -> float:
        return int(np.count_nonzero(prediction == targets)) / len(targets)

    def _info(self, targets: NDArray[Any]) -> Info:
        return {"label": self._padded(targets, -1)}
