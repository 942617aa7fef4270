"""Networks by name or of one's own: :func:`make_network`.

* :class:`FullyConnected`, the paper's FC-[100, 100];
* :class:`ResNet18`, torchvision's, as in the paper's footnote;
* :class:`LinearHead` and :class:`MLPHead`, for features that come from elsewhere.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from agents.supervised.feature_network import FeatureNetwork
from info_replay.registry import Registry

__all__ = [
    "NETWORKS",
    "FeatureNetwork",
    "FullyConnected",
    "LinearHead",
    "MLPHead",
    "ResNet18",
    "make_network",
]


#: Networks by name; each entry makes one from the shape of an input and the number of
#: outputs.
NETWORKS: Registry[Callable[..., Any]] = Registry("network", "info_replay.networks")


@NETWORKS.register("fc")
class FullyConnected(FeatureNetwork):
    """Linear layers with ReLU in between.

    Args:
        input_shape: of one input, which is flattened.
        num_outputs: classes, or numbers to predict.
        hidden: widths of the hidden layers.

    Example:
        >>> network = FullyConnected((1, 28, 28), 10)
        >>> features, logits = network(torch.zeros(5, 1, 28, 28))
        >>> features.shape, logits.shape
        (torch.Size([5, 100]), torch.Size([5, 10]))
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_outputs: int,
        hidden: tuple[int, ...] = (100, 100),
    ) -> None:
        super().__init__()
        widths = (math.prod(input_shape), *hidden)
        layers: list[nn.Module] = [nn.Flatten()]
        for narrow, wide in zip(widths[:-1], widths[1:], strict=True):
            layers += [nn.Linear(narrow, wide), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], num_outputs)
        self.feature_dim = widths[-1]
        self.num_outputs = num_outputs


@NETWORKS.register("resnet18")
class ResNet18(FeatureNetwork):
    """torchvision's ResNet-18: a 7 x 7 convolution of stride 2, then max-pooling.

    Args:
        input_shape: channels, height and width.
        num_outputs: classes, or numbers to predict.

    Raises:
        ImportError: if torchvision is not installed.
    """

    depends_on_batch = True
    needs_images = True

    def __init__(self, input_shape: tuple[int, ...], num_outputs: int) -> None:
        try:
            from torchvision.models import resnet18
        except ImportError as error:
            raise ImportError(
                "network 'resnet18' needs torchvision: pip install "
                f"'info-replay[streams]' ({error})"
            ) from error
        super().__init__()
        body = resnet18(num_classes=num_outputs)
        if input_shape[0] != 3:
            body.conv1 = nn.Conv2d(
                input_shape[0], 64, kernel_size=7, stride=2, padding=3, bias=False
            )
        self.feature_dim = body.fc.in_features
        self.num_outputs = num_outputs
        self.body = body
        self.head = body.fc
        body.fc = nn.Identity()


