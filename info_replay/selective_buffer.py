"""A TorchRL buffer around any selection writer: :class:`SelectiveReplayBuffer`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import Storage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler

from info_replay.model.moments import RunningMoments
from info_replay.model.posterior import BayesianLinearPosterior
from info_replay.storage.buffer_parts import (
    check_sampler_fits,
    make_generator,
    make_storage,
)
from info_replay.storage.buffer_state import (
    restore_buffer,
    save_buffer,
    wait_for_samples,
)
from info_replay.storage.entries import check_entry, check_tensordict
from info_replay.storage.priorities import check_priorities, kept_rows, live_rows
from info_replay.storage.process_lock import ProcessLock
from info_replay.storage.snapshot import load_snapshot, save_snapshot
from info_replay.storage.tree import copy_tree
from info_replay.writers.base import SelectionWriter

__all__ = ["SelectiveReplayBuffer"]


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
        self._check_sampler(shared=self.shared)
        if self.shared:
            self._share_writer()

    def _check_sampler(self, *, shared: bool) -> None:
        compacts, policy = self._writer.compacts, type(self._writer).__name__
        check_sampler_fits(self._sampler, policy, compacts=compacts, shared=shared)

    def _share_writer(self) -> None:
        self._writer.catch_up()  # what follows from items is made before it is shared
        self._writer.share_memory_()

    def share(self, shared: bool = True) -> SelectiveReplayBuffer:
        """Let other processes use the buffer: items, counts and what the policy keeps.

        A process that is killed keeps nobody waiting; if it was writing, others get an
        error until the memory is emptied or restored.
        """
        if shared and getattr(self, "_initialized", False):
            self._check_sampler(shared=True)
        super().share(shared)
        if shared:
            # A multiprocessing.Lock stays locked if its holder is killed.
            self._write_lock = ProcessLock()
            if getattr(self, "_initialized", False):
                self._share_writer()
        return self

    def _writing(self) -> Any:
        """Keep others out while items are changed."""
        return self._writing_shared() if self.shared else self._replay_lock

    @contextlib.contextmanager
    def _writing_shared(self) -> Iterator[None]:
        with self._replay_lock, self._write_lock, self._write_lock.writing():
            yield

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
        check_tensordict(data, "an item")
        data = self.transform.inv(data)
        if data is None:
            return -1
        prioritized = isinstance(self._sampler, PrioritizedSampler)
        if prioritized:
            check_priorities(data.get(self.priority_key, None), self.priority_key)
        with self._writing():
            slot = int(self._add(data))
            data.set("index", torch.as_tensor(slot, device=data.device))
            if slot >= 0 and prioritized:
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
        if self._is_plain(tensordicts):
            # TorchRL copies the batch for inverse transforms and marks the copy with
            # the slots; without transforms nobody would ever see it.
            slots = self._extend(tensordicts)
            return slots
        lock: Any = contextlib.nullcontext()
        if isinstance(self.sampler, PrioritizedSampler):
            lock = self._writing()  # nobody may empty it before priorities are set
            if isinstance(tensordicts, TensorDictBase):
                key = self.priority_key
                check_priorities(tensordicts.get(key, None), key)
        with lock:
            slots = super().extend(tensordicts, update_priority=update_priority)
        return slots

    def _extend(self, data: TensorDictBase, **options: Any) -> Tensor:
        if not self.shared:
            slots: Tensor = super()._extend(data, **options)
            return slots
        with self._writing():
            return super()._extend(data, **options)

    def __setitem__(self, index: Any, value: TensorDictBase) -> None:
        """Put other items into slots in use; samples from these slots become stale."""
        if isinstance(index, str | tuple):
            check_entry(index, value, self._writer.slots.device)
            super().__setitem__(index, value)
            return
        check_tensordict(value, "items")
        if len(self.transform):
            value = self.transform.inv(value)
        with self._writing():
            self._writer.replace(index, value)

    def empty(self, empty_write_count: bool = True) -> None:
        """Forget every item; samples from before become stale.

        Args:
            empty_write_count: whether the number of offered items starts again, too.
        """
        with self._alone(replacing=True):
            super().empty(empty_write_count)
            self._clear_prefetch_queue_locked()

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
        check_tensordict(data, "items")
        if data.batch_dims and not len(data):
            raise ValueError("expected at least one item, got an empty batch")
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
        with self._writing():
            self._writer.update_features(data)

    def update_tensordict_priority(self, data: TensorDictBase) -> None:
        """TorchRL's hook after replay: new features first, then priorities.

        Args:
            data: a sample; policies that do not look at features ignore them.
        """
        check_tensordict(data, "a sample")
        keeps_features = self._writer.feature_key is not None
        if not isinstance(self._sampler, PrioritizedSampler):
            if keeps_features:
                self.update_features(data)
            return
        with self._writing():
            check_priorities(data.get(self.priority_key, None), self.priority_key)
            live = live_rows(data, self._writer.slots)
            if keeps_features:
                self.update_features(data)
            if len(live) or not live.batch_dims:
                super().update_tensordict_priority(live)

    def update_priority(self, index: Any, priority: Any) -> None:
        """Set priorities of items; those that were not kept, slot -1, have none.

        Args:
            index: their slots.
            priority: finite numbers of at least 0.
        """
        places = torch.as_tensor(index)
        numbers = torch.as_tensor(priority)
        check_priorities(numbers, self.priority_key)
        with self._writing():
            kept = kept_rows(places, len(self._storage))
            if kept is not None:
                places = places[kept]
                numbers = numbers[kept] if numbers.ndim else numbers
            if places.numel():
                super().update_priority(places, numbers)

    # -- saving -----------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """A snapshot of everything; unlike TorchRL's it does not change any more.

        Returns:
            Plain values and tensors that ``torch.load(weights_only=True)`` accepts.
        """
        with self._alone():
            state: dict[str, Any] = copy_tree(save_buffer(self))
            return state

    @contextlib.contextmanager
    def _alone(self, *, replacing: bool = False) -> Iterator[None]:
        """Keep other threads and processes out while the buffer is saved or replaced.

        Pending samples and updates need the replay lock, so they are waited for first.
        """
        with self._futures_lock:
            wait_for_samples(self, replacing=replacing)
            if not replacing:
                self.synchronize()
            lock: Any = self._write_lock
            if replacing and isinstance(lock, ProcessLock):
                lock = lock.repairing()
            with self._replay_lock, lock:
                yield

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`.

        Args:
            state_dict: of a buffer with the same policy, capacity, sampler and
                transforms.

        Raises:
            ValueError: if it does not fit; nothing is changed then.
        """
        with self._alone(replacing=True):
            restore_buffer(self, state_dict)

    def dumps(self, path: str | Path) -> None:
        """Save to a folder, atomically: what was saved there stays until it is done.

        Args:
            path: the folder; it is made if it is not there.

        Raises:
            OSError: if it cannot be written, on a full disk for one.
        """
        with self._alone():
            save_snapshot(path, save_buffer(self))

    def loads(self, path: str | Path) -> None:
        """Continue from a folder that :meth:`dumps` wrote; runs no code from it.

        Args:
            path: the folder.

        Raises:
            FileNotFoundError: if nothing was saved there.
            ValueError: if it is damaged, or does not fit this buffer; nothing is
                changed then.
        """
        self.load_state_dict(load_snapshot(path))

    def __getstate__(self) -> dict[str, Any]:
        """TorchRL's, with the generator's state kept alive until a child has it."""
        # TorchRL puts it into a tensor that is gone before a child has opened it.
        state: dict[str, Any] = super().__getstate__()
        state.pop("_sent_generator", None)
        if get_spawning_popen() is not None:
            self._sent_generator = state.get("_rng")
        return state
