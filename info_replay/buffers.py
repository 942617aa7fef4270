"""Replay buffers that choose what to keep.

* :class:`SelectiveReplayBuffer`, a TorchRL buffer around any selection writer;
* :class:`InfoReservoirReplayBuffer`, the memory of the paper (InfoRS).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.data import Storage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler, SliceSampler

from info_replay.model.criteria import Criterion
from info_replay.model.moments import RunningMoments
from info_replay.model.posterior import BayesianLinearPosterior
from info_replay.storage.buffer_parts import (
    copy_state,
    make_generator,
    make_storage,
    restore_device,
)
from info_replay.storage.snapshot import current_snapshot, new_snapshot
from info_replay.writers.base import SelectionWriter
from info_replay.writers.hybrid import HybridWriter
from info_replay.writers.info_reservoir import InfoReservoirWriter

__all__ = ["InfoReservoirReplayBuffer", "SelectiveReplayBuffer"]


class SelectiveReplayBuffer(TensorDictReplayBuffer):
    """A ``TensorDictReplayBuffer`` that keeps what its writer selects.

    Beside what TorchRL's buffer does, :meth:`extend` tells which items were kept,
    :meth:`update_tensordict_priority` writes refreshed features back, ``dumps`` is
    atomic, and a restored buffer goes on bit for bit: decisions, samples and all.

    Args:
        capacity: number of slots; may be left out if ``storage`` is given.
        writer: a :class:`SelectionWriter`, or a function that makes one.
        storage: a tensor storage, ``LazyTensorStorage(capacity, device=device)`` by
            default.
        device: of the default storage.
        generator: for sampling; it also seeds the writer. By default a new one, seeded
            from torch's global generator.
        fixed_features: whether features never change, as those of a frozen network:
            then write-backs return at once.
        **options: of ``TensorDictReplayBuffer``.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from info_replay import ReservoirWriter
        >>> buffer = SelectiveReplayBuffer(4, writer=ReservoirWriter(), batch_size=2)
        >>> items = TensorDict({"x": torch.arange(8)}, batch_size=[8])
        >>> slots = buffer.extend(items)
        >>> slots.shape, len(buffer), buffer.write_count, buffer.reservoir_count
        (torch.Size([8]), 4, 8, 8)
        >>> buffer.sample()["x"].shape
        torch.Size([2])
    """

    def __init__(
        self,
        capacity: int | None = None,
        *,
        writer: SelectionWriter | Callable[[], SelectionWriter],
        storage: Storage | Callable[[], Storage] | None = None,
        device: torch.device | str | None = None,
        generator: torch.Generator | None = None,
        fixed_features: bool = False,
        **options: Any,
    ) -> None:
        self.fixed_features = fixed_features
        storage = make_storage(capacity, storage, device)
        if generator is None:
            generator = make_generator(storage)
        super().__init__(storage=storage, writer=writer, generator=generator, **options)

    def _init(self) -> None:
        super()._init()
        if not isinstance(self._writer, SelectionWriter):
            raise TypeError(
                "writer must be a SelectionWriter such as ReservoirWriter(), got "
                f"{type(self._writer).__name__}"
            )
        if isinstance(self._sampler, SliceSampler):
            raise ValueError(
                f"a {type(self._sampler).__name__} draws consecutive steps, but this "
                "memory keeps items in no particular order: slices would mix episodes; "
                "store whole sequences as items instead, with one feature each, and "
                "use a RandomSampler"
            )
        if self._writer.compacts and isinstance(self._sampler, PrioritizedSampler):
            raise ValueError(
                f"{type(self._writer).__name__} gives up slots and moves items, which "
                f"a {type(self._sampler).__name__} cannot follow; use a RandomSampler"
            )
        if self.shared:
            self._writer.share_memory_()

    def share(self, shared: bool = True) -> SelectiveReplayBuffer:
        """Let other processes use the buffer; see TorchRL's ``share``."""
        super().share(shared)
        if shared and getattr(self, "_initialized", False):
            self._writer.share_memory_()
        return self

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return int(self.storage.max_size)

    @property
    def reservoir_count(self) -> int:
        """Items that entered reservoir sampling or, without one, that were stored."""
        return int(self.writer.reservoir_count)

    @property
    def posterior(self) -> BayesianLinearPosterior | None:
        """What the memory knows now; ``None`` before the first item.

        Ask again after a change: one that was asked for before may lag behind.
        """
        policy = self._policy_with("posterior")
        with self._replay_lock, self._write_lock:
            self._writer.catch_up()
            posterior: BayesianLinearPosterior | None = policy.posterior
            return posterior

    @property
    def moments(self) -> RunningMoments:
        """Running moments of the criterion over all offered items."""
        moments: RunningMoments = self._policy_with("moments").moments
        return moments

    def _policy_with(self, name: str) -> Any:
        """The policy, if it has an attribute."""
        policy = self.writer.policy
        if not hasattr(type(policy), name) and name not in vars(policy):
            raise AttributeError(f"{type(policy).__name__} has no {name}")
        return policy

    def add(self, data: TensorDictBase) -> int:
        """Offer one item.

        Args:
            data: the item, ``batch_size=[]``.

        Returns:
            Its slot, -1 if it was not kept.
        """
        if not isinstance(data, TensorDictBase):
            raise TypeError(
                f"expected an item as a TensorDict, got {type(data).__name__}"
            )
        data = self.transform.inv(data)
        if data is None:
            return -1
        slot = int(self._add(data))
        data.set("index", torch.as_tensor(slot, device=data.device))
        if slot >= 0 and isinstance(self._sampler, PrioritizedSampler):
            super().update_tensordict_priority(data)
        return slot

    def extend(
        self, tensordicts: TensorDictBase, *, update_priority: bool | None = None
    ) -> Tensor:
        """Offer a batch of items.

        Args:
            tensordicts: the batch, ``batch_size=[n]``.
            update_priority: whether a priority in the batch is handed to the sampler.

        Returns:
            The slot of each item, shape ``(n,)``, -1 where it was not kept.
        """
        slots: Tensor
        if not self._is_plain(tensordicts):
            slots = super().extend(tensordicts, update_priority=update_priority)
            return slots
        # TorchRL copies the batch for inverse transforms and marks the copy with the
        # slots; without transforms nobody would ever see it.
        slots = self._extend(tensordicts)
        return slots

    def _is_plain(self, data: Any) -> bool:
        """Whether TorchRL has nothing to add to what the writer does with a batch."""
        return (
            isinstance(data, TensorDictBase)
            and getattr(self, "_initialized", False)
            and not len(self._transform)
            and not isinstance(self._sampler, PrioritizedSampler)
        )

    def score(self, data: TensorDictBase) -> Tensor:
        """The criterion of items against the memory as it is; changes nothing.

        Args:
            data: a batch with features and targets.

        Returns:
            Scores, shape ``(n,)``.
        """
        policy = self._policy_with("posterior")
        with self._replay_lock, self._write_lock:
            self._writer.catch_up()
            scores: Tensor = policy.score(data)
            return scores

    def update_features(self, data: TensorDictBase) -> None:
        """Write new features back to the slots that a sample came from.

        Slots that hold another item by now are left alone.

        Args:
            data: a sample, with its ``"index"`` and new features.
        """
        if self.fixed_features:
            return
        with self._replay_lock, self._write_lock:
            self._writer.update_features(data)

    def update_tensordict_priority(self, data: TensorDictBase) -> None:
        """TorchRL's hook after replay: new features first, then priorities.

        Args:
            data: a sample; policies that do not look at features ignore them.
        """
        if self._writer.feature_key is not None:
            self.update_features(data)
        if isinstance(self._sampler, PrioritizedSampler):
            super().update_tensordict_priority(data)

    # -- saving -----------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """A snapshot of everything; unlike TorchRL's it does not change any more.

        Returns:
            Plain values and tensors that ``torch.load(weights_only=True)`` accepts,
            unless samples are prefetched: those are tensordicts.
        """
        with self._alone():
            state: dict[str, Any] = copy_state(super().state_dict())
            return state

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other threads and processes out while the buffer is saved.

        Pending samples and updates need the replay lock, so they are waited for first.
        """
        with self._futures_lock:
            self.synchronize()
            with self._replay_lock, self._write_lock:
                yield

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`.

        Args:
            state_dict: of a buffer with the same policy and capacity.

        Raises:
            ValueError: if it does not fit; nothing is changed then.
        """
        for part in ("_storage", "_sampler", "_writer", "_transforms", "_batch_size"):
            if part not in state_dict:
                raise ValueError(
                    "this is not the state of a replay buffer with a "
                    f"{type(self.writer).__name__}: it has no {part!r}"
                )
        self.writer.check_state(state_dict["_writer"])
        super().load_state_dict(state_dict)
        restore_device(self._storage)

    def dumps(self, path: str | Path) -> None:
        """Save to a folder, atomically: what was saved there stays until it is done.

        Args:
            path: the folder; it is made if it is not there.
        """
        with self._alone(), new_snapshot(path) as snapshot:
            super().dumps(snapshot)

    def loads(self, path: str | Path) -> None:
        """Continue from a folder that :meth:`dumps` wrote.

        Args:
            path: the folder.

        Raises:
            FileNotFoundError: if nothing was saved there.
            ValueError: if it does not fit this buffer; nothing is changed then.
        """
        with current_snapshot(path) as snapshot:
            self.writer.check_state(self.writer.read_state(snapshot / "writer"))
            super().loads(snapshot)
        restore_device(self._storage)

    def __getstate__(self) -> dict[str, Any]:
        """TorchRL's, with the generator's state kept alive until a child has it."""
        # TorchRL puts it into a tensor that is gone before a child has opened it.
        state: dict[str, Any] = super().__getstate__()
        state.pop("_sent_generator", None)
        if get_spawning_popen() is not None:
            self._sent_generator = state.get("_rng")
        return state


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
            dtype=dtype,
        )
        ringed = writer if recent is None else HybridWriter(writer, recent)
        super().__init__(capacity, writer=ringed, **options)
