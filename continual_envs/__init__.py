"""Online streams of the paper's benchmarks or of one's own data, and control tasks.

Importing this package registers the ids, so that

>>> import gymnasium
>>> import continual_envs
>>> env = gymnasium.make("continual_envs/SplitDigits-v0", batch_size=32, imbalance=10)
>>> observation, info = env.reset(seed=0)
>>> observation.shape
(32, 1, 8, 8)

works; ``gymnasium.make("continual_envs:continual_envs/SplitDigits-v0")`` imports it.
:func:`make_stream` makes a stream of any data.

In this room, from the data to the environment: :mod:`~continual_envs.datasets`,
:mod:`~continual_envs.tasks`, :mod:`~continual_envs.shapes`,
:mod:`~continual_envs.streams`, :mod:`~continual_envs.dataset_source`,
:mod:`~continual_envs.environment` with its two kinds
:mod:`~continual_envs.classification` and :mod:`~continual_envs.regression`,
:mod:`~continual_envs.factory` and :mod:`~continual_envs.registration`. Beside them
:mod:`~continual_envs.cartpole` and :mod:`~continual_envs.control` have the control
tasks.
"""

try:
    import gymnasium as _gymnasium  # noqa: F401
    import PIL as _pillow  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        f"continual_envs needs {error.name}: pip install 'info-replay[streams]'"
    ) from error

from continual_envs.benchmarks import BENCHMARKS
from continual_envs.classification import ClassificationStreamEnv
from continual_envs.control import TaskSequenceEnv
from continual_envs.datasets import (
    DATASETS,
    DataOptions,
    Dataset,
    DatasetError,
    Part,
    Standardization,
    load_dataset,
    make_dataset,
)
from continual_envs.environment import StreamEnv
from continual_envs.evaluation import EvaluationSet
from continual_envs.factory import make_stream
from continual_envs.options import CUTS, StreamOptions
from continual_envs.registration import CONTROL_IDS, IDS, STREAM_ID, register_all
from continual_envs.regression import RegressionStreamEnv

__all__ = [
    "BENCHMARKS",
    "CONTROL_IDS",
    "CUTS",
    "DATASETS",
    "IDS",
    "STREAM_ID",
    "ClassificationStreamEnv",
    "DataOptions",
    "Dataset",
    "DatasetError",
    "EvaluationSet",
    "Part",
    "RegressionStreamEnv",
    "Standardization",
    "StreamEnv",
    "StreamOptions",
    "TaskSequenceEnv",
    "load_dataset",
    "make_dataset",
    "make_stream",
]

register_all()
