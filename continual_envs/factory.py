"""From any data to an environment: :func:`make_stream`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from continual_envs.benchmarks import BENCHMARKS
from continual_envs.classification import ClassificationStreamEnv
from continual_envs.dataset_source import DatasetSource
from continual_envs.datasets import (
    DATASETS,
    DataOptions,
    Dataset,
    build_dataset,
    is_finite,
    options_of,
)
from continual_envs.environment import StreamEnv
from continual_envs.feed import Feed, is_function
from continual_envs.live import LIVE_OPTIONS, LiveSource
from continual_envs.options import CUTS, StreamOptions
from continual_envs.regression import RegressionStreamEnv
from continual_envs.source import Source

__all__ = ["make_stream"]


def make_stream(
    data: Any, *, test: Any = None, render_mode: str | None = None, **options: Any
) -> StreamEnv:
    """A stream of any data, without gymnasium's wrappers.

    Args:
        data: the name of a benchmark (:data:`~continual_envs.BENCHMARKS`) or of a data
            set, a :class:`~continual_envs.Dataset`, ``(X, y)`` as arrays or tensors, a
            ``torch.utils.data.Dataset``, a Hugging Face data set, the path of an
            ``.npz`` file or of a folder of images, an iterator of samples that may
            never end, or a function without arguments that returns one of these.
        test: test data of any of these kinds; else a share is held out.
        render_mode: ``"rgb_array"`` for pictures.
        **options: see :class:`~continual_envs.StreamOptions` and
            :class:`~continual_envs.DataOptions`.

    Returns:
        The environment, a :class:`~continual_envs.ClassificationStreamEnv` or a
        :class:`~continual_envs.RegressionStreamEnv`.

    Raises:
        ValueError: if the data are wrong or an option has a wrong value.
        TypeError: if there is no such option.
        DatasetError: if a file is missing or damaged.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(100, 4))
        >>> env = make_stream((X, np.arange(100) % 10), tasks=5, batch_size=8)
        >>> env.reset(seed=0)[0].shape, env.boundaries
        ((8, 4), [2, 4, 6, 8, 10])
        >>> env = make_stream("SplitDigits", batch_size=128, imbalance=10)
        >>> observation, info = env.reset(seed=3)
        >>> env.imbalanced_task, env.num_steps, env.boundaries
        (3, 33, [3, 5, 8, 31, 33])
    """
    name = data if isinstance(data, str) else None
    if name in BENCHMARKS:
        data = BENCHMARKS[name].dataset
        options = {**BENCHMARKS[name].options, **options}
    name = name if name in BENCHMARKS else None
    _check_names(name, options, options.get("cut"), data)
    of_data = {key: options.pop(key) for key in DataOptions.names() if key in options}
    chosen, data_options = StreamOptions(**options), DataOptions(**of_data)
    _check_known(data)
    data = _opened(data)
    if isinstance(data, Feed):
        _check_live(options)
        source: Source = LiveSource(data, test, chosen, data_options)
        return _make_env("live", source, chosen, render_mode)
    dataset = build_dataset(data, test, data_options)
    cut = chosen.cut or _default_cut(dataset, chosen)
    if data_options.task_ids is not None and cut != "given":
        raise ValueError(f"task_ids goes with cut='given', got cut={cut!r}")
    _check_names(name, options, cut, data)
    source = DatasetSource(dataset, cut, chosen)
    return _make_env(name or dataset.name, source, chosen, render_mode)


def _opened(data: Any) -> Any:
    """What functions return, or a feed if that comes sample by sample."""
    while is_function(data) and not is_finite(data):
        feed = Feed(data)
        made = feed.open()
        if hasattr(made, "__iter__") and not is_finite(made):
            return feed
        data = made
    if is_finite(data) or isinstance(data, dict | list | tuple | set | np.ndarray):
        return data
    return Feed(data) if hasattr(data, "__iter__") else data


def _make_env(
    name: str, source: Source, options: StreamOptions, render_mode: str | None
) -> StreamEnv:
    """The environment for the targets of a source."""
    if source.dataset.num_classes is None:
        return RegressionStreamEnv(name, source, options, render_mode)
    return ClassificationStreamEnv(name, source, options, render_mode)


def _default_cut(dataset: Dataset, options: StreamOptions) -> str:
    """How data are cut if the user did not say it."""
    if options.column is not None:
        return "column"
    if dataset.train.task_ids is not None:
        return "given"
    return "none" if dataset.num_classes is None else "label"


def _check_known(data: Any) -> None:
    """Refuse a word that is neither a name nor a path."""
    if not isinstance(data, str) or data in DATASETS or Path(data).exists():
        return
    if not Path(data).suffix and len(Path(data).parts) == 1:
        raise ValueError(
            f"unknown benchmark {data!r}, expected one of {list(BENCHMARKS)}, a data "
            f"set of {list(DATASETS)}, or the path of a file or folder that exists"
        )


def _check_live(options: dict[str, Any]) -> None:
    """Refuse options that a live stream does not have."""
    for option in options:
        if option not in LIVE_OPTIONS:
            raise _unexpected("a live stream", option, _applies(LIVE_OPTIONS))


def _check_names(
    name: str | None, options: dict[str, Any], cut: str | None, data: Any
) -> None:
    """Refuse options that do not exist or that the stream does not have."""
    cut = cut if cut in CUTS else None
    known = StreamOptions.names(cut)
    for option in options:
        if option in known or option in DataOptions.names():
            continue
        homes = [repr(home) for home, own in CUTS.items() if option in own]
        if cut is not None and homes:
            places = " or ".join(filter(None, [", ".join(homes[:-1]), homes[-1]]))
            raise _unexpected(
                name or f"a stream with cut={cut!r}",
                option,
                f"it goes with cut={places}, cut={cut!r} has {', '.join(CUTS[cut])}",
            )
        raise _unexpected(
            name or "a stream", option, _applies([*known, *options_of(data)])
        )


def _applies(names: Sequence[str]) -> str:
    return f"what applies is {', '.join(names)}"


def _unexpected(stream: str, option: str, remedy: str) -> TypeError:
    # TorchRL's GymEnv tries an option and looks for Python's own words.
    return TypeError(
        f"{stream} got an unexpected keyword argument {option!r}: {remedy}"
    )
