"""The paper's benchmarks as gymnasium online streams, and sequences of control tasks.

Importing this package registers the ids, so that

>>> import gymnasium
>>> import continual_envs
>>> env = gymnasium.make("continual_envs/SplitDigits-v0", batch_size=32, imbalance=10)
>>> observation, info = env.reset(seed=0)
>>> observation.shape
(32, 1, 8, 8)

works; ``gymnasium.make("continual_envs:continual_envs/SplitDigits-v0")`` imports it.

In this room, from the data to the environment: :mod:`~continual_envs.datasets`,
:mod:`~continual_envs.tasks`, :mod:`~continual_envs.streams`,
:mod:`~continual_envs.environment` with its two kinds
:mod:`~continual_envs.classification` and :mod:`~continual_envs.regression`, and
:mod:`~continual_envs.registration`. Beside them :mod:`~continual_envs.cartpole` and
:mod:`~continual_envs.control` have the control tasks.
"""

from continual_envs.benchmarks import BENCHMARKS
from continual_envs.classification import ClassificationStreamEnv
from continual_envs.control import TaskSequenceEnv
from continual_envs.datasets import DatasetError, load_dataset
from continual_envs.environment import StreamEnv
from continual_envs.evaluation import EvaluationSet
from continual_envs.options import StreamOptions
from continual_envs.registration import CONTROL_IDS, IDS, make_stream, register_all
from continual_envs.regression import RegressionStreamEnv

__all__ = [
    "BENCHMARKS",
    "CONTROL_IDS",
    "IDS",
    "ClassificationStreamEnv",
    "DatasetError",
    "EvaluationSet",
    "RegressionStreamEnv",
    "StreamEnv",
    "StreamOptions",
    "TaskSequenceEnv",
    "load_dataset",
    "make_stream",
]

register_all()
