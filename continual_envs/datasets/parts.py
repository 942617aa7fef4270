"""From raw arrays to a checked data set: :func:`assemble`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs.datasets.arrays import (
    Arrays,
    RawData,
    first_rows,
    to_array,
    to_inputs,
    to_labels,
    to_numbers,
    to_task_ids,
)
from continual_envs.datasets.base import Dataset, Part
from continual_envs.datasets.hold_out import hold_out
from continual_envs.datasets.options import DataOptions
from continual_envs.datasets.standardization import Scale, Standardization

__all__ = ["assemble", "check_classes", "has_labels", "make_part", "missing_classes"]


def assemble(raw: RawData, options: DataOptions) -> Dataset:
    """Check data, hold a part out if there are no test data, and standardize.

    Args:
        raw: the data.
        options: the user's choices.

    Returns:
        The data set.

    Raises:
        ValueError: if the data are wrong; nothing was changed then.
    """
    targets = to_array(raw.train.targets, "y")
    labels = has_labels(targets, options)
    train = make_part(raw.train, labels)
    if raw.test is not None:
        for name in ("test_share", "test_seed"):
            value = getattr(options, name)
            if value != getattr(DataOptions, name):
                raise ValueError(
                    f"{name}={value!r} does not apply: there are test data"
                )
        test = make_part(raw.test, labels, "_test")
        _check_alike(train, test)
        if labels:
            num_classes = check_classes(train, test, options.num_classes)
    else:
        if labels:
            num_classes = check_classes(train, None, options.num_classes)
        train, test = hold_out(train, labels, options.test_share, options.test_seed)
    # By default, too: a network that learns at the usual rate diverges on vectors of
    # measurements in the hundreds.
    dataset = Dataset(raw.name, train, test, num_classes if labels else None)
    dataset = _standardized(dataset, options.standardize is not False)
    if options.standardize and dataset.standardization is None:
        raise ValueError(
            "standardize=True has nothing to do: y has labels and X has inputs of type "
            f"{train.inputs.dtype} of shape {dataset.input_shape}: leave it out, or "
            "give vectors of floats"
        )
    return dataset


def has_labels(targets: NDArray[Any], options: DataOptions) -> bool:
    """Whether targets are labels; refuses those that could be both.

    Args:
        targets: of the training data.
        options: the user's choices.

    Returns:
        Whether they are; else they are numbers to predict.
    """
    if options.targets != "auto":
        return options.targets == "labels"
    if targets.dtype.kind != "f" or options.num_classes is not None:
        return True
    if targets.ndim == 2 and targets.shape[1] > 1:
        one_hot = (np.isin(targets, (0, 1)).all(1) & (targets.sum(1) == 1)).all()
        if one_hot and len(targets):
            raise ValueError(
                f"y has one 1 per row, dtype {targets.dtype}: y.argmax(1) if its "
                "columns are classes, targets='numbers' to predict its numbers"
            )
    elif _are_whole(targets):
        raise ValueError(
            f"y has whole numbers of dtype {targets.dtype}, such as {targets.flat[0]}: "
            'y.astype("int64") if these are classes, targets="numbers" to predict them '
            "as numbers"
        )
    return False


def _are_whole(targets: NDArray[Any]) -> bool:
    """Whether floats look like classes; all beyond 2**53 are whole, and none is."""
    if not targets.size or np.abs(targets).max() > 2**53:
        return False
    return bool((targets == np.floor(targets)).all())


def make_part(arrays: Arrays, labels: bool, suffix: str = "") -> Part:
    """Check one part of a data set.

    Args:
        arrays: the part.
        labels: whether its targets are labels; else they are numbers.
        suffix: of the names ``X`` and ``y`` in messages.

    Returns:
        The part, numbers to predict still in double precision.
    """
    x, y = f"X{suffix}", f"y{suffix}"
    inputs, targets = to_array(arrays.inputs, x), to_array(arrays.targets, y)
    if not inputs.ndim or not targets.ndim or len(inputs) != len(targets):
        sizes = [len(a) if a.ndim else "no" for a in (inputs, targets)]
        raise ValueError(
            f"{x} has {sizes[0]} samples and {y} has {sizes[1]}: give one target per "
            "sample"
        )
    inputs = to_inputs(inputs, x)
    targets = to_labels(targets, y) if labels else to_numbers(targets, y)
    ids = arrays.task_ids
    if ids is not None:
        name = "test_task_ids" if suffix else "task_ids"
        ids = to_task_ids(ids, len(targets), name)
    return Part(inputs, targets, ids)


def check_classes(train: Part, test: Part | None, num_classes: int | None) -> int:
    """Refuse classes without a training sample.

    Args:
        train: the training part.
        test: the test part, if there is one.
        num_classes: what the user expects; else it follows from the labels.

    Returns:
        The number of classes.
    """
    if test is not None:
        unknown = ~np.isin(test.targets, train.targets)
        if unknown.any():
            row = first_rows(unknown)[0]
            raise ValueError(
                f"class {test.targets[row]} appears only in the test set (first in row "
                f"{row} of y_test): add training samples of it or drop its test samples"
            )
    found = int(train.targets.max()) + 1 if num_classes is None else num_classes
    if train.targets.max() >= found:
        row = first_rows(train.targets >= found)[0]
        raise ValueError(
            f"num_classes={found} has labels from 0 to {found - 1}, got "
            f"{train.targets[row]} in row {row} of y"
        )
    some = missing_classes(train.targets, found)
    if some:
        remedy = (
            "np.unique(y, return_inverse=True)[1] numbers the classes without gaps, "
            'targets="numbers" predicts numbers'
        )
        if num_classes is not None:
            remedy = f"add some, or leave num_classes={num_classes} out"
        raise ValueError(
            f"y has labels from 0 to {found - 1}, but no sample of class {some}: "
            f"{remedy}"
        )
    return found


def missing_classes(labels: NDArray[np.int64], count: int) -> str:
    """The first classes without a sample, for a message.

    Args:
        labels: from 0 on, below ``count``.
        count: number of classes, which may be larger than any memory.

    Returns:
        At most five of them; empty if none is missing.

    Example:
        >>> missing_classes(np.array([0, 2, 10**12]), 10**12 + 1)
        '1, 3, 4, 5, 6, ...'
    """
    present = np.unique(labels)
    # There are six gaps, or all of them, among the numbers up to here.
    first = np.arange(min(count, len(present) + 6))
    missing = np.setdiff1d(first, present, assume_unique=True)
    return ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")


def _check_alike(train: Part, test: Part) -> None:
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        raise ValueError(
            f"X has samples of shape {train.inputs.shape[1:]} and X_test of "
            f"{test.inputs.shape[1:]}: give both the same shape"
        )
    if train.inputs.dtype != test.inputs.dtype:
        raise ValueError(
            f"X is {train.inputs.dtype} and X_test {test.inputs.dtype}: give both the "
            "same type, bytes or floats"
        )
    if train.targets.shape[1:] != test.targets.shape[1:]:
        raise ValueError(
            f"y has targets of shape {train.targets.shape[1:]} and y_test of "
            f"{test.targets.shape[1:]}: give both the same shape"
        )


def _standardized(dataset: Dataset, wanted: bool) -> Dataset:
    """The data set with numbers of 32 bits, on the scale of the training part."""
    train, test = dataset.train, dataset.test
    numbers = dataset.num_classes is None
    vectors = train.inputs.ndim == 2 and train.inputs.dtype != np.uint8
    input_scale = Scale.of(train.inputs) if wanted and vectors else None
    target_scale = Scale.of(train.targets) if wanted and numbers else None
    done = None
    if input_scale is not None or target_scale is not None:
        done = Standardization(input_scale, target_scale)

    def convert(part: Part) -> Part:
        inputs = part.inputs if done is None else done.inputs(part.inputs)
        targets = part.targets if done is None else done.targets(part.targets)
        if numbers:
            targets = targets.astype(np.float32, copy=False)
        return Part(inputs, targets, part.task_ids)

    return Dataset(
        dataset.name, convert(train), convert(test), dataset.num_classes, done
    )
