"""Networks that give features and outputs in one forward pass.

* :class:`FullyConnected`, the paper's FC-[100, 100];
* :class:`ResNet18`, torchvision's, as in the paper's footnote.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torchvision.models import resnet18

from info_replay.registry import Registry

__all__ = ["NETWORKS", "FeatureNetwork", "FullyConnected", "ResNet18", "make_network"]


#: Networks by name; each entry makes one from the shape of an input and the number of
#: outputs.
NETWORKS: Registry[Callable[[tuple[int, ...], int], FeatureNetwork]] = Registry(
    "network", "info_replay.networks"
)


class FeatureNetwork(nn.Module):
    """A network whose last layer is linear.

    Attributes:
        body: gives the features.
        head: the last layer.
        feature_dim: width of what the last layer sees.
        depends_on_batch: whether the output of a sample depends on the others in its
            batch while training (batch normalization).
        needs_images: whether inputs must have the shape ``(n, C, H, W)``.
    """

    body: nn.Module
    head: nn.Linear
    feature_dim: int
    depends_on_batch: bool = False
    needs_images: bool = False

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Features ``(n, feature_dim)`` and outputs ``(n, num_outputs)``."""
        features = self.body(inputs)
        return features, self.head(features)


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


@NETWORKS.register("resnet18")
class ResNet18(FeatureNetwork):
    """torchvision's ResNet-18: a 7 x 7 convolution of stride 2, then max-pooling.

    Args:
        input_shape: channels, height and width.
        num_outputs: classes, or numbers to predict.
    """

    depends_on_batch = True
    needs_images = True

    def __init__(self, input_shape: tuple[int, ...], num_outputs: int) -> None:
        super().__init__()
        body = resnet18(num_classes=num_outputs)
        if input_shape[0] != 3:
            body.conv1 = nn.Conv2d(
                input_shape[0], 64, kernel_size=7, stride=2, padding=3, bias=False
            )
        self.feature_dim = body.fc.in_features
        self.body = body
        self.head = body.fc
        body.fc = nn.Identity()


def make_network(
    name: str, input_shape: tuple[int, ...], num_outputs: int, seed: int
) -> FeatureNetwork:
    """A network whose first weights depend on the seed alone.

    Args:
        name: one of :data:`NETWORKS`, or ``"module:Name"``.
        input_shape: of one input.
        num_outputs: classes, or numbers to predict.
        seed: of the initialization.

    Returns:
        The network, on the CPU.
    """
    make = NETWORKS.get(name)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # leaves those of devices alone
        return make(input_shape, num_outputs)
