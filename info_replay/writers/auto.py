"""The policy to begin with: :func:`auto_writer`."""

from __future__ import annotations

import torch
from tensordict.utils import NestedKey

from info_replay.registry import register_policy
from info_replay.writers.balanced_info_reservoir import BalancedInfoReservoirWriter
from info_replay.writers.info_reservoir import InfoReservoirWriter

__all__ = ["auto_writer"]


@register_policy("auto")
def auto_writer(
    *,
    noise: float = 0.3,
    jitter: float = 0.1,
    num_classes: int | None = None,
    feature_key: NestedKey = "feature",
    target_key: NestedKey = "target",
    scale_targets: bool = True,
    dtype: torch.dtype = torch.float64,
) -> InfoReservoirWriter:
    """Balanced InfoRS with nothing to tune; InfoRS where targets are numbers.

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
        With classes a :class:`BalancedInfoReservoirWriter`, else an
        :class:`InfoReservoirWriter`, both with the settings that they have by default.

    Example:
        >>> [type(auto_writer(num_classes=n)).__name__ for n in (10, None)]
        ['BalancedInfoReservoirWriter', 'InfoReservoirWriter']
    """
    kind = InfoReservoirWriter if num_classes is None else BalancedInfoReservoirWriter
    return kind(
        noise=noise,
        jitter=jitter,
        num_classes=num_classes,
        feature_key=feature_key,
        target_key=target_key,
        scale_targets=scale_targets,
        dtype=dtype,
    )
