"""The memory of the paper, InfoRS: :class:`InfoReservoirReplayBuffer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict.utils import NestedKey
from torchrl.data import Storage

from info_replay.criteria import Criterion
from info_replay.selective_replay_buffer import SelectiveReplayBuffer
from info_replay.writers import (
    HybridWriter,
    InfoReservoirWriter,
)

__all__ = ["InfoReservoirReplayBuffer"]


class InfoReservoirReplayBuffer(SelectiveReplayBuffer):
    """A replay memory that keeps what is informative: InfoRS (Sec. 3.2, Alg. 1).

    An item enters reservoir sampling only if its criterion, given what the memory
    holds, reaches the running mean plus ``gamma`` deviations. What repeats itself stays
    out, so a frequent class or task does not crowd out the rare ones.

    Items are tensordicts with any entries; those under ``feature_key`` and
    ``target_key`` are what the criterion looks at.

    Args:
        capacity: number of slots; may be left out if ``storage`` is given.
        storage: a tensor storage, ``LazyTensorStorage(capacity, device=device)`` by
            default.
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
        dtype: floating type of the statistics.
        recent: slots for the most recent items, which are selected among when they are
            no longer that: a number, or a share of the capacity; ``None`` for none. See
            :class:`HybridWriter`.
        device: of the default storage.
        generator: for sampling; it also seeds the decisions.
        **options: of ``TensorDictReplayBuffer``: sampler, batch_size, prefetch,
            transform, ...

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch._C.Generator object at ...>
        >>> buffer = InfoReservoirReplayBuffer(8, num_classes=2, batch_size=4)
        >>> labels = torch.tensor([0] * 120 + [1] * 8)
        >>> items = TensorDict(
        ...     {
        ...         "observation": torch.randn(128, 5),
        ...         "feature": torch.nn.functional.one_hot(labels, 2) + 0.1,
        ...         "target": labels,
        ...     },
        ...     batch_size=[128],
        ... )
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
        storage: Storage | Callable[[], Storage] | None = None,
        criterion: Criterion | None = None,
        gamma: float = 0.0,
        noise: float = 0.3,
        jitter: float = 0.1,
        num_classes: int | None = None,
        feature_key: NestedKey = "feature",
        target_key: NestedKey = "target",
        decay: float | None = None,
        dtype: torch.dtype = torch.float64,
        recent: int | float | None = None,
        device: torch.device | str | None = None,
        generator: torch.Generator | None = None,
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
            dtype=dtype,
        )
        super().__init__(
            capacity,
            storage=storage,
            writer=writer if recent is None else HybridWriter(writer, recent),
            device=device,
            generator=generator,
            **options,
        )
