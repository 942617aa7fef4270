"""What can be told of a network by looking at its modules.

Torch's own layers are known; what the ``forward`` of any other class does is not, so it
counts as different in training.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

__all__ = ["depends_on_batch", "differs_in_training", "is_fixed", "modules_up_to"]

# Layers that do the same in training and in evaluation, and keep nothing.
_SAME = """
    Flatten Unflatten Identity Sequential ModuleList ModuleDict Upsample PixelShuffle
    Linear Bilinear Conv{} ConvTranspose{} LayerNorm GroupNorm RMSNorm LocalResponseNorm
    ReLU ReLU6 LeakyReLU PReLU ELU SELU CELU GELU SiLU Mish GLU Sigmoid LogSigmoid
    Hardsigmoid Hardswish Hardtanh Hardshrink Softshrink Tanhshrink Softplus Softsign
    Softmax Softmin LogSoftmax Tanh Threshold
    MaxPool{} AvgPool{} LPPool{} AdaptiveAvgPool{} AdaptiveMaxPool{}
    ZeroPad{} ConstantPad{} ReflectionPad{} ReplicationPad{} CircularPad{}
""".split()
_NAMES = {name.format(size) for name in _SAME for size in ("1d", "2d", "3d")}
# Not every version of torch has all of them.
_KNOWN = {getattr(nn, name).forward for name in _NAMES if hasattr(nn, name)}
_OVER_BATCHES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def depends_on_batch(module: nn.Module) -> bool:
    """Whether a sample's output depends on the others in its batch while training.

    Example:
        >>> depends_on_batch(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
        True
    """
    return any(isinstance(part, _OVER_BATCHES) for part in module.modules())


def differs_in_training(module: nn.Module, *same: type[nn.Module]) -> bool:
    """Whether a network may do something else in training than in evaluation.

    Args:
        module: the network.
        *same: classes whose ``forward`` is known to do the same in both.

    Example:
        >>> differs_in_training(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))
        False
        >>> differs_in_training(nn.Sequential(nn.Linear(2, 3), nn.Dropout()))
        True
    """
    known = _KNOWN | {each.forward for each in same}
    return any(
        type(part).forward not in known
        or part._forward_hooks  # there is no public way to see them
        or part._forward_pre_hooks
        for part in module.modules()
    )


def is_fixed(modules: Iterable[nn.Module]) -> bool:
    """Whether what modules give for an input never changes during training.

    Example:
        >>> is_fixed([nn.Flatten()]), is_fixed([nn.Linear(2, 3)])
        (True, False)
        >>> is_fixed([nn.Linear(2, 3).requires_grad_(False), nn.ReLU()])
        True
    """
    return not any(
        differs_in_training(module)
        or any(parameter.requires_grad for parameter in module.parameters())
        for module in modules
    )


def modules_up_to(module: nn.Module, name: str) -> list[nn.Module] | None:
    """The modules that the output of one of them depends on, as far as it is known.

    Args:
        module: the network.
        name: of the module whose output it is.

    Returns:
        That one and all before it; ``None`` if it is in a module that is not a
        ``Sequential``, whose order only its code knows.

    Example:
        >>> network = nn.Sequential(nn.Flatten(), nn.Sequential(nn.ReLU(), nn.Tanh()))
        >>> modules_up_to(network, "1.0")
        [Flatten(start_dim=1, end_dim=-1), ReLU()]
    """
    before: list[nn.Module] = []
    for step in name.split("."):
        if type(module).forward is not nn.Sequential.forward:
            return None
        # Unlike children(), with a module that comes twice.
        parts = dict(module.named_modules(remove_duplicate=False))
        names = [each for each in parts if each and "." not in each]
        before += [parts[each] for each in names[: names.index(step)]]
        module = parts[step]
    return [*before, module]
