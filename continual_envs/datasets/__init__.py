"""The data that streams are made of, whatever a user has.

* :mod:`~continual_envs.datasets.make` is the door: :func:`make_dataset`;
* :mod:`~continual_envs.datasets.npz` and the modules beside it each read one kind of
  data; :mod:`~continual_envs.datasets.parts` checks what they found,
  :mod:`~continual_envs.datasets.hold_out` and
  :mod:`~continual_envs.datasets.standardization` prepare it;
* :mod:`~continual_envs.datasets.named` has the data sets with a name:
  :mod:`~continual_envs.datasets.mnist` and :mod:`~continual_envs.datasets.cifar10`
  download themselves, with torchvision's addresses and checksums,
  :mod:`~continual_envs.datasets.mini_imagenet` is read from a folder of the user, and
  :mod:`~continual_envs.datasets.bundled` install with scikit-learn.
"""

from continual_envs.datasets.arrays import to_inputs
from continual_envs.datasets.base import Dataset, DatasetError, Part
from continual_envs.datasets.make import (
    build_dataset,
    is_finite,
    make_dataset,
    options_of,
    read_test_part,
)
from continual_envs.datasets.named import DATASETS, load_dataset
from continual_envs.datasets.options import DataOptions
from continual_envs.datasets.standardization import Scale, Standardization

__all__ = [
    "DATASETS",
    "DataOptions",
    "Dataset",
    "DatasetError",
    "Part",
    "Scale",
    "Standardization",
    "build_dataset",
    "is_finite",
    "load_dataset",
    "make_dataset",
    "options_of",
    "read_test_part",
    "to_inputs",
]
