"""The door to all data: :func:`make_dataset` takes whatever a user has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from continual_envs.datasets.arrays import (
    Arrays,
    RawData,
    to_array,
    to_labels,
    to_task_ids,
)
from continual_envs.datasets.base import Dataset, DatasetError, Part
from continual_envs.datasets.files import expand_user
from continual_envs.datasets.hugging_face import is_hugging_face, read_hugging_face
from continual_envs.datasets.image_folder import read_image_folder
from continual_envs.datasets.named import DATASETS, load_dataset
from continual_envs.datasets.npz import read_npz
from continual_envs.datasets.options import DataOptions
from continual_envs.datasets.parts import (
    assemble,
    check_classes,
    has_labels,
    make_part,
    missing_classes,
)
from continual_envs.datasets.torch_dataset import (
    is_torch_dataset,
    read_torch_dataset,
)

__all__ = [
    "FUNCTION",
    "KINDS",
    "build_dataset",
    "is_finite",
    "make_dataset",
    "options_of",
    "read_test_part",
]

ACCEPTED = (
    "the name of a data set, a Dataset, (X, y), a torch data set, a Hugging Face data "
    "set, the path of an .npz file or of a folder of images, an iterator of samples, "
    "or a function that returns one of these"
)

_TASKS = ("task_ids", "test_task_ids")
_SPLIT = ("test_share", "test_seed", "num_classes", *_TASKS)
_ARRAYS = (*_SPLIT, "targets", "standardize")


def make_dataset(data: Any, *, test: Any = None, **options: Any) -> Dataset:
    """A data set of any kind of data.

    Args:
        data: the name of a data set (:data:`~continual_envs.datasets.DATASETS`), a
            :class:`Dataset`, ``(X, y)`` as arrays or tensors, a
            ``torch.utils.data.Dataset``, a Hugging Face data set, the path of an
            ``.npz`` file or of a folder of images, or a function without arguments
            that returns one of these.
        test: test data of any of these kinds (of a :class:`Dataset` its test part);
            else a share is held out.
        **options: see :class:`~continual_envs.datasets.DataOptions`.

    Returns:
        The data set.

    Raises:
        ValueError: if the data are wrong.
        TypeError: if there is no such option.
        DatasetError: if a file is missing or damaged.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(100, 4))
        >>> data = make_dataset((X, np.arange(100) % 5))
        >>> len(data.train), len(data.test), data.num_classes, data.train.inputs.dtype
        (80, 20, 5, dtype('float32'))
    """
    for option in options:
        if option not in DataOptions.names():
            raise TypeError(
                f"make_dataset got an unexpected keyword argument {option!r}, expected "
                f"one of {DataOptions.names()}"
            )
    return build_dataset(data, test, DataOptions(**options))


def build_dataset(data: Any, test: Any, options: DataOptions) -> Dataset:
    """What :func:`make_dataset` does, with options that are checked already.

    Args:
        data: see there.
        test: see there.
        options: the user's choices.

    Returns:
        The data set.
    """
    kind = _kind_of(data)
    if kind is None:
        raise ValueError(
            f"cannot make a data set of {_describe(data)}, expected {ACCEPTED}"
        )
    options.check_used(kind.title, kind.options)
    if kind is FUNCTION:
        return build_dataset(data(), test, options)
    if kind in (NAME, COMPLETE):
        if test is not None:
            raise ValueError(
                f"test= does not apply to {kind.title}, which has test data"
            )
        found = load_dataset(data, options.data_dir) if kind is NAME else data
        if kind is COMPLETE and found.key is None:
            _check_complete(found)
        return _with_task_ids(found, options)
    raw = kind.read(data, options)
    if test is not None:
        raw = raw._replace(test=_read_test(test, raw, options))
    if options.task_ids is not None:
        raw = raw._replace(train=raw.train._replace(task_ids=options.task_ids))
    if options.test_task_ids is not None:
        if raw.test is None:
            raise ValueError("test_task_ids needs test data, got no test=")
        raw = raw._replace(test=raw.test._replace(task_ids=options.test_task_ids))
    return assemble(raw, options)


def read_test_part(test: Any, options: DataOptions) -> tuple[Part, int | None]:
    """Test data without training data, for a live stream.

    Args:
        test: any kind of data.
        options: the user's choices.

    Returns:
        The test data, and the number of classes or ``None``.
    """
    kind = _kind_of(test)
    if kind is FUNCTION:
        return read_test_part(test(), options)
    if kind is None:
        raise ValueError(f"cannot take {_describe(test)} as test data, expected (X, y)")
    if kind in (NAME, COMPLETE):
        dataset = load_dataset(test, options.data_dir) if kind is NAME else test
        # A live stream shows samples as they come: they are judged like that, too.
        labels = dataset.num_classes is not None
        part = make_part(_test_of(dataset), labels, "_test")
        return _in_32_bits(part), dataset.num_classes
    arrays = kind.read(test, options).train
    targets = to_array(arrays.targets, "y_test")
    labels = has_labels(targets, options)
    part = make_part(arrays, labels, "_test")
    if not labels:
        return _in_32_bits(part), None
    count = int(part.targets.max()) + 1
    missing = missing_classes(part.targets, count)
    if options.num_classes is None and missing:
        raise ValueError(
            f"y_test has labels from 0 to {count - 1}, but no sample of class "
            f"{missing}: give num_classes= if these classes are still to come"
        )
    if options.num_classes is not None and count > options.num_classes:
        raise ValueError(
            f"num_classes={options.num_classes} has labels from 0 to "
            f"{options.num_classes - 1}, got {count - 1} in y_test"
        )
    return part, options.num_classes or count


def is_finite(data: Any) -> bool:
    """Whether data are of a kind that :func:`make_dataset` takes.

    Args:
        data: anything; a function is not called.

    Returns:
        Whether they are; else they may be an iterator.
    """
    return _kind_of(data) not in (None, FUNCTION)


def options_of(data: Any) -> list[str]:
    """The options that go with some data.

    Args:
        data: anything; a function is not called.

    Returns:
        Their names.

    Example:
        >>> options_of("Digits")
        ['task_ids', 'test_task_ids', 'data_dir']
    """
    kind = _kind_of(data) or FUNCTION
    return [name for name in DataOptions.names() if name in kind.options]


# -- kinds of data --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Kind:
    """A kind of data that users have.

    Args:
        title: for messages.
        accepts: whether a value is of this kind.
        read: turns it into arrays.
        options: the names of the options that it has.
    """

    title: str
    accepts: Callable[[Any], bool]
    read: Callable[[Any, DataOptions], RawData]
    options: tuple[str, ...]


def _describe(data: Any) -> str:
    if isinstance(data, str | Path):
        return repr(str(data))
    if isinstance(data, tuple | list):
        return f"a {type(data).__name__} of {len(data)}"
    return f"a {type(data).__name__}"


def _kind_of(data: Any) -> Kind | None:
    return next((kind for kind in KINDS if kind.accepts(data)), None)


def _no_arrays(data: Any, options: DataOptions) -> RawData:
    raise AssertionError("this kind is not read as arrays")


def _is_folder(data: Any) -> bool:
    return isinstance(data, Path | str) and expand_user(data).is_dir()


def _read_folder(data: str | Path, options: DataOptions) -> RawData:
    return read_image_folder(expand_user(data), options.image_size)


def _read_file(data: str | Path, options: DataOptions) -> RawData:
    path = expand_user(data)
    if not path.exists():
        names = f"; names of data sets are {', '.join(DATASETS)}"
        raise DatasetError(
            f"{str(data)!r} does not exist{'' if isinstance(data, Path) else names}"
        )
    return read_npz(path)


def _is_pair(data: Any) -> bool:
    return isinstance(data, tuple | list) and len(data) == 2


def _read_pair(data: Any, options: DataOptions) -> RawData:
    return RawData("arrays", Arrays(*data))


NAME = Kind(
    "a data set that has a name",
    lambda data: isinstance(data, str) and data in DATASETS,
    _no_arrays,
    (*_TASKS, "data_dir"),
)
COMPLETE = Kind("a Dataset", lambda data: isinstance(data, Dataset), _no_arrays, _TASKS)
FOLDER = Kind("a folder of images", _is_folder, _read_folder, (*_SPLIT, "image_size"))
FILE = Kind(
    "an .npz file", lambda data: isinstance(data, Path | str), _read_file, _ARRAYS
)
PAIR = Kind("arrays", _is_pair, _read_pair, _ARRAYS)
TORCH = Kind(
    "a torch data set",
    is_torch_dataset,
    lambda data, options: read_torch_dataset(data, options.image_size),
    (*_ARRAYS, "image_size"),
)
HUGGING_FACE = Kind(
    "a Hugging Face data set",
    is_hugging_face,
    read_hugging_face,
    (*_ARRAYS, "image_size", "input_key", "target_key"),
)
FUNCTION = Kind("a function", callable, _no_arrays, tuple(DataOptions.names()))

#: In the order in which they are tried.
KINDS = (NAME, FOLDER, FILE, COMPLETE, PAIR, TORCH, HUGGING_FACE, FUNCTION)


def _read_test(test: Any, raw: RawData, options: DataOptions) -> Arrays:
    """Test data that were given, with the labels of the training data."""
    if raw.test is not None:
        raise ValueError(f"test= does not apply: {raw.name} has test data of its own")
    kind = _kind_of(test)
    if kind is FUNCTION:
        return _read_test(test(), raw, options)
    if kind is None or kind is NAME:
        raise ValueError(f"cannot take {_describe(test)} as test data, expected (X, y)")
    if kind is COMPLETE:
        return _test_of(test)
    found = kind.read(test, options)
    if raw.class_names is None or found.class_names is None:
        return found.train
    known = list(raw.class_names)
    for name in found.class_names:
        if name not in known:
            raise ValueError(
                f"class {name!r} appears only in the test set: add training samples of "
                "it or drop its test samples"
            )
    numbers = np.array([known.index(name) for name in found.class_names])
    return found.train._replace(targets=numbers[np.asarray(found.train.targets)])


def _test_of(dataset: Dataset) -> Arrays:
    """The test part of a data set, in the units that the user gave it."""
    test, done = dataset.test, dataset.standardization
    if done is None:
        return Arrays(test.inputs, test.targets, test.task_ids)
    return Arrays(
        done.restore_inputs(test.inputs), done.restore(test.targets), test.task_ids
    )


def _in_32_bits(part: Part) -> Part:
    """A part as a stream tells it, without task ids."""
    numbers = part.targets.dtype.kind == "f"
    return Part(
        part.inputs, part.targets.astype(np.float32) if numbers else part.targets
    )


def _check_complete(dataset: Dataset) -> None:
    """Refuse a data set, put together by a user, of which no stream can be made."""
    if not len(dataset.train) or not len(dataset.test):
        raise ValueError(
            f"{dataset.name} has {len(dataset.train)} training and {len(dataset.test)} "
            "test samples: give some of both"
        )
    if dataset.train.inputs.shape[1:] != dataset.test.inputs.shape[1:]:
        raise ValueError(
            f"{dataset.name} has training inputs of shape {dataset.input_shape} and "
            f"test inputs of {dataset.test.inputs.shape[1:]}: give both the same shape"
        )
    for values, part in ((dataset.train, "training"), (dataset.test, "test")):
        if values.inputs.dtype not in (np.uint8, np.float32):
            raise ValueError(
                f"{dataset.name} has {part} inputs of type {values.inputs.dtype}: give "
                "uint8 or float32"
            )
    kind = dataset.train.targets.dtype.kind
    if dataset.num_classes is None:
        if kind != "f":
            raise ValueError(
                f"{dataset.name} has targets of type {dataset.train.targets.dtype} and "
                "num_classes=None: give num_classes for labels, or floats for numbers"
            )
        return
    if kind not in "iu":
        raise ValueError(
            f"{dataset.name} has num_classes={dataset.num_classes} and targets of type "
            f"{dataset.train.targets.dtype}: labels are whole numbers"
        )
    for values in (dataset.train, dataset.test):
        if values.targets.ndim != 1:
            raise ValueError(
                f"{dataset.name} has labels of shape {values.targets.shape}: give "
                "(samples,)"
            )
    to_labels(dataset.train.targets, dataset.name)
    check_classes(dataset.train, dataset.test, dataset.num_classes)


def _with_task_ids(dataset: Dataset, options: DataOptions) -> Dataset:
    """The data set with the task ids that were given."""

    def convert(part: Part, ids: Any, name: str) -> Part:
        if ids is None:
            return part
        return Part(part.inputs, part.targets, to_task_ids(ids, len(part), name))

    if options.task_ids is None and options.test_task_ids is None:
        return dataset
    return dataclasses.replace(
        dataset,
        train=convert(dataset.train, options.task_ids, "task_ids"),
        test=convert(dataset.test, options.test_task_ids, "test_task_ids"),
    )
