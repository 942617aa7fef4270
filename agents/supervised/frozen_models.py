"""Networks for features, by name and with their weights: :func:`find_model`."""

from __future__ import annotations

import copy
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from agents.runs.checkpoint import CheckpointError, load_checkpoint
from info_replay.registry import Registry

__all__ = ["MODELS", "find_model"]

#: Functions that make a network, by name; ``"module:function"`` finds any. Other names
#: are those of torchvision's classifiers.
MODELS: Registry[Callable[..., Any]] = Registry("model", "info_replay.models")


def find_model(
    model: str | nn.Module, weights: str | Path | None, seed: int
) -> tuple[nn.Module, dict[str, Any]]:
    """A network, and how images have to be treated for its weights.

    Args:
        model: name in :data:`MODELS` or of one of torchvision's classifiers,
            ``"module:function"``, or a network, which is copied.
        weights: a file, torchvision's name of some, or ``None`` for the first ones.
        seed: of the first weights.

    Returns:
        The network, and ``size`` (height and width), ``mean`` and ``deviation`` of the
        images, each ``None`` if any will do.

    Raises:
        ValueError: if there is no such model, or the weights do not fit.
        CheckpointError: if the file of weights is damaged.

    Example:
        >>> find_model(nn.Linear(4, 2), None, seed=0)[1]
        {'size': None, 'mean': None, 'deviation': None}
    """
    treatment: dict[str, Any] = dict.fromkeys(("size", "mean", "deviation"))
    if isinstance(model, nn.Module):
        if weights is not None:
            raise ValueError(
                f"weights must be None with a network that has its own, got {weights!r}"
            )
        return _copied(model), treatment
    if not isinstance(model, str):
        raise ValueError(f"model must be a name or a network, got {model!r}")
    registered = ":" in model or model in MODELS
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        network = _own(model) if registered else _classifier(model)
    if weights is None:
        return network, treatment
    if Path(weights).is_file():
        state = _read_weights(Path(weights))
    elif registered:
        raise ValueError(f"weights {str(weights)!r} is not a file")
    else:
        state = _published(model, str(weights))
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        text = " ".join(str(error).split())
        raise ValueError(f"weights do not fit model {model!r}: {text:.300}") from error
    if not registered:
        from torchvision import models

        # Weights of these models are trained on images that were treated like that.
        usual = models.get_model_weights(model).DEFAULT.transforms()
        treatment = {
            "size": [usual.crop_size[0]] * 2,
            "mean": list(usual.mean),
            "deviation": list(usual.std),
        }
    return network, treatment


def _own(model: str) -> nn.Module:
    """A network by a name of :data:`MODELS`."""
    network = MODELS.get(model)()
    if not isinstance(network, nn.Module):
        raise ValueError(f"model {model!r} must make a network, got {network!r}")
    return network


def _classifier(model: str) -> nn.Module:
    """A network by torchvision's name of it."""
    from torchvision import models  # seconds to import

    # Others want a list of images or a film, and some download a part of themselves.
    if model not in models.list_models(module=models):
        registered = "".join(f"{name}, " for name in MODELS)
        raise ValueError(
            f"model must be {registered}one of torchvision's classifiers, such as "
            f"resnet18 or mobilenet_v3_small, or module:function, got {model!r}"
        )
    network: nn.Module = models.get_model(model, weights=None)
    return network


def _copied(network: nn.Module) -> nn.Module:
    """A network like the user's, which keeps its device and its mode."""
    try:
        return copy.deepcopy(network)
    except Exception as error:
        text = " ".join(str(error).split())
        raise ValueError(
            f"{type(network).__name__} cannot be copied ({text:.200}): give "
            "module:function"
        ) from error


def _read_weights(path: Path) -> dict[str, Any]:
    """Weights in a file of the user's; runs no code from it."""
    advice = "Give another file of weights"
    if zipfile.is_zipfile(path):
        content: Any = load_checkpoint(path, advice)
    else:  # torch's format before version 1.6, which has no checksums
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            raise CheckpointError(
                f"{path} is damaged, or holds more than plain values and tensors. "
                f"{advice}"
            ) from error
    if isinstance(content, dict):
        content = content.get("state_dict", content)
    if not isinstance(content, dict) or not all(
        isinstance(key, str) for key in content
    ):
        raise ValueError(
            f"{path} must hold weights by their names, as torch.save(model.state_dict()"
            f", file) writes them, got a {type(content).__name__}"
        )
    return content


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
