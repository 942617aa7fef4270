"""Data sets of Hugging Face's ``datasets``, which need not be installed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from continual_envs.datasets.arrays import Arrays, RawData
from continual_envs.datasets.images import Rows
from continual_envs.datasets.options import DataOptions

__all__ = ["is_hugging_face", "read_hugging_face"]


def is_hugging_face(data: Any) -> bool:
    """Whether a value is a ``datasets.Dataset`` or a ``datasets.DatasetDict``."""
    # By name: whoever has one has imported datasets already.
    return any(
        base.__module__.startswith("datasets.")
        and base.__name__ in ("Dataset", "DatasetDict")
        for base in type(data).__mro__
    )


def read_hugging_face(data: Any, options: DataOptions) -> RawData:
    """Read the columns of the inputs and of the targets.

    Args:
        data: a data set, or one with the splits ``train`` and maybe ``test``.
        options: maybe with ``input_key`` and ``target_key``; else the columns follow
            from their types.

    Returns:
        The samples.

    Raises:
        ValueError: if it is not clear which columns are meant.
    """
    test = None
    if isinstance(data, dict):
        if "train" not in data:
            raise ValueError(
                f"the data set has the splits {', '.join(data) or 'none'}: give one of "
                "them, or name one 'train'"
            )
        data, test = data["train"], data.get("test")
    columns = _find_columns(data.features, options)
    feature = data.features[columns[1]]
    return RawData(
        getattr(data.info, "dataset_name", None) or "hugging_face",
        _read(data, columns, options),
        None if test is None else _read(test, columns, options),
        getattr(feature, "names", None),
    )


Columns = tuple[list[str], str]


def _find_columns(features: Any, options: DataOptions) -> Columns:
    """The columns of the inputs and the column of the targets."""
    target = options.target_key
    given = options.input_key
    inputs = [given] if isinstance(given, str) else list(given or ())
    for key, option in [(target, "target_key")] + [(k, "input_key") for k in inputs]:
        if key is not None and key not in features:
            raise ValueError(
                f"{option}={key!r} is not a column, expected one of "
                f"{', '.join(features)}"
            )
    if target is None:
        scalars = [k for k, f in features.items() if _is_number(f) and k not in inputs]
        classes = [k for k in scalars if _type(features[k]) == "ClassLabel"]
        candidates = classes if len(classes) == 1 else scalars
        if len(candidates) != 1:
            raise ValueError(
                f"the targets may be in {', '.join(candidates) or 'no column'} of "
                f"{', '.join(features)}: name their column as target_key="
            )
        target = candidates[0]
    if not inputs:
        candidates = [k for k, f in features.items() if _is_input(f) and k != target]
        if len(candidates) != 1:
            raise ValueError(
                f"the inputs may be in {', '.join(candidates) or 'no column'} of "
                f"{', '.join(features)}: name their column as input_key=, or a list of "
                "columns of numbers"
            )
        inputs = candidates
    return inputs, target


def _read(data: Any, columns: Columns, options: DataOptions) -> Arrays:
    inputs, target = columns
    if len(inputs) == 1:
        return Arrays(_column(data, inputs[0], options), _column(data, target, options))
    for key in inputs:
        if not _is_number(data.features[key]):
            raise ValueError(
                f"input_key={key!r} is no column of numbers: of several columns each "
                "must have a number per sample"
            )
    rows = np.stack([_column(data, key, options) for key in inputs], axis=1)
    return Arrays(rows, _column(data, target, options))


def _column(data: Any, key: str, options: DataOptions) -> NDArray[Any]:
    """All values of a column, at once where they are numbers."""
    feature = data.features[key]
    only = data.select_columns([key])
    if _type(feature) == "Image":
        rows = Rows(len(only), options.image_size)
        for row, sample in enumerate(only.with_format(None)):
            if sample[key] is None:
                raise ValueError(f"sample {row} has no image in the column {key!r}")
            rows.put(row, sample[key])
        return rows.array
    values = only.with_format("numpy")[:][key]
    # The format numpy makes every whole number one of 64 bits.
    is_bytes = _inner(feature) == "uint8" and values.dtype.kind in "iu"
    return values.astype(np.uint8) if is_bytes else values


def _type(feature: Any) -> str:
    return type(feature).__name__


def _inner(feature: Any) -> str:
    """The type of the numbers in a column, also in lists of lists of them."""
    while _type(feature) in ("Sequence", "List", "LargeList"):
        feature = feature.feature
    return str(getattr(feature, "dtype", ""))


def _is_number(feature: Any) -> bool:
    return _type(feature) in ("Value", "ClassLabel") and _inner(feature).startswith(
        ("int", "uint", "float", "bool", "double")
    )


def _is_input(feature: Any) -> bool:
    if _type(feature) == "Image" or _type(feature).startswith("Array"):
        return True
    is_list = _type(feature) in ("Sequence", "List", "LargeList")
    return is_list and _inner(feature).startswith(("int", "uint", "float", "bool"))
