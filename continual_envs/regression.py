"""Streams whose targets are numbers: :class:`RegressionStreamEnv`."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from continual_envs.environment import Info, StreamEnv

__all__ = ["RegressionStreamEnv"]


class RegressionStreamEnv(StreamEnv):
    """A stream of vectors with a number in [-1, 1] to predict.

    The reward is the negative mean squared error on the batch. ``info["target"]`` has
    the numbers of the batch that was predicted, and ``info["mask"]`` is true where it
    has one: not for padding and after a reset, where the target is -1.

    Example:
        >>> import gymnasium
        >>> import continual_envs
        >>> env = gymnasium.make("continual_envs/SplitDiabetes-v0", batch_size=8)
        >>> observation, info = env.reset(seed=0)
        >>> observation.shape, info["mask"].any()
        ((8, 10), np.False_)
        >>> _, reward, _, _, info = env.step(np.zeros(8, dtype=np.float32))
        >>> bool(np.isclose(reward, -(info["target"] ** 2).mean()))
        True
    """

    def _make_action_space(self) -> spaces.Space[Any]:
        return spaces.Box(-1, 1, self._batch_shape, np.float32)

    def _check_prediction(self, action: Any) -> NDArray[Any]:
        prediction = np.asarray(action)
        if not self._batch_shape and prediction.shape == (1,):
            prediction = prediction[0]  # TorchRL knows no numbers without a dimension
        if prediction.shape != self._batch_shape or prediction.dtype.kind not in "fiu":
            raise ValueError(
                f"the action must be numbers, shape {self._batch_shape}, got "
                f"{prediction.dtype} of shape {prediction.shape}"
            )
        if not np.isfinite(prediction).all():
            wrong = prediction[~np.isfinite(prediction)]
            raise ValueError(f"the action must be finite numbers, got {wrong.flat[0]}")
        return prediction

    def _reward(self, prediction: NDArray[Any], targets: NDArray[Any]) -> float:
        error = prediction.astype(np.float64) - targets
        return -float(np.square(error).mean())

    def _info(self, targets: NDArray[Any]) -> Info:
        known = np.ones(len(targets), dtype=bool)
        return {
            "target": self._padded(targets, -1),
            "mask": self._padded(known, False),
        }
