"""The default policy: :func:`auto`."""

from __future__ import annotations

import torch
from tensordict.utils import NestedKey

from info_replay.registry import register_policy
from info_replay.writers.balanced_info_reservoir import BalancedInfoReservoirWriter

__all__ = ["auto"]


@register_policy("auto")
def auto(
    *,
    noise: float = 0.3,
    jitter: float = 0.1,
    num_classes: int | None = None,
    feature_key: NestedKey = "feature",
    target_key: NestedKey = "target",
    scale_targets: bool = True,
    dtype: torch.dtype = torch.float64,
) -> BalancedInfoReservoirWriter:
    """The default, good on all streams we tried: balanced InfoRS, with nothing to tune.

    Args:
        noise: ``sigma`` of the Bayesian model.
        jitter: ``c`` of the Bayesian model.
        num_classes: targets are labels of that many classes; ``None`` for regression
            targets of shape ``(n,)`` or ``(n, K)``.
        feature_key: entry that holds the features, shape ``(n, d0)``.
        target_key: entry that holds the targets.
        scale_targets: whether regression targets are standardized inside the model.
        dtype: floating type of the statistics.

    Returns:
        A :class:`BalancedInfoReservoirWriter` with the settings that it has by default.

    Example:
        >>> auto(num_classes=10).tournament
        3
    """
    return BalancedInfoReservoirWriter(
        noise=noise,
        jitter=jitter,
        num_classes=num_classes,
        feature_key=feature_key,
        target_key=target_key,
        scale_targets=scale_targets,
        dtype=dtype,
    )
