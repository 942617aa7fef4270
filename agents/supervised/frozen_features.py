"""Features of a data set from a network that does not learn: :func:`make_features`.

They are computed once and kept in an ``.npz`` file, which is a data set like any other:
``make_stream(path)``, ``info-replay train --data path --network linear``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.runs.files import replace_file
from agents.runs.machine import choose_device
from agents.supervised.feature_network import FeatureNetwork
from agents.supervised.frozen_models import MODELS, find_model
from agents.supervised.inputs import scale
from continual_envs import Dataset, Part, make_dataset
from continual_envs.checks import check_count, is_whole
from continual_envs.datasets import DataOptions
from continual_envs.datasets.files import data_root, expand_user
from continual_envs.datasets.make import FUNCTION, KINDS

__all__ = ["MODELS", "make_features"]

#: Told of the batches of images that are done and of all of them.
Progress = Callable[[int, int], None]


def make_features(
    data: Any,
    model: str | nn.Module = "resnet18",
    *,
    weights: str | Path | None = None,
    layer: str | None = None,
    image_size: int | tuple[int, int] | None = None,
    batch_size: int = 256,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Path:
    """Features of all images of a data set, as a file that is a data set.

    A file that was made before from the same data, weights and choices is used again.
    It is written whole or not at all, with targets in the units of the data.

    Args:
        data: of images; see :func:`continual_envs.make_dataset`.
        model: name in :data:`MODELS` or of one of torchvision's classifiers,
            ``"module:function"``, or a network, which stays as it is. Gray images
            become colored for a network whose first convolution wants colors.
        weights: a file of weights, or torchvision's name of some, ``"DEFAULT"`` for
            example, which are downloaded; ``None`` for the first weights by the seed.
        layer: whose output is the feature; by default what the last linear layer sees.
        image_size: to which images are resized, pixels or ``(height, width)``; by
            default the size that the model's weights were trained with, and no change
            without weights.
        batch_size: images at a time.
        seed: of the first weights.
        device: to compute on.
        out: the file, which may be there only if it is one of these; by default one in
            the folder of the data sets.
        progress: told of each batch.
        **options: of :func:`continual_envs.make_dataset`.

    Returns:
        The file, with ``X``, ``y``, ``X_test`` and ``y_test``, and the ids of tasks if
        the data has some.

    Raises:
        ValueError: if the data has no images, or the model, weights, layer or file is
            wrong.
        DatasetError, CheckpointError: if a file is missing or damaged.

    Example:
        >>> import tempfile
        >>> body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1),
        ...                      nn.Flatten(), nn.Linear(4, 10))
        >>> path = Path(tempfile.mkdtemp()) / "digits.npz"
        >>> make_features("Digits", body, out=path) == path
        True
        >>> np.load(path)["X"].shape
        (1500, 4)
    """
    chosen = None if out is None else expand_user(out)
    if chosen is not None:
        _check_replaceable(chosen)
    check_count("batch_size", batch_size)
    size = _as_size(image_size)
    dataset = _read(data, size, options)
    if len(dataset.input_shape) != 3 or dataset.input_shape[0] not in (1, 3):
        raise ValueError(
            f"features need images of one or three channels: {dataset.name} has inputs "
            f"of shape {dataset.input_shape}"
        )
    network, treatment = find_model(model, weights, seed)
    look = {**treatment, "size": size or treatment["size"]}
    extract = _Extractor(network, layer, look, choose_device(device))
    about = {
        "data": dataset.fingerprint,
        "weights": _digest(network),
        "layer": layer,
        **look,
    }
    name = model if isinstance(model, str) else type(model).__name__
    path = chosen or _default_path(dataset, name, about, options.get("data_dir"))
    if _made_from(path) == about:
        return path
    parts = (dataset.train, dataset.test)
    counts = [-(-len(part) // batch_size) for part in parts]
    found = []
    for part, before in zip(parts, (0, counts[0]), strict=True):
        rows = []
        for number, start in enumerate(range(0, len(part), batch_size)):
            rows.append(extract(part.inputs[start : start + batch_size]))
            if progress is not None:
                progress(before + number + 1, sum(counts))
        found.append(np.concatenate(rows))
    arrays: dict[str, Any] = {"about": np.array(json.dumps(about))}
    for part, features, suffix in zip(parts, found, ("", "_test"), strict=True):
        arrays |= {f"X{suffix}": features, f"y{suffix}": part.targets}
        if part.task_ids is not None:
            arrays[f"task{suffix}"] = part.task_ids
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        np.savez(file, **arrays)
    return path


# -- the data -------------------------------------------------------------------------


def _as_size(image_size: Any) -> list[int] | None:
    """Height and width; a list, as the file says it."""
    if image_size is None:
        return None
    size = (image_size, image_size) if is_whole(image_size) else image_size
    DataOptions(image_size=size)  # refuses what is no size
    return [int(side) for side in size]


def _read(data: Any, size: list[int] | None, options: dict[str, Any]) -> Dataset:
    """The data set, with targets in the user's units."""
    kind = next((each for each in KINDS if each.accepts(data)), None)
    if kind is FUNCTION:
        return _read(data(), size, options)
    # Photographs of different sizes are resized when they are read, or not at all.
    usual = {"standardize": False, "image_size": size}
    mine = {
        name: value
        for name, value in usual.items()
        if kind is not None and name in kind.options
    }
    dataset = make_dataset(data, **{**mine, **options})
    done = dataset.standardization
    if done is None or done.target_scale is None:
        return dataset
    # A Dataset of the user's, that was standardized when it was made.
    restored = [
        Part(part.inputs, done.restore(part.targets).astype(np.float32), part.task_ids)
        for part in (dataset.train, dataset.test)
    ]
    return dataclasses.replace(
        dataset, train=restored[0], test=restored[1], standardization=None
    )


