"""A TorchRL buffer around any selection writer: :class:`SelectiveReplayBuffer`."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import LazyTensorStorage, Storage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler

from info_replay.moments import RunningMoments
from info_replay.posterior import BayesianLinearPosterior
from info_replay.snapshot import current_snapshot, new_snapshot
from info_replay.writers import InformationWriter, SelectionWriter

__all__ = ["SelectiveReplayBuffer"]


class SelectiveReplayBuffer(TensorDictReplayBuffer):
    """A ``TensorDictReplayBuffer`` that keeps what its writer selects.

    Beside what TorchRL's buffer does, :meth:`extend` tells which items were kept,
    :meth:`update_tensordict_priority` writes refreshed features back, ``dumps`` is
    atomic, and a restored buffer goes on to the bit: decisions, samples and all.

    Args:
        capacity: number of slots; may be left out if ``storage`` is given.
        writer: a :class:`SelectionWriter`, or a function that makes one.
        storage: a tensor storage, ``LazyTensorStorage(capacity, device=device)`` by
            default.
        device: of the default storage.
        generator: for sampling; it also seeds the writer. By default a new one, seeded
            from torch's global generator.
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
        **options: Any,
    ) -> None:
        storage = _make_storage(capacity, storage, device)
        if generator is None:
            generator = _make_generator(storage)
        super().__init__(storage=storage, writer=writer, generator=generator, **options)

    def _init(self) -> None:
        super()._init()
        if not isinstance(self._writer, SelectionWriter):
            raise TypeError(
                "writer must be a SelectionWriter such as ReservoirWriter(), got "
                f"{type(self._writer).__name__}"
            )
        if self._writer.regroups and isinstance(self._sampler, PrioritizedSampler):
            raise ValueError(
                f"{type(self._writer).__name__} gives up slots and moves items, which "
                f"a {type(self._sampler).__name__} cannot follow; use a RandomSampler"
            )
        if self.shared:
            self._writer.share_memory_()

    def share(self, shared: bool = True) -> SelectiveReplayBuffer:
        """Let other processes use the buffer; see TorchRL's ``share``.

        Args:
            shared: whether to share.

        Returns:
            The buffer.
        """
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
        """Number of items that entered reservoir sampling.

        Of policies without a reservoir, the number of items that were stored.
        """
        return int(self.writer.reservoir_count)

    @property
    def posterior(self) -> BayesianLinearPosterior | None:
        """What the memory knows now; ``None`` before the first item.

        Ask again after a change: one that was asked for before may lag behind.
        """
        writer = self._information_writer("a posterior")
        with self._replay_lock, self._write_lock:
            return writer.posterior

    @property
    def moments(self) -> RunningMoments:
        """Running moments of the criterion over all offered items."""
        return self._information_writer("moments").moments

    def _information_writer(self, what: str) -> InformationWriter:
        policy = self.writer.policy
        if not isinstance(policy, InformationWriter):
            raise AttributeError(f"{type(policy).__name__} does not keep {what}")
        return policy

    def add(self, data: TensorDictBase) -> int:
        """Offer one item.

        Args:
            data: the item, ``batch_size=[]``.

        Returns:
            Its slot, -1 if it was not kept.
        """
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
        writer = self._information_writer("scores")
        with self._replay_lock, self._write_lock:
            return writer.score(data)

    def update_features(self, data: TensorDictBase) -> None:
        """Write new features back to the slots that a sample came from.

        Slots that hold another item by now are left alone.

        Args:
            data: a sample, with its ``"index"`` and new features.
        """
        policy = self._writer.policy
        if not policy.keeps_features:
            raise AttributeError(f"{type(policy).__name__} does not keep features")
        self._write_features(data)

    def _write_features(self, data: TensorDictBase) -> None:
        with self._replay_lock, self._write_lock:
            self._writer.update_features(data)

    def update_tensordict_priority(self, data: TensorDictBase) -> None:
        """TorchRL's hook after replay: new features first, then priorities.

        Args:
            data: a sample; policies that keep no features ignore them.
        """
        if self._writer.policy.keeps_features:
            self._write_features(data)
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
            state: dict[str, Any] = _clone(super().state_dict())
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
        self._restore_device()

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
        self._restore_device()

    def __getstate__(self) -> dict[str, Any]:
        """TorchRL's, with the generator's state kept alive until a child has it.

        TorchRL puts that state into a tensor which is gone before a child process has
        opened its memory.
        """
        state: dict[str, Any] = super().__getstate__()
        state.pop("_sent_generator", None)
        if get_spawning_popen() is not None:
            self._sent_generator = state.get("_rng")
        return state

    def _restore_device(self) -> None:
        """Move what TorchRL restored on the saved device to the storage's own."""
        storage = self._storage
        content, device = storage._storage, storage.device
        if content is None or device == "auto" or content.is_memmap():
            return
        if any(leaf.device != device for leaf in content.values(True, True)):
            storage._storage = content.to(device)


def _make_storage(
    capacity: int | None,
    storage: Storage | Callable[[], Storage] | None,
    device: torch.device | str | None,
) -> Storage | Callable[[], Storage]:
    """The storage that was given, or a new one; checks that both sizes agree."""
    if capacity is not None and (
        isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1
    ):
        raise ValueError(
            f"capacity must be a whole number of at least 1, got {capacity!r}"
        )
    if storage is None:
        if capacity is None:
            raise ValueError("give a capacity or a storage")
        return LazyTensorStorage(capacity, device=device or "cpu")
    if device is not None:
        raise ValueError(
            "device is that of the default storage; give it to your own storage instead"
        )
    if isinstance(storage, Storage) and capacity not in (None, storage.max_size):
        raise ValueError(
            f"capacity={capacity} does not agree with a storage of "
            f"max_size={storage.max_size}"
        )
    return storage


def _make_generator(
    storage: Storage | Callable[[], Storage],
) -> torch.Generator | None:
    """A generator on the storage's device, so that saved samples can be continued."""
    device = torch.device(
        "cpu" if getattr(storage, "device", None) in (None, "auto") else storage.device  # type: ignore[union-attr]
    )
    if device.type == "cuda" and not torch.cuda.is_available():
        return None
    generator = torch.Generator(device=device)
    generator.manual_seed(int(torch.randint(2**63 - 1, ())))
    return generator


def _clone(value: Any) -> Any:
    """Copy the tensors in nested containers."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        twin = copy.copy(value)  # tensordict keeps shapes in an attribute of the dict
        for key, entry in value.items():
            twin[key] = _clone(entry)
        return twin
    if type(value) in (list, tuple):
        return type(value)(map(_clone, value))
    return value
