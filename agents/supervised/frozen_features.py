"""Features of a data set from a network that does not learn: :func:`make_features`.

They are computed once and kept in an ``.npz`` file, which is a data set like any other:
``make_stream(path)``, ``info-replay train --data path --network linear``.
"""

from __future__ import annotations

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

from agents.runs.checkpoint import load_checkpoint
from agents.runs.files import replace_file
from agents.runs.machine import choose_device
from agents.supervised.feature_network import FeatureNetwork
from agents.supervised.inputs import scale
from continual_envs import Dataset, make_dataset
from continual_envs.datasets.files import data_root
from info_replay.registry import Registry

__all__ = ["MODELS", "make_features"]

#: Functions that make a network, by name; ``"module:function"`` finds any. Other names
#: are those of torchvision's models.
MODELS: Registry[Callable[..., Any]] = Registry("model", "info_replay.models")

#: Told of the batches of images that are done and of all of them.
Progress = Callable[[int, int], None]


def make_features(
    data: Any,
    model: str | nn.Module = "resnet18",
    *,
    weights: str | Path | None = None,
    layer: str | None = None,
    image_size: int | None = None,
    batch_size: int = 256,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Path:
    """Features of all images of a data set, as a file that is a data set.

    A file that was made before from the same data, weights and choices is used again.
    It is written whole or not at all.

    Args:
        data: of images; see :func:`continual_envs.make_dataset`.
        model: name of one of torchvision's, ``"module:function"``, or a network.
        weights: a file of weights, or torchvision's name of some, ``"DEFAULT"`` for
            example, which are downloaded; ``None`` for the first weights by the seed.
        layer: whose output is the feature; by default what the last linear layer sees.
        image_size: to which images are resized; by default the size that the model's
            weights were trained with, and no change without weights.
        batch_size: images at a time.
        seed: of the first weights.
        device: to compute on.
        out: the file; by default one in the folder of the data sets.
        progress: told of each batch.
        **options: of :func:`continual_envs.make_dataset`.

    Returns:
        The file, with ``X``, ``y``, ``X_test`` and ``y_test``.

    Raises:
        ValueError: if the data has no images, or the model, weights or layer is wrong.
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
    dataset = make_dataset(data, **options)
    if len(dataset.input_shape) != 3 or dataset.input_shape[0] not in (1, 3):
        raise ValueError(
            f"features need images of one or three channels: {dataset.name} has inputs "
            f"of shape {dataset.input_shape}"
        )
    network, look = _prepare(model, weights, seed, image_size)
    extract = _Extractor(network, layer, look, choose_device(device))
    about = {
        "data": dataset.fingerprint,
        "weights": _digest(network),
        "layer": layer,
        **look,
    }
    name = model if isinstance(model, str) else type(model).__name__
    path = _default_path(dataset, name, about) if out is None else Path(out)
    if _is_made(path, about):
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
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as file:
        np.savez(
            file,
            X=found[0],
            y=dataset.train.targets,
            X_test=found[1],
            y_test=dataset.test.targets,
            about=np.array(json.dumps(about)),
        )
    return path


# -- the network ----------------------------------------------------------------------


def _prepare(
    model: str | nn.Module,
    weights: str | Path | None,
    seed: int,
    image_size: int | None,
) -> tuple[nn.Module, dict[str, Any]]:
    """The network, and what is done to images before it sees them."""
    look: dict[str, Any] = {"size": image_size, "mean": None, "deviation": None}
    if isinstance(model, nn.Module):
        if weights is not None:
            raise ValueError(
                f"weights must be None with a network that has its own, got {weights!r}"
            )
        return model, look
    from torchvision import models  # seconds to import

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if ":" in model:
            network = MODELS.get(model)()
            if not isinstance(network, nn.Module):
                raise ValueError(
                    f"model {model!r} must make a network, got {network!r}"
                )
        elif model in models.list_models():
            network = models.get_model(model)
        else:
            raise ValueError(
                f"model must be one of torchvision's, such as resnet18 or "
                f"mobilenet_v3_small, or module:function, got {model!r}"
            )
    if weights is None:
        return network, look
    if Path(weights).exists():
        state = load_checkpoint(Path(weights), "Give another file of weights")
    elif ":" in model:
        raise ValueError(f"weights {str(weights)!r} is not a file")
    else:
        state = _published(model, str(weights))
    try:
        network.load_state_dict(state.get("state_dict", state))
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise ValueError(f"weights do not fit model {model!r}: {text:.300}") from error
    if ":" not in model:
        # Weights of these models are trained on images that were treated like that.
        usual = models.get_model_weights(model).DEFAULT.transforms()
        look["mean"], look["deviation"] = list(usual.mean), list(usual.std)
        look["size"] = image_size or usual.crop_size[0]
    return network, look


def _published(model: str, name: str) -> dict[str, Any]:
    """Weights by torchvision's name of them."""
    from torchvision import models

    known = models.get_model_weights(model)
    if name not in known.__members__:
        raise ValueError(
            f"weights must be a file, or one of {', '.join(known.__members__)} of "
            f"{model}, got {name!r}"
        )
    try:
        state: dict[str, Any] = known[name].get_state_dict(check_hash=True)
    except OSError as error:
        raise ValueError(
            f"cannot download the weights {name} of {model} ({error}); give a file"
        ) from error
    return state


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
        if self._layer is not None:
            features = self._wrapped(inputs)[0]
        else:
            features = self._before_last(inputs)
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
        return found[-1]

    def _seen(self, images: Tensor) -> Tensor:
        """Images as the network sees them: three channels, resized, normalized."""
        inputs = scale(images)
        inputs = inputs.expand(-1, 3, -1, -1)
        size = self._look["size"]
        if size is not None and inputs.shape[-2:] != (size, size):
            inputs = F.interpolate(
                inputs, (size, size), mode="bilinear", antialias=True
            )
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


def _default_path(dataset: Dataset, model: str, about: dict[str, Any]) -> Path:
    digest = hashlib.blake2b(json.dumps(about).encode(), digest_size=6).hexdigest()
    words: Iterable[str] = f"{dataset.name}-{model}-{digest}"
    name = "".join(each if each.isalnum() or each in "-_." else "-" for each in words)
    return data_root(None) / "features" / f"{name}.npz"


def _is_made(path: Path, about: dict[str, Any]) -> bool:
    """Whether a file is there, whole, and made from the same things."""
    if not path.exists():
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            whole = archive.testzip() is None
        with np.load(path, allow_pickle=False) as content:
            return whole and json.loads(str(content["about"])) == about
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return False