# -- the features ----------------------------------------------------------------------


class _Extractor:
    """Gives the features of images."""

    def __init__(
        self,
        network: nn.Module,
        layer: str | None,
        look: dict[str, Any],
        device: torch.device,
    ) -> None:
        self._look = look
        self._device = device
        self._network = network.to(device).eval()
        self._layer = layer
        convolutions = (e for e in network.modules() if isinstance(e, nn.Conv2d))
        first = next(convolutions, None)
        self._wants_colors = first is not None and first.in_channels == 3
        if layer is not None:
            self._wrapped = FeatureNetwork.wrap(network, layer).eval()
            return
        linear = [each for each in network.modules() if isinstance(each, nn.Linear)]
        if not linear:
            raise ValueError(
                f"{type(network).__name__} has no linear layer: name the layer whose "
                "output is the feature"
            )
        self._last = linear[-1]

    @torch.no_grad()
    def __call__(self, images: NDArray[Any]) -> NDArray[np.float32]:
        inputs = self._seen(torch.from_numpy(np.array(images)).to(self._device))
        try:
            if self._layer is not None:
                features = self._wrapped(inputs)[0]
            else:
                features = self._before_last(inputs)
        except Exception as error:  # of any kind: it is the user's code that runs
            text = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"{type(self._network).__name__} fails on images of shape "
                f"{tuple(inputs.shape[1:])}: {text:.300}"
            ) from error
        numbers: NDArray[np.float32] = features.flatten(1).float().cpu().numpy()
        if not np.isfinite(numbers).all():
            raise ValueError("features are not finite: are these the right weights?")
        return numbers

    def _before_last(self, inputs: Tensor) -> Tensor:
        """What the last linear layer sees."""
        found: list[Tensor] = []
        handle = self._last.register_forward_pre_hook(
            lambda module, given: found.append(given[0])
        )
        try:
            self._network(inputs)
        finally:
            handle.remove()
        if not found:
            raise ValueError(
                "its last linear layer is not used, name the layer whose output is the "
                "feature"
            )
        return found[-1]

    def _seen(self, images: Tensor) -> Tensor:
        """Images as the network sees them: in color, resized, normalized."""
        inputs = scale(images)
        if self._wants_colors:
            inputs = inputs.expand(-1, 3, -1, -1)
        size = self._look["size"]
        if size is not None and list(inputs.shape[-2:]) != size:
            inputs = F.interpolate(inputs, size, mode="bilinear", antialias=True)
        if self._look["mean"] is not None:
            mean, deviation = (
                torch.tensor(self._look[name], device=inputs.device)[:, None, None]
                for name in ("mean", "deviation")
            )
            inputs = (inputs - mean) / deviation
        return inputs


# -- the file -------------------------------------------------------------------------


def _digest(network: nn.Module) -> str:
    """Differs if the network or its weights differ."""
    digest = hashlib.blake2b(repr(network).encode(), digest_size=16)
    for name, value in network.state_dict().items():
        digest.update(name.encode())
        digest.update(
            value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        )
    return digest.hexdigest()


def _default_path(
    dataset: Dataset, model: str, about: dict[str, Any], data_dir: str | Path | None
) -> Path:
    digest = hashlib.blake2b(json.dumps(about).encode(), digest_size=6).hexdigest()
    words: Iterable[str] = f"{dataset.name}-{model}-{digest}"
    name = "".join(each if each.isalnum() or each in "-_." else "-" for each in words)
    return data_root(data_dir) / "features" / f"{name}.npz"


def _check_replaceable(path: Path) -> None:
    """Refuse a file that may be anything of the user's."""
    if path.exists() and _made_from(path) is None:
        raise ValueError(
            f"{path} exists and is no whole file of features: give another out, or "
            "delete it"
        )


def _made_from(path: Path) -> dict[str, Any] | None:
    """What a whole file of features was made from; ``None`` if it is something else."""
    try:
        with zipfile.ZipFile(path) as archive:
            whole = archive.testzip() is None
        with np.load(path, allow_pickle=False) as content:
            about = json.loads(str(content["about"]))
    except Exception:  # whatever may be wrong with a file
        return None
    ours = isinstance(about, dict) and {"data", "weights", "layer"} <= about.keys()
    return about if whole and ours else None
