"""A TorchRL writer that is saved, restored, emptied and shared by declaration.

:class:`StatefulWriter` is what selection writers are to TorchRL, apart from writing.
"""

from __future__ import annotations

from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchrl.data import Storage, Writer

from info_replay.shared_state import DeclaredState, SharedArray
from info_replay.storage.slots import Slots, check_schema

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

#: What every writer counts: offered items, items that entered a reservoir or were
#: stored, the next random draw, the seed and whether there is one, items that the
#: storage held already and that the policy has not looked at, and the revision of the
#: storage when the writer last looked at it.
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
    """A writer with slots, counts and a seed.

    Attributes:
        slots: the slots that the writer manages.
        counts: numbers that every writer keeps, by the constants of this module.
    """

    slots: Slots
    tracks_generations = True  # TorchRL adds them to samples

    def __init__(self) -> None:
        super().__init__()
        self.counts = SharedArray(len(_COUNTS), np.int64)
        self._shared = False

    # -- slots ------------------------------------------------------------------------

    def register_storage(self, storage: Storage) -> None:
        """Take a storage; items that it holds already count as the first of the stream.

        Args:
            storage: a one-dimensional tensor storage.
        """
        known = self.__dict__.get("slots")
        if known is None or known.storage is not storage:
            self.manage(Slots(storage))

    def manage(self, slots: Slots) -> None:
        """Manage some slots from now on.

        Args:
            slots: all slots of a storage, or a range of them.
        """
        for part in self._parts.values():
            attach = getattr(part, "attach", None)
            if attach is not None:
                attach(slots)
        self.slots = slots
        self._storage = slots.storage
        counts = self.counts.array
        counts[REVISION] = slots.look()
        if len(slots) and not (counts[WRITES] or counts[RESERVOIR]):
            counts[[RESERVOIR, DRAWS, PRELOADED]] = len(slots)
            counts[REVISION] = -1
        if self._shared:
            self.share_memory_()

    def __getattr__(self, name: str) -> Any:
        """Say what is missing if there are no slots yet."""
        if name == "slots":
            raise RuntimeError(
                f"{type(self).__name__} has no storage yet; give it to a replay buffer"
            )
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def generations_of(self, index: int | Tensor) -> Tensor:
        """How often each slot was rewritten, -1 for a slot that never was written.

        Args:
            index: slots; -1 has generation -1.

        Returns:
            Generations, of the shape and on the device of ``index``.
        """
        return self.slots.generations_of(index)

    @property
    def revision(self) -> int:
        """That of the storage when the writer last looked at it."""
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
        """What the random decisions depend on, beside the number of each item.

        Drawn once: from the buffer's generator if it has one, else from torch's global
        generator. It travels with the saved state.
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
        """Draw the seed from a generator, if there is none yet.

        Args:
            generator: on any device.
        """
        # TorchRL hands its generator over when the buffer is built and again after a
        # restart, when the restored seed must stand.
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
        """Forget every item; samples from before become stale.

        Args:
            keep_write_count: whether to go on counting offered items.
        """
        counts = self.counts.array
        counts[RESERVOIR] = 0
        if counts[PRELOADED]:
            counts[[PRELOADED, DRAWS]] = 0
        if not keep_write_count:
            counts[WRITES] = 0
        # The storage is emptied after its writer: the next use finds it changed.
        counts[REVISION] = -1
        if "slots" in self.__dict__:
            self.slots.empty()
        self.clear_state()

    def _empty(self, empty_write_count: bool = True) -> None:
        self.clear(keep_write_count=not empty_write_count)

    def state_dict(self) -> dict[str, Any]:
        """Everything that later decisions depend on, as plain values and tensors."""
        self.seed  # noqa: B018  an unseeded writer would be seeded anew after a restart
        slots, values = self.slots, self.counts.array.tolist()
        counts = dict(zip(_COUNTS, values, strict=True))
        return {
            "settings": self._all_settings(),
            "counts": counts,
            "in_step": counts.pop("revision") == slots.look(),
            "generations": slots.save_generations(),
            "state": self.save_state(),
        }

    def _all_settings(self) -> dict[str, Any]:
        return {
            "writer": type(self).__name__,
            "capacity": self.slots.capacity,
            "item": self.slots.schema(),
            **self.settings(),
        }

    def check_state(self, state_dict: dict[str, Any]) -> None:
        """Refuse a saved state that does not fit this writer; changes nothing.

        Args:
            state_dict: from :meth:`state_dict`.

        Raises:
            ValueError: naming the setting, the saved value and the one expected.
        """
        try:
            saved, counts = state_dict["settings"], state_dict["counts"]
            state, _ = state_dict["state"], state_dict["in_step"]
        except (KeyError, TypeError):
            raise ValueError(
                f"this is not the state of a {type(self).__name__}: it has no settings"
            ) from None
        for name, expected in self._all_settings().items():
            found = saved.get(name)
            if name == "item":
                check_schema(found or {}, expected)
            elif found != expected:
                raise ValueError(
                    f"cannot restore a memory with {name}={found!r} into one with "
                    f"{name}={expected!r}"
                )
        if counts.keys() != {*_COUNTS} - {"revision"}:
            raise ValueError(f"a writer counts {_COUNTS}, got {sorted(counts)}")
        self.check_saved(state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`, the storage being restored already.

        Raises:
            ValueError: if it is of another policy, capacity, item or setting; nothing
                changes.
        """
        self.check_state(state_dict)
        self.slots.load_generations(state_dict["generations"])
        self.restore_state(state_dict["state"])
        counts = state_dict["counts"]
        revision = self.slots.look() if state_dict["in_step"] else -1
        self.counts.array[:] = [*(counts[name] for name in _COUNTS[:-1]), revision]

    def dumps(self, path: str | Path) -> None:
        """Write :meth:`state_dict` to a folder.

        Args:
            path: the folder; it is made if it is not there.
        """
        folder = Path(path).absolute()
        folder.mkdir(exist_ok=True)
        torch.save(self.state_dict(), folder / "writer.pt")

    def loads(self, path: str | Path) -> None:
        """Continue from what :meth:`dumps` wrote.

        Args:
            path: the folder.
        """
        self.load_state_dict(self.read_state(path))

    @staticmethod
    def read_state(path: str | Path) -> dict[str, Any]:
        """Read the state that :meth:`dumps` wrote; runs no code from the file.

        Args:
            path: the folder.

        Returns:
            The state, on the host.
        """
        file = Path(path).absolute() / "writer.pt"
        if not file.exists():
            raise FileNotFoundError(f"no saved selection writer: {file} is missing")
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        return state

    def share_memory_(self) -> StatefulWriter:
        """Move counts and declared state to memory that child processes share.

        Returns:
            The writer.
        """
        self._shared = True
        self.counts.share_memory_()
        self.share_state()
        if "slots" in self.__dict__:
            self.slots.share_generations()
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to be sent to a child process before there is anything to share."""
        slots = self.__dict__.get("slots")
        spawning = get_spawning_popen() is not None
        if spawning and (slots is None or not slots.has_generations):
            raise RuntimeError(
                f"{type(self).__name__} shares its statistics between processes, and "
                "they take their shape from the first item: extend the buffer once, "
                "then empty() it, before it is sent to another process"
            )
        return self.__dict__.copy()
