"""What all selection policies share: :class:`SelectionWriter`.

A policy only decides (:meth:`SelectionWriter._decide`); checking, writing, counting,
saving and sharing are done here, once.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.data import Storage, Writer

from info_replay.writers.generations import Generations
from info_replay.writers.host import Counters, RandomStream
from info_replay.writers.slots import Slots, check_schema, keep_last

__all__ = ["Commit", "Decision", "SelectionWriter"]

#: What to call once a decision is written, so that a failure leaves all as it was.
Commit = Callable[[], None]
#: The slot of each item, -1 where it is not kept, and the commit.
Decision = tuple[NDArray[np.int64], Commit]


class SelectionWriter(Writer):
    """A TorchRL writer that keeps some of the items that it is offered.

    ``extend`` returns the slot of every item, -1 where it was not kept. The write count
    counts offered items. Slots are stamped with a generation, so that a sample can be
    told from a later item in the same slot.

    Example:
        A policy of your own says where the items of a batch go, and what to do once
        they are written:

        >>> import numpy as np
        >>> import torch
        >>> from tensordict import TensorDict
        >>> class FirstComeWriter(SelectionWriter):
        ...     def _decide(self, data):
        ...         places = len(self.slots) + np.arange(len(data))
        ...         places[places >= self.slots.capacity] = -1
        ...         return places, lambda: None
        >>> from info_replay import SelectiveReplayBuffer
        >>> buffer = SelectiveReplayBuffer(3, writer=FirstComeWriter())
        >>> buffer.extend(TensorDict({"x": torch.arange(5)}, batch_size=[5]))
        tensor([ 0,  1,  2, -1, -1])
    """

    def __init__(self, *counters: str) -> None:
        super().__init__()
        self._counters = Counters(
            "write_count",
            "reservoir_count",
            "draw_count",
            "seed",
            "is_seeded",
            "brought",  # items that the storage held already and that nobody looked at
            *counters,
        )
        self._stream = RandomStream()
        self._slots: Slots | None = None
        self._generations = Generations()
        self._shared = False

    # -- the policy -------------------------------------------------------------------

    @abc.abstractmethod
    def _decide(self, data: TensorDictBase) -> Any:
        """Choose the slots of a batch, a ``Decision``, without changing anything yet.

        Raises:
            TypeError, KeyError, ValueError: if the batch is not what the policy needs.
        """

    def _blocks(self, count: int) -> list[slice]:
        """Parts of a batch that are decided one after the other; by default one."""
        return [slice(0, count)]

    def _check(self, data: TensorDictBase) -> None:
        """Raise what a batch would raise if it were offered; changes nothing.

        Asked where it is not decided at once: in parts, or when it left a queue.
        """

    def _prepare(self, data: TensorDictBase) -> None:
        """Make what takes its shape from the first item, before any is decided."""

    def _adopt(self, data: TensorDictBase) -> None:
        """Count items that the storage brought along as the first of the stream."""

    def _adopt_brought(self) -> None:
        if self._counters["brought"]:
            self._adopt(self.slots.read(slice(0, self._counters["brought"])))
            self._counters["brought"] = 0

    def _forget_statistics(self) -> None:
        """Reset what the policy keeps beside counters; by default nothing."""

    def _policy_state(self) -> dict[str, Any]:
        """What the policy keeps beside counters, as plain values and tensors."""
        return {}

    def _load_policy_state(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`_policy_state`."""

    def _policy_settings(self) -> dict[str, Any]:
        """Settings that a saved state must agree with."""
        return {}

    # -- TorchRL's interface ----------------------------------------------------------

    tracks_generations = True
    keeps_features = False  # whether new features of stored items are welcome
    #: Whether slots may be given up and items moved to others.
    regroups = False

    def register_storage(self, storage: Storage) -> None:
        """Take a storage; items that it holds already count as the first of the stream.

        Args:
            storage: a one-dimensional tensor storage.
        """
        if self._slots is not None and self._slots.storage is storage:
            return
        self._take(Slots(storage))

    def _take(self, slots: Slots) -> None:
        """Manage some slots from now on."""
        self._slots = slots
        self._storage = slots.storage
        if len(slots) and not self.reservoir_count:
            for name in ("reservoir_count", "draw_count", "brought"):
                self._counters[name] = len(slots)

    @property
    def policy(self) -> SelectionWriter:
        """The writer that selects: this one, unless it leaves that to another."""
        return self

    @property
    def slots(self) -> Slots:
        """The storage's slots."""
        if self._slots is None:
            raise RuntimeError(
                f"{type(self).__name__} has no storage yet; give it to a replay buffer"
            )
        return self._slots

    @torch.inference_mode(False)
    @torch.no_grad()
    def extend(self, data: TensorDictBase) -> Tensor:
        """Offer a batch of items.

        Args:
            data: the batch, ``batch_size=[n]``.

        Returns:
            The slot of each item, shape ``(n,)``, -1 where it was not kept.
        """
        device = data.device if isinstance(data, TensorDictBase) else None
        return torch.from_numpy(self._offer(data)).to(device or "cpu")

    @torch.inference_mode(False)
    @torch.no_grad()
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
        return int(self._offer(data.unsqueeze(0))[0])

    def _offer(self, data: TensorDictBase) -> NDArray[np.int64]:
        data = self.slots.admit(data)
        self._adopt_brought()
        return self._offer_admitted(data)

    def _offer_admitted(self, data: TensorDictBase) -> NDArray[np.int64]:
        """Offer a batch that fits what is stored; gives the slot of each item."""
        blocks = self._blocks(len(data))
        if len(blocks) == 1:
            return self._offer_block(data)
        self._check(data)
        return keep_last(
            np.concatenate([self._offer_block(data[block]) for block in blocks])
        )

    def _offer_block(self, data: TensorDictBase) -> NDArray[np.int64]:
        places, commit = self._decide(data)
        rows = np.flatnonzero(places >= 0)
        if rows.size:
            self._generations.prepare(self.slots)
            index = self.slots.write(places[rows], rows, data)
            self._generations.advance(self.slots, index)
            self.slots.announce(index)
        commit()
        self._counters["write_count"] += len(data)
        self._counters["draw_count"] += len(data)
        return places

    @property
    def reservoir_count(self) -> int:
        """Items that entered reservoir sampling or, without one, that were stored."""
        return self._counters["reservoir_count"]

    @property
    def _write_count(self) -> int:
        return self._counters["write_count"]

    @_write_count.setter
    def _write_count(self, value: int) -> None:
        self._counters["write_count"] = value

    # -- random draws -----------------------------------------------------------------

    @property
    def seed(self) -> int:
        """What the random decisions depend on, beside the number of each item.

        Drawn once: from the buffer's generator if it has one, else from torch's global
        generator. It travels with the saved state.
        """
        if not self._counters["is_seeded"]:
            self.seed = int(torch.randint(2**63 - 1, ()))
        return self._counters["seed"]

    @seed.setter
    def seed(self, value: int) -> None:
        if not 0 <= value < 2**63:
            raise ValueError(f"seed must be a number from 0 to 2**63 - 1, got {value}")
        self._counters["seed"] = value
        self._counters["is_seeded"] = 1

    @property
    def _rng(self) -> torch.Generator | None:
        return None

    @_rng.setter
    def _rng(self, generator: torch.Generator | None) -> None:
        # TorchRL hands its generator over when the buffer is built and again after a
        # restart, when the restored seed must stand.
        if generator is not None and not self._counters["is_seeded"]:
            self.seed = int(
                torch.randint(
                    2**63 - 1, (), generator=generator, device=generator.device
                )
            )

    def _uniforms(self, count: int) -> NDArray[np.float64]:
        """Random numbers of the next items, ``(count, 4)``; the same if asked twice."""
        return self._stream.uniforms(self.seed, self._counters["draw_count"], count)

    def generations_of(self, index: int | Tensor) -> Tensor:
        """How often each slot was rewritten, -1 for a slot that never was written.

        Args:
            index: slots; -1 has generation -1.

        Returns:
            Generations, of the shape and on the device of ``index``.
        """
        return self._generations.of(self.slots, index)

    # -- emptying, saving and sharing -------------------------------------------------

    def _empty(self, empty_write_count: bool = True) -> None:
        self._counters["reservoir_count"] = 0
        if self._counters["brought"]:
            self._counters["brought"] = self._counters["draw_count"] = 0
        if empty_write_count:
            self._counters["write_count"] = 0
        if self._slots is not None and len(self._slots):
            self._generations.advance(self._slots)
        self._forget_statistics()

    def state_dict(self) -> dict[str, Any]:
        """Everything that later decisions depend on, as plain values and tensors."""
        self.seed  # noqa: B018  an unseeded writer would be seeded anew after a restart
        return {
            "settings": self._settings(),
            "counters": self._counters.as_dict(),
            "generations": self._generations.state(),
            "policy": self._policy_state(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`.

        Raises:
            ValueError: if it is of another policy, capacity or item; nothing changes.
        """
        self.check_state(state_dict)
        self._counters.update(state_dict["counters"])
        self._generations.load_state(self.slots, state_dict["generations"])
        self._load_policy_state(state_dict["policy"])

    def _settings(self) -> dict[str, Any]:
        return {
            "writer": type(self).__name__,
            "capacity": self.slots.capacity,
            "item": self.slots.schema(),
            **self._policy_settings(),
        }

    def check_state(self, state_dict: dict[str, Any]) -> None:
        """Refuse a saved state that does not fit this writer; changes nothing.

        Args:
            state_dict: from :meth:`state_dict`.

        Raises:
            ValueError: naming the setting, the saved value and the one expected.
        """
        try:
            saved = state_dict["settings"]
        except (KeyError, TypeError):
            raise ValueError(
                f"this is not the state of a {type(self).__name__}: it has no settings"
            ) from None
        for name, expected in self._settings().items():
            found = saved.get(name)
            if name == "item":
                check_schema(found or {}, expected)
            elif found != expected and None not in (found, expected):
                raise ValueError(
                    f"cannot restore a memory with {name}={found!r} into one with "
                    f"{name}={expected!r}"
                )

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

    def share_memory_(self) -> SelectionWriter:
        """Move counters and statistics to memory that child processes share.

        Returns:
            The writer.
        """
        self._shared = True
        self._counters.share_memory_()
        self._generations.share_memory_()
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Refuse to be sent to a child process before there is anything to share."""
        if get_spawning_popen() is not None and self._generations.stamps is None:
            raise RuntimeError(
                f"{type(self).__name__} shares its statistics between processes, and "
                "they take their shape from the first item: extend the buffer once, "
                "then empty() it, before it is sent to another process"
            )
        return self.__dict__.copy()

    def __repr__(self) -> str:
        """Class and counts."""
        return (
            f"{type(self).__name__}(write_count={self._write_count}, "
            f"reservoir_count={self.reservoir_count})"
        )