@NETWORKS.register("linear")
class LinearHead(FullyConnected):
    """One linear layer: the input itself, flattened, is the feature.

    Args:
        input_shape: of one input.
        num_outputs: classes, or numbers to predict.

    Example:
        >>> network = LinearHead((512,), 10)
        >>> network.feature_dim, network.fixed_features
        (512, True)
    """

    def __init__(self, input_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__(input_shape, num_outputs, hidden=())


@NETWORKS.register("mlp")
class MLPHead(FullyConnected):
    """One hidden layer with ReLU, whose outputs are the feature.

    Args:
        input_shape: of one input, which is flattened.
        num_outputs: classes, or numbers to predict.
        width: of the hidden layer.

    Example:
        >>> MLPHead((512,), 10, width=64).feature_dim
        64
    """

    def __init__(
        self, input_shape: tuple[int, ...], num_outputs: int, width: int = 256
    ) -> None:
        super().__init__(input_shape, num_outputs, hidden=(width,))


def make_network(
    network: str | nn.Module | Callable[..., nn.Module],
    input_shape: tuple[int, ...],
    num_outputs: int,
    seed: int,
    feature: str | None = None,
) -> FeatureNetwork:
    """A network whose first weights depend on the seed alone.

    It is tried on two inputs of zeros, which leaves no trace, so that one that does not
    fit is refused here.

    Args:
        network: one of :data:`NETWORKS`, ``"module:factory"``, a factory, or a network,
            of which a copy is used, with the weights that it has. A factory is given
            the shape of an input and the number of outputs, or fewer arguments if it
            takes fewer.
        input_shape: of one input.
        num_outputs: classes, or numbers to predict.
        seed: of the initialization.
        feature: name of the submodule whose output is the feature; see
            :meth:`FeatureNetwork.wrap`. ``None`` if the network tells its features.

    Returns:
        The network.

    Raises:
        ValueError: if there is no such network, or it does not fit.
        ImportError: if it needs a package that is not installed.

    Example:
        >>> make_network("fc", (1, 8, 8), 10, seed=0).feature_dim
        100
        >>> def small(input_shape, num_outputs):
        ...     layers = nn.Linear(*input_shape, 16), nn.Tanh()
        ...     return nn.Sequential(*layers, nn.Linear(16, num_outputs))
        >>> make_network(small, (64,), 10, seed=0, feature="1").feature_dim
        16
    """
    shape = tuple(input_shape)
    name = repr(network) if isinstance(network, str) else _name(network)
    if isinstance(network, nn.Module):
        made: Any = copy.deepcopy(network)
    else:
        make = NETWORKS.get(network) if isinstance(network, str) else network
        with _seeded(seed):
            made = _call(make, name, shape, num_outputs)
    if not isinstance(made, nn.Module):
        raise ValueError(
            f"network {name} must be an nn.Module or make one, got {made!r}"
        )
    if not isinstance(made, FeatureNetwork):
        made = FeatureNetwork.wrap(made, feature)
    elif feature is not None:
        raise ValueError(
            f"network {name} tells its features itself; leave feature={feature!r} out"
        )
    with _seeded(seed):  # layers that find out their sizes draw their weights here
        _try_out(made, name, shape, num_outputs)
    return made


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Where the random numbers of the host depend on a seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # leaves those of devices alone
        yield


def _name(network: Any) -> str:
    named = type(network) if isinstance(network, nn.Module) else network
    return getattr(named, "__name__", repr(named))


def _call(
    make: Callable[..., Any], name: str, input_shape: tuple[int, ...], num_outputs: int
) -> Any:
    """What a factory makes of the arguments that it takes."""
    parameters = inspect.signature(make).parameters.values()
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(needed) > 2:
        raise ValueError(
            f"network {name} must be made from (input_shape, num_outputs), or from "
            f"fewer arguments, but it needs ({', '.join(needed)})"
        )
    known = {
        "input_shape": input_shape,
        "num_outputs": num_outputs,
        "num_classes": num_outputs,
    }
    by_name = {each.name: known[each.name] for each in parameters if each.name in known}
    if by_name.keys() >= set(needed):
        return make(**by_name)
    return make(*(input_shape, num_outputs)[: len(needed)])


@torch.no_grad()
def _try_out(
    network: FeatureNetwork,
    name: str,
    input_shape: tuple[int, ...],
    num_outputs: int,
) -> None:
    """Pass two inputs of zeros, and note the width of the features."""
    modes = {module: module.training for module in network.modules()}
    device = next((each.device for each in network.parameters()), torch.device("cpu"))
    network.eval()
    try:
        passed = network(torch.zeros((2, *input_shape), device=device))
    except (RuntimeError, TypeError, IndexError) as error:
        text = " ".join(str(error).split())
        raise ValueError(
            f"network {name} cannot take inputs of shape {input_shape}: {text}"
        ) from error
    finally:
        for module, training in modes.items():
            module.training = training
    features, outputs = passed
    for what, found, width in (
        ("features", tuple(features.shape), features.shape[-1]),
        ("outputs", tuple(outputs.shape), num_outputs),
    ):
        if found != (2, width):
            wanted = num_outputs if what == "outputs" else "d"
            raise ValueError(
                f"network {name} must give {what} of shape (2, {wanted}) for two "
                f"inputs of shape {input_shape}, got {found}"
            )
    network.feature_dim = features.shape[1]
    network.num_outputs = num_outputs
