"""Q-networks whose hidden features can be looked at: :func:`make_q_network`."""

from __future__ import annotations

import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import Tensor, nn
from torchrl.data import TensorSpec
from torchrl.modules import MLP, ConvNet, QValueActor

__all__ = ["HIDDEN_KEY", "make_q_network"]

#: Entry of a Q-network's output that holds its penultimate activations.
HIDDEN_KEY = "hidden"


class _AsNumbers(nn.Module):
    """Brings vectors of any type to that of the weights."""

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors.to(torch.get_default_dtype())


class _AsImage(nn.Module):
    """Brings images of whole numbers or truth values to the form of a convolution.

    Args:
        channels_last: whether the last dimension is that of the channels.
        scale: what to divide by.
    """

    def __init__(self, *, channels_last: bool, scale: float) -> None:
        super().__init__()
        self.channels_last = channels_last
        self.scale = scale

    def forward(self, images: Tensor) -> Tensor:
        if self.channels_last:
            images = images.movedim(-1, -3)
        return images.to(torch.get_default_dtype()) / self.scale


def make_q_network(
    observation: TensorSpec, action: TensorSpec, *, width: int = 64, seed: int = 0
) -> QValueActor:
    """A Q-network for an environment, with weights that depend on the seed alone.

    Vectors go through two hidden layers; images through convolutions (those of DQN for
    Atari, a single small one for images of less than 36 pixels a side as in MinAtar)
    and one hidden layer.

    Args:
        observation: of one environment, a vector or an image with its channels first or
            last.
        action: of one environment, categorical or one-hot.
        width: of the hidden layers.
        seed: of the initialization.

    Returns:
        The network: reads ``"observation"``, writes ``"hidden"`` (the penultimate
        activations), ``"action_value"``, ``"action"`` and ``"chosen_action_value"``.

    Example:
        >>> from tensordict import TensorDict
        >>> from torchrl.data import Categorical, Unbounded
        >>> network = make_q_network(Unbounded((4,)), Categorical(2), width=8)
        >>> states = TensorDict(observation=torch.zeros(3, 4), batch_size=3)
        >>> network(states)["hidden"].shape
        torch.Size([3, 8])
    """
    num_actions = int(action.space.n)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # leaves those of devices alone
        body = _make_body(observation, width)
        head = nn.Linear(width, num_actions)
    modules = (
        TensorDictModule(body, ["observation"], [HIDDEN_KEY]),
        TensorDictModule(head, [HIDDEN_KEY], ["action_value"]),
    )
    return QValueActor(
        TensorDictSequential(*modules), in_keys=["observation"], spec=action
    )


def _make_body(observation: TensorSpec, width: int) -> nn.Module:
    shape = tuple(observation.shape)
    if len(shape) == 1:
        layers = MLP(
            in_features=shape[0],
            out_features=width,
            num_cells=[width],
            activation_class=nn.ReLU,
            activate_last_layer=True,
        )
        return nn.Sequential(_AsNumbers(), layers)
    if len(shape) != 3:
        raise ValueError(
            "observations must be vectors or images with channels, got the shape "
            f"{shape}"
        )
    # TorchRL calls bytes from 0 to 255 unbounded, but tells their range all the same.
    high = float(observation.space.high.max())
    # MinAtar's are zeros and ones with channels last, up to as many as pixels a side.
    channels_last = shape[2] < shape[0] or (high == 1 and shape[2] == shape[0])
    channels, *sides = (shape[2], *shape[:2]) if channels_last else shape
    if min(sides) < 3:
        raise ValueError(
            f"images must have at least 3 pixels a side, got the shape {shape}"
        )
    small = min(sides) < 36
    body = nn.Sequential(
        _AsImage(channels_last=channels_last, scale=high if 0 < high < 1e6 else 1.0),
        ConvNet(
            in_features=channels,
            num_cells=[16] if small else [32, 64, 64],
            kernel_sizes=[3] if small else [8, 4, 3],
            strides=[1] if small else [4, 2, 1],
            activation_class=nn.ReLU,
        ),
        nn.LazyLinear(width),
        nn.ReLU(),
    )
    body(torch.zeros(1, *shape))  # tells the linear layer its width
    return body
