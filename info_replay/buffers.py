"""Replay buffers that choose what to keep.

* :class:`SelectiveReplayBuffer`, a TorchRL buffer around any selection writer;
* :class:`InfoReservoirReplayBuffer`, the memory of the paper (InfoRS).
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict.utils import NestedKey

from info_replay.model.criteria import Criterion
from info_replay.selective_buffer import SelectiveReplayBuffer
from info_replay.writers.hybrid import HybridWriter
from info_replay.writers.info_reservoir import InfoReservoirWriter

__all__ = ["InfoReservoirReplayBuffer", "SelectiveReplayBuffer"]


class InfoReservoirReplayBuffer(SelectiveReplayBuffer):
    """A replay memory that keeps what is informative: InfoRS (Sec. 3.2, Alg. 1).

    An item enters reservoir sampling only if its criterion, given what the memory
    holds, reaches the running mean plus ``gamma`` deviations. What repeats itself stays
    out, so a frequent class or task does not crowd out the rare ones.

    Items are tensordicts with any entries; those under ``feature_key`` and
    ``target_key`` are what the criterion looks at.

    Args:
        capacity: number of slots; may be left out if ``storage`` is given.
        criterion: what "informative" means, ``MIC(eta=1.0)`` by default.
        gamma: ``gamma_i`` of the paper, deviations above the mean.
        noise: ``sigma`` of the paper's Bayesian model.
        jitter: ``c`` of the paper's Bayesian model.
        num_classes: targets are labels of that many classes; ``None`` for regression
            targets of shape ``(n,)`` or ``(n, K)``.
        feature_key: entry that holds the features, shape ``(n, d)``.
        target_key: entry that holds the targets.
        decay: of the running moments, ``None`` for all history; see
            :class:`RunningMoments`.
        scale_targets: whether regression targets are standardized, inside the model, by
            mean and deviation of all that were offered, so that their units make no
            difference; what is stored stays as it is.
        dtype: floating type of the statistics.
        recent: slots for the most recent items, which are selected among when they are
            no longer that: a number, or a share of the capacity; ``None`` for none. See
            :class:`HybridWriter`.
        **options: of :class:`SelectiveReplayBuffer` and ``TensorDictReplayBuffer``:
            storage, device, generator, fixed_features, sampler, batch_size, prefetch,
            transform, ...

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch._C.Generator object at ...>
        >>> buffer = InfoReservoirReplayBuffer(8, num_classes=2, batch_size=4)
        >>> labels = torch.tensor([0] * 120 + [1] * 8)
        >>> features = torch.nn.functional.one_hot(labels, 2) + 0.1
        >>> items = TensorDict(feature=features, target=labels, batch_size=128)
        >>> slots = buffer.extend(items)  # -1 where an item was not kept
        >>> sample = buffer.sample()
        >>> sample["feature"] = sample["feature"] + 0.1  # of the network as it is now
        >>> buffer.update_tensordict_priority(sample)
        >>> buffer.score(items).shape
        torch.Size([128])
    """

    def __init__(
        self,
        capacity: int | None = None,
        *,
        criterion: Criterion | None = None,
        gamma: float = 0.0,
        noise: float = 0.3,
        jitter: float = 0.1,
        num_classes: int | None = None,
        feature_key: NestedKey = "feature",
        target_key: NestedKey = "target",
        decay: float | None = None,
        scale_targets: bool = True,
        dtype: torch.dtype = torch.float64,
        recent: int | float | None = None,
        **options: Any,
    ) -> None:
        if "writer" in options:
            raise TypeError(
                "InfoReservoirReplayBuffer brings its own writer; use "
                "SelectiveReplayBuffer(writer=...) for another one"
            )
        writer = InfoReservoirWriter(
            criterion=criterion,
            gamma=gamma,
            noise=noise,
            jitter=jitter,
            num_classes=num_classes,
            feature_key=feature_key,
            target_key=target_key,
            decay=decay,
            scale_targets=scale_targets,
            dtype=dtype,
        )
        ringed = writer if recent is None else HybridWriter(writer, recent)
        super().__init__(capacity, writer=ringed, **options)
