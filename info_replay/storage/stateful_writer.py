"""A TorchRL writer whose declared state is saved, restored, emptied and shared."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import Storage, Writer

from info_replay.shared_state import DeclaredState, SharedArray
from info_replay.storage.entries import check_schema
from info_replay.storage.slots import Slots
from info_replay.storage.snapshot import load_snapshot, save_snapshot
from info_replay.storage.undo import SlotUndo
from info_replay.validation import told

__all__ = [
    "DRAWS",
    "PRELOADED",
    "RESERVOIR",
    "REVISION",
    "SEED",
    "SEEDED",
    "WRITES",
    "StatefulWriter",
]

#: Numbers that every writer keeps. "preloaded" are items that the storage held before
#: and that the policy has not looked at; "revision" is the last one that it has seen.
_COUNTS = (
    "write_count",
    "reservoir_count",
    "draw_count",
    "seed",
    "is_seeded",
    "preloaded",
    "revision",
)
WRITES, RESERVOIR, DRAWS, SEED, SEEDED, PRELOADED, REVISION = range(7)


class StatefulWriter(DeclaredState, Writer):
    """A writer with slots, a seed and counts, indexed by this module's constants."""

    slots: Slots
    tracks_generations = True  # TorchRL adds them to samples

    def __init__(self) -> None:
        super().__init__()
        self.counts = SharedArray(len(_COUNTS), np.int64)
        self._shared = False

    # -- slots ------------------------------------------------------------------------

    def register_storage(self, storage: Storage) -> None:
        """Manage a storage; items that it holds count as the first of the stream."""
        known = self.__dict__.get("slots")
        if known is None or known.storage is not storage:
            self.manage(Slots(storage))

    def manage(self, slots: Slots) -> None:
        """Manage all slots of a storage, or a range of them, from now on."""
        for part in self._parts.values():
            attach = getattr(part, "attach", None)
            if attach is not None:
                attach(slots)
        self.slots = slots
        self._storage = slots.storage
        self.counts.array[REVISION] = slots.look()
        self._count_preloaded()
        if self._shared:
            self.share_memory_()

    def _count_preloaded(self) -> None:
        """Count items that were there before the first that was offered."""
        counts = self.counts.array
        if counts[WRITES] or counts[RESERVOIR]:
            return
        if size := len(self.slots):
            counts[[RESERVOIR, DRAWS, PRELOADED]] = size
            counts[REVISION] = -1

    def __getattr__(self, name: str) -> Any:
        """Say that there is no storage yet if slots are asked for."""
        if name == "slots":
            raise RuntimeError(
                f"{type(self).__name__} has no storage yet; give it to a replay buffer"
            )
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def generations_of(self, index: int | Tensor) -> Tensor:
        """How often each slot was rewritten; -1 if it never was written."""
        return self.slots.generations_of(index)

    @property
    def revision(self) -> int:
        """The revision of the storage when the writer last looked at it."""
        return int(self.counts.array[REVISION])

    @property
    def _write_count(self) -> int:
        return int(self.counts.array[WRITES])

    @_write_count.setter
    def _write_count(self, value: int) -> None:
        self.counts.array[WRITES] = value

    # -- seed -------------------------------------------------------------------------

    @property
    def seed(self) -> int:
        """What random decisions depend on, beside the number of each item.

        Drawn once, from the buffer's generator or torch's global one, and saved.
        """
        if not self.counts.array[SEEDED]:
            self.seed = int(torch.randint(2**63 - 1, ()))
        return int(self.counts.array[SEED])

    @seed.setter
    def seed(self, value: int) -> None:
        if not 0 <= value < 2**63:
            raise ValueError(f"seed must be a number from 0 to 2**63 - 1, got {value}")
        self.counts.array[SEED] = value
        self.counts.array[SEEDED] = 1

    def seed_from(self, generator: torch.Generator) -> None:
        """Draw the seed from a generator, unless there is one."""
        # TorchRL sets its generator again after a restart: the restored seed stays.
        if not self.counts.array[SEEDED]:
            device = generator.device
            self.seed = int(
                torch.randint(2**63 - 1, (), generator=generator, device=device)
            )

    @property
    def _rng(self) -> torch.Generator | None:
        return None

    @_rng.setter
    def _rng(self, generator: torch.Generator | None) -> None:
        if generator is not None:
            self.seed_from(generator)

    # -- emptying, saving and sharing -------------------------------------------------

    def clear(self, *, keep_write_count: bool = False) -> None:
        """Forget every item; samples from before become stale."""
        counts = self.counts.array
        counts[RESERVOIR] = 0
        if counts[PRELOADED]:
            counts[[PRELOADED, DRAWS]] = 0
        if not keep_write_count:
            counts[WRITES] = 0
        # TorchRL empties the storage next, which changes its revision.
        counts[REVISION] = -1
        if "slots" in self.__dict__:
            self.slots.empty()
        self.clear_state()

    def _empty(self, empty_write_count: bool = True) -> None:
        self.clear(keep_write_count=not empty_write_count)

    def state_dict(self) -> dict[str, Any]:
        """Everything that later decisions depend on, as plain values and tensors."""
        self.seed  # noqa: B018  an unseeded writer would be seeded anew after a restart
        counts = dict(zip(_COUNTS, self.counts.array.tolist(), strict=True))
        return {
            "settings": self._all_settings(),
            "counts": counts,
            "in_step": counts.pop("revision") == self.slots.look(),
            "generations": self.slots.save_generations(),
            "state": self.save_state(),
        }

    def _all_settings(self) -> dict[str, Any]:
        return {
            "writer": type(self).__name__,
            "capacity": self.slots.capacity,
            "item": self.slots.schema(),
            **self.settings(),
        }

    def check_settings(self, state_dict: Any) -> None:
        """Raise ``ValueError`` if a saved state is not of a writer with these settings.

        The entries of items are compared if there is a first item.
        """
        parts = {"settings", "counts", "in_step", "generations", "state"}
        if not isinstance(state_dict, dict) or state_dict.keys() != parts:
            raise ValueError(
                f"this is not the state of a {type(self).__name__}: expected "
                f"{sorted(parts)}, got {told(state_dict)}"
            )
        saved = state_dict["settings"]
        if not isinstance(saved, dict):
            raise ValueError(f"expected settings by name, got {told(saved)}")
        for name, expected in self._all_settings().items():
            found = saved.get(name)
            if name == "item":
                if not isinstance(found, dict):
                    raise ValueError(f"expected a schema of items, got {told(found)}")
                check_schema(found, expected)
            elif isinstance(found, Tensor) or found != expected:
                raise ValueError(
                    f"cannot restore a memory with {name}={told(found)} into one with "
                    f"{name}={expected!r}"
                )

    def check_state(self, state_dict: dict[str, Any]) -> None:
        """Raise ``ValueError`` if a saved state does not fit; changes nothing."""
        self.check_settings(state_dict)
        counts = state_dict["counts"]
        if not isinstance(counts, dict) or counts.keys() != {*_COUNTS[:-1]}:
            raise ValueError(f"a writer counts {_COUNTS[:-1]}, got {told(counts)}")
        for name, count in counts.items():
            most = 2**63 if name == "seed" else 2**62  # counts must be able to grow
            if type(count) is not int or not 0 <= count < most:
                raise ValueError(f"{name} must be a number from 0 on, got {count!r}")
        if type(state_dict["in_step"]) is not bool:
            raise ValueError(
                f"in_step must be true or false, got {told(state_dict['in_step'])}"
            )
        self.slots.check_generations(state_dict["generations"])
        self.check_saved(state_dict["state"])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`; the storage must be restored already.

        Raises:
            ValueError: if it is of another policy, capacity, item or setting; nothing
                changes.
        """
        self.check_state(state_dict)
        self.load_checked(state_dict)

    def check_stored(self, items: TensorDictBase) -> None:
        """Raise ``ValueError`` if saved items cannot be computed with; often nothing.

        Args:
            items: with the entries that this writer's slots have room for.
        """

    def load_checked(self, state_dict: dict[str, Any]) -> None:
        """Continue from what :meth:`check_state` let pass; cannot fail."""
        self.slots.load_generations(state_dict["generations"])
        self.restore_state(state_dict["state"])
        counts = state_dict["counts"]
        revision = self.slots.look() if state_dict["in_step"] else -1
        self.counts.array[:] = [*(counts[name] for name in _COUNTS[:-1]), revision]

    def dumps(self, path: str | Path) -> None:
        """Save :meth:`state_dict` to a folder; see :func:`save_snapshot`."""
        save_snapshot(path, self.state_dict())

    def loads(self, path: str | Path) -> None:
        """Continue from the folder that :meth:`dumps` wrote."""
        self.load_state_dict(load_snapshot(path))

    @contextlib.contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Take back everything that was written in the block if it raises."""
        counts, state = self.counts.array.copy(), self.save_state()
        in_step = counts[REVISION] == self.slots.look()
        undo = SlotUndo(self.slots)
        try:
            yield
        except BaseException:
            undo.take_back()
            self.restore_state(state)
            self.counts.array[:] = counts
            self.counts.array[REVISION] = self.slots.revision if in_step else -1
            raise
        undo.finish()

    def share_memory_(self) -> StatefulWriter:
        """Move counts and declared state to shared memory; returns the writer."""
        self._shared = True
        self.counts.share_memory_()
        self.share_state()
        if "slots" in self.__dict__:
            self.slots.share_memory_()
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to be sent to a child process before there is anything to share."""
        slots = self.__dict__.get("slots")
        empty = slots is None or not slots.has_generations
        if empty and get_spawning_popen() is not None:
            raise RuntimeError(
                f"{type(self).__name__} shares its statistics between processes, and "
                "they take their shape from the first item: extend the buffer once, "
                "then empty() it, before it is sent to another process"
            )
        return self.__dict__.copy()
