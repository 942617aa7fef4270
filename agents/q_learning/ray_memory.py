"""A replay buffer in an actor of Ray that may die: :class:`RayMemory`."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import ray
import torch
from ray.exceptions import RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tensordict import TensorDictBase
from torchrl.data import (
    LazyTensorStorage,
    PrioritizedSampler,
    RayReplayBuffer,
    TensorDictReplayBuffer,
    Writer,
)

from agents.q_learning.config import DQNConfig
from agents.q_learning.memory import memory_options
from agents.q_learning.memory_state import memory_state, restore_memory
from agents.runs.errors import EngineError, last_line
from agents.runs.ray_session import check_ray, fetch
from info_replay import (
    InfoReservoirReplayBuffer,
    SelectiveReplayBuffer,
    make_replay_buffer,
)

__all__ = [
    "MOST_DEATHS",
    "RayMemory",
    "buffer_parts",
    "is_death",
]

#: After so many deaths in a row, without any work in between, a run gives up.
MOST_DEATHS = 3

_logger = logging.getLogger(__name__)
#: What a sample brings back; all else is in the buffer already.
_RETURNED = ("index", "index_generation", "feature", "td_error")


def is_death(error: RayActorError) -> bool:
    """Whether an actor died, and not of an error in its own constructor."""
    return not error.actor_init_failed


class RayMemory:
    """A :class:`RayReplayBuffer` that can be started again from what was saved of it.

    The actor lives on the learner's node, and asks for no CPU of its own, so that there
    is always room for it. What was saved is held by Ray on that node, on disk if there
    is no room for it.

    Args:
        config: the settings.

    Attributes:
        config: the settings.
        buffer: the buffer as it is now, once started.
    """

    buffer: RayReplayBuffer

    def __init__(self, config: DQNConfig) -> None:
        self.config = config
        self._saved: Any = None  # a state, or a reference to one
        self._deaths = 0
        self._holds_frames = False

    def start(self) -> None:
        """Start the actor with what was saved, or empty without that.

        Raises:
            EngineError: if the buffer cannot be made.
        """
        kind, options = buffer_parts(self.config)
        here = ray.get_runtime_context().get_node_id()
        self.buffer = RayReplayBuffer(
            replay_buffer_cls=kind,
            remote_config={
                "num_cpus": 0,
                "scheduling_strategy": NodeAffinitySchedulingStrategy(here, soft=False),
            },
            **options,
        )
        self._holds_frames = False
        try:
            if self._saved is None:
                fetch(self.actor.__ray_ready__.remote())
            else:
                self.ask(restore_memory, self._saved)
        except (RayTaskError, RayActorError) as error:
            if isinstance(error, RayTaskError) or not is_death(error):
                raise EngineError(
                    f"the buffer's actor could not be started: {last_line(error)}"
                ) from error
            raise

    def revive(self) -> None:
        """Start a new actor if the old one is dead.

        Raises:
            EngineError: if actors die one after the other, or Ray is dead.
        """
        check_ray()  # a new actor would wait for ever
        while not self._is_alive():
            self._deaths += 1
            if self._deaths > MOST_DEATHS:
                raise EngineError(
                    f"the buffer's actor died {self._deaths} times in a row; see the "
                    "logs of Ray"
                )
            self.buffer.close()
            try:
                self.start()
            except RayActorError:
                continue  # dead again, which counts
            _logger.warning(
                "the buffer's actor died; a new one holds the %d transitions of the "
                "last checkpoint",
                self.ask(len),
            )

    def _is_alive(self) -> bool:
        try:
            fetch(self.actor.__ray_ready__.remote())
        except RayActorError:
            return False
        return True

    @property
    def actor(self) -> Any:
        """The actor that holds the buffer."""
        # TorchRL gives no other way to call a function where the buffer is.
        return self.buffer._rb

    @property
    def client(self) -> Any:
        """What a collector writes through."""
        return self.buffer.client()

    @property
    def holds_frames(self) -> bool:
        """Whether there is anything to sample."""
        if not self._holds_frames:
            self._holds_frames = self.ask(len) > 0
        return self._holds_frames

    def sample(self, batch_size: int) -> TensorDictBase:
        """A sample on the learner's device.

        Args:
            batch_size: number of transitions.
        """
        sample: TensorDictBase = self.ask(_sample, batch_size)
        return sample.to(self.config.torch_device)

    def update_tensordict_priority(self, data: TensorDictBase) -> None:
        """Write fresh features and priorities back.

        Args:
            data: a sample after the loss; only what is new of it travels.
        """
        self.ask(_update, data.select(*_RETURNED, strict=False).detach().cpu())
        self._deaths = 0

    def ask(self, question: Callable[..., Any], *details: Any) -> Any:
        """What a function says of the buffer, called in the actor.

        Args:
            question: called with the buffer and the details.
            *details: whatever else it needs.

        Returns:
            What it returns.
        """
        return fetch(self.actor.__ray_call__.remote(question, *details))

    def state_dict(self) -> dict[str, Any]:
        """Everything that the buffer is; a new actor goes on from it, too."""
        saved = self.actor.__ray_call__.remote(memory_state)
        state: dict[str, Any] = fetch(saved)
        self._saved = saved
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Start from a :meth:`state_dict`; before :meth:`start`.

        Raises:
            ValueError: if it does not fit; nothing is changed then.
        """
        kind, options = buffer_parts(self.config)
        restore_memory(kind(delayed_init=False, **options), state_dict)
        self._saved = state_dict

    def close(self) -> None:
        """End the actor, if it was started."""
        if hasattr(self, "buffer"):
            self.buffer.close()


def _sample(memory: TensorDictReplayBuffer, batch_size: int) -> TensorDictBase:
    return memory.sample(batch_size)


def _update(memory: TensorDictReplayBuffer, data: TensorDictBase) -> None:
    memory.update_tensordict_priority(data)


def buffer_parts(
    config: DQNConfig,
) -> tuple[type[TensorDictReplayBuffer], dict[str, Any]]:
    """Class and options of a run's buffer, as actors want them: parts as functions.

    The features come with the frames, computed by the collectors; only the targets'
    statistics belong to the buffer, which alone sees all of them.
    """
    options: dict[str, Any] = {
        "generator": torch.Generator().manual_seed(config.seed),
    }
    if config.policy in ("fifo", "prioritized"):
        options["storage"] = functools.partial(LazyTensorStorage, config.capacity)
        if config.policy == "prioritized":
            options["sampler"] = functools.partial(
                PrioritizedSampler, config.capacity, 0.6, 0.4
            )
        return TensorDictReplayBuffer, options
    options["capacity"] = config.capacity
    if config.policy == "infors":
        return InfoReservoirReplayBuffer, options | memory_options(config)
    options["writer"] = functools.partial(_make_writer, config)
    return SelectiveReplayBuffer, options


def _make_writer(config: DQNConfig) -> Writer:
    """The writer of a run that has no buffer class of its own."""
    buffer = make_replay_buffer(
        config.policy,
        config.capacity,
        generator=torch.Generator().manual_seed(config.seed),
        **memory_options(config),
    )
    return buffer.writer
