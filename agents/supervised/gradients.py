"""Gradients of many losses at once, for memories that compare them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812  the name everybody knows
from tensordict import TensorDictBase
from torch import Tensor
from torch.func import functional_call, grad, vmap

from agents.supervised.inputs import scale
from agents.supervised.networks import FeatureNetwork

__all__ = ["LossGradients", "mean_loss"]


def mean_loss(outputs: Tensor, targets: Tensor, num_classes: int | None) -> Tensor:
    """What a learner minimizes: cross-entropy, or the squared error of numbers.

    Args:
        outputs: of a network, shape ``(n, num_outputs)``.
        targets: labels ``(n,)``, or numbers ``(n,)`` or ``(n, num_outputs)``.
        num_classes: number of classes, ``None`` for regression.

    Returns:
        The mean over the samples, and over the numbers of each.
    """
    if num_classes is not None:
        return F.cross_entropy(outputs, targets)
    return F.mse_loss(outputs[:, 0] if targets.ndim == 1 else outputs, targets)


class LossGradients:
    """Gradients of the mean loss of groups of items, by all that a network trains.

    The network is as in evaluation: nothing that it keeps changes, and the gradient of
    an item does not depend on the others.

    Args:
        network: features and outputs; it is looked at anew with each call.
        num_classes: number of classes, ``None`` for regression.

    Example:
        >>> from tensordict import TensorDict
        >>> from agents.supervised.networks import make_network
        >>> gradients = LossGradients(make_network("fc", (1, 8, 8), 10, seed=0), 10)
        >>> items = {"observation": torch.zeros(6, 1, 8, 8), "target": torch.arange(6)}
        >>> items = TensorDict(items, batch_size=[6])
        >>> gradients(items.unsqueeze(1)).shape  # of each item
        torch.Size([6, 17610])
        >>> gradients(items.reshape(2, 3)).shape  # of each three
        torch.Size([2, 17610])
    """

    def __init__(self, network: FeatureNetwork, num_classes: int | None) -> None:
        self.network = network
        self.num_classes = num_classes

    def __call__(self, items: TensorDictBase) -> Tensor:
        """Gradients ``(n, P)`` of ``n`` groups of ``m`` items.

        Args:
            items: with entries ``"observation"`` and ``"target"``,
                ``batch_size=[n, m]``.

        Returns:
            One row per group: the gradients of all trained parameters, flattened.
        """
        network = self.network
        parameters = {
            name: parameter.detach()
            for name, parameter in network.named_parameters()
            if parameter.requires_grad
        }
        buffers = dict(network.named_buffers())
        device = next(iter(parameters.values())).device
        inputs = scale(items.get("observation").to(device))
        targets = items.get("target").to(device)

        def loss(
            parameters: dict[str, Tensor], inputs: Tensor, targets: Tensor
        ) -> Tensor:
            outputs = functional_call(network, (parameters, buffers), (inputs,))[1]
            return mean_loss(outputs, targets, self.num_classes)

        was_training = network.training
        network.eval()
        try:
            tensors = [inputs, targets, *parameters.values(), *buffers.values()]
            if len(items) == 1 and _recordable(tensors):
                return _one_gradient(loss, parameters, inputs[0], targets[0])
            gradients = vmap(grad(loss), in_dims=(None, 0, 0))(
                parameters, inputs, targets
            )
        finally:
            network.train(was_training)
        return torch.cat([gradients[name].flatten(1) for name in parameters], 1)


def _recordable(tensors: list[Tensor]) -> bool:
    """Whether autograd can be used: unlike grad(), not with inference mode."""
    inference = any(tensor.is_inference() for tensor in tensors)
    return not (inference or torch.is_inference_mode_enabled())


def _one_gradient(
    loss: Callable[[dict[str, Tensor], Tensor, Tensor], Tensor],
    parameters: dict[str, Tensor],
    inputs: Tensor,
    targets: Tensor,
) -> Tensor:
    """Gradient ``(1, P)`` of one loss: vmap would take about twice as long."""
    with torch.enable_grad():
        leaves = {name: p.detach().requires_grad_() for name, p in parameters.items()}
        # As with grad(), what the loss does not use has gradient 0.
        found = torch.autograd.grad(
            loss(leaves, inputs, targets), list(leaves.values()), materialize_grads=True
        )
    return torch.cat([part.flatten() for part in found]).unsqueeze(0)
