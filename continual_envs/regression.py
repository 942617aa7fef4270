"""Streams whose targets are numbers: :class:`RegressionStreamEnv`."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from continual_envs.environment import Info, StreamEnv, value_range

__all__ = ["RegressionStreamEnv"]


class RegressionStreamEnv(StreamEnv):
    """A stream of samples with a number, or ``K`` numbers, to predict.

    The action space has the range of the targets, those of the test data included. The
    reward is the negative mean squared error on the batch. ``info["target"]`` has
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
        train, test = self.dataset.train.targets, self.dataset.test.targets
        shape = self._batch_shape + train.shape[1:]
        low, high = value_range(train, test)
        return spaces.Box(
            np.broadcast_to(low, shape).copy(),
            np.broadcast_to(high, shape).copy(),
            dtype=np.float32,
        )

    def _check_prediction(self, action: Any) -> NDArray[Any]:
        prediction = np.asarray(action)
        shape = self.action_space.shape
        if not shape and prediction.shape == (1,):
            prediction = prediction[0]  # TorchRL knows no numbers without a dimension
        if prediction.shape != shape or prediction.dtype.kind not in "fiu":
            raise ValueError(
                f"the action must be numbers, shape {shape}, got "
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
