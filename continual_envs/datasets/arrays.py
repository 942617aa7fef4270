"""From anything like an array to inputs and targets that a data set can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Arrays",
    "RawData",
    "channels_first",
    "first_rows",
    "to_array",
    "to_inputs",
    "to_labels",
    "to_numbers",
    "to_task_ids",
]

_RENUMBER = "np.unique({}, return_inverse=True)[1]"


class Arrays(NamedTuple):
    """Samples as they were found, unchecked.

    Args:
        inputs: anything like an array.
        targets: anything like an array.
        task_ids: anything like an array, or ``None``.
    """

    inputs: Any
    targets: Any
    task_ids: Any = None


class RawData(NamedTuple):
    """What is read from one kind of data, unchecked.

    Args:
        name: for messages.
        train: what streams are made of.
        test: what learners are judged by, if there is any.
        class_names: of the labels, if they have names.
    """

    name: str
    train: Arrays
    test: Arrays | None = None
    class_names: Sequence[str] | None = None


def to_array(values: Any, name: str) -> NDArray[Any]:
    """An array of numbers on the host, without a copy where none is needed.

    Args:
        values: an array, a tensor on any device, or nested lists.
        name: for messages.

    Returns:
        The array.

    Raises:
        ValueError: if the values are no array of numbers.
    """
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":  # numpy has no such type
            values = values.float()
        values = values.numpy()
    if np.ma.is_masked(values):
        raise ValueError(
            f"{name} has masked values: {name}.filled(...) fills them in, or drop "
            "their rows"
        )
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} is no array: its rows have different shapes. Give all of them the "
            "same shape"
        ) from error
    if array.dtype.kind == "O":
        first = array.flat[0] if array.size else None
        if isinstance(first, str):
            return array.astype(str)  # a table's words
        raise ValueError(
            f"{name} is an array of objects, the first of type "
            f"{type(first).__name__}: give numbers, {name}.astype('float32') if all of "
            "them are, and rows of the same length"
        )
    return array


def to_inputs(values: Any, name: str = "X", first_row: int = 0) -> NDArray[Any]:
    """Inputs as bytes, or as floats of 32 bits.

    Args:
        values: shape ``(n, ...)``, anything like an array, or a tensor.
        name: for messages.
        first_row: number of the first row, for messages.

    Returns:
        What a stream shows before it standardizes. Bytes stay bytes, other numbers
        become float32. Images have their channels first. Bytes of shape ``(n, H, W)``
        get one channel; floats of that shape stay as they are, as they may be
        sequences.

    Raises:
        ValueError: if the values are no inputs.

    Example:
        >>> images = np.zeros((5, 28, 28), dtype=np.uint8)
        >>> to_inputs(images).shape, to_inputs(images / 255).shape
        ((5, 1, 28, 28), (5, 28, 28))
        >>> to_inputs(np.zeros((5, 32, 32, 3))).shape
        (5, 3, 32, 32)
    """
    array = to_array(values, name)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be numbers, got {array.dtype}: encode words and dates as "
            "numbers first"
        )
    if array.ndim < 2:
        raise ValueError(
            f"{name} must have the shape (samples, ...), got {array.shape}: "
            f"{name}[:, None] gives each sample one input"
        )
    if not array.size:
        raise ValueError(f"{name} is empty, shape {array.shape}: give some samples")
    if array.dtype != np.uint8:
        array = _to_floats(array, name, first_row)
    elif array.ndim == 3:
        array = array[:, None]
    return np.ascontiguousarray(channels_first(array))


def channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """Move the channels of images to the front.

    Args:
        images: shape ``(n, H, W, C)``; other arrays stay as they are.

    Returns:
        A view of shape ``(n, C, H, W)``.
    """
    if images.ndim == 4 and images.shape[3] in (1, 3) and images.shape[1] not in (1, 3):
        return images.transpose(0, 3, 1, 2)
    return images


def to_labels(
    values: NDArray[Any], name: str = "y", first_row: int = 0
) -> NDArray[np.int64]:
    """Labels as whole numbers from 0 on.

    Args:
        values: shape ``(n,)`` or ``(n, 1)``.
        name: for messages.
        first_row: number of the first row, for messages.

    Returns:
        Labels of type int64, shape ``(n,)``.

    Raises:
        ValueError: if they are no labels.
    """
    if values.dtype.kind not in "biuf":
        example = values.flat[0] if values.size else ""
        raise ValueError(
            f"the labels of {name} must be whole numbers, got {str(example)!r}: "
            f"{_renumber(name)} numbers the classes"
        )
    values = _without_column(values)
    if values.ndim != 1:
        raise ValueError(
            f"the labels of {name} must have the shape (samples,), got {values.shape}: "
            f"{name}.argmax(1) turns one column per class into labels, "
            "targets='numbers' predicts the columns"
        )
    if values.dtype.kind == "f":
        wrong = first_rows(values != np.floor(values))  # also NaN
        if wrong:
            raise ValueError(
                f"the labels of {name} must be whole numbers, got "
                f"{values[wrong[0]]} in row {first_row + wrong[0]}"
            )
    labels = values.astype(np.int64, copy=False)
    if len(labels) and labels.min() < 0:
        row = first_rows(labels < 0)[0]
        raise ValueError(
            f"the labels of {name} must be from 0 on, got {labels[row]} in row "
            f"{first_row + row}: {_renumber(name)} numbers the classes"
        )
    return labels


def to_numbers(
    values: NDArray[Any], name: str = "y", first_row: int = 0
) -> NDArray[np.float64]:
    """Targets to predict as numbers.

    Args:
        values: shape ``(n,)`` or ``(n, K)``.
        name: for messages.
        first_row: number of the first row, for messages.

    Returns:
        Numbers of type float64, shape ``(n,)`` if ``K`` is 1.

    Raises:
        ValueError: if they are no numbers.
    """
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers, got {values.dtype}")
    if values.ndim not in (1, 2) or 0 in values.shape[1:]:
        raise ValueError(
            f"{name} must have the shape (samples,) or (samples, K), got {values.shape}"
        )
    values = _without_column(values)
    _to_floats(values, name, first_row)  # what a stream tells must be finite, too
    return values.astype(np.float64, copy=False)


def to_task_ids(values: Any, count: int, name: str) -> NDArray[np.int64]:
    """Task ids, a whole number per sample.

    Args:
        values: shape ``(n,)``.
        count: number of samples.
        name: for messages.

    Returns:
        Whole numbers of type int64.

    Raises:
        ValueError: if they are no task ids.
    """
    array = to_array(values, name)
    if array.shape != (count,) or array.dtype.kind not in "biu":
        raise ValueError(
            f"{name} must be one whole number for each of the {count} samples, got "
            f"{array.dtype} of shape {array.shape}"
        )
    return array.astype(np.int64, copy=False)


def first_rows(wrong: NDArray[np.bool_], most: int = 5) -> list[int]:
    """The first rows in which something is wrong.

    Args:
        wrong: shape ``(n, ...)``.
        most: how many rows to tell.

    Returns:
        Their numbers.
    """
    rows = wrong.reshape(len(wrong), -1).any(1)
    return [int(row) for row in np.flatnonzero(rows)[:most]]


def _without_column(values: NDArray[Any]) -> NDArray[Any]:
    """Targets of shape (n, 1), a column of a table, as (n,)."""
    return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values


def _to_floats(array: NDArray[Any], name: str, first_row: int) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # found below
        floats = array.astype(np.float32, copy=False)
    # The extremes tell without a second array whether all is finite.
    if floats.size and not np.isfinite([floats.min(), floats.max()]).all():
        row = first_rows(~np.isfinite(floats))[0]
        value = array[row][~np.isfinite(floats[row])].flat[0]
        remedy = "fill missing values in, or drop such rows"
        if np.isfinite(value):
            remedy = "give it in a larger unit"
        raise ValueError(
            f"{name} must be finite numbers of 32 bits, got {value} in row "
            f"{first_row + row}: {remedy}"
        )
    return floats


def _renumber(name: str) -> str:
    return _RENUMBER.format(name)
