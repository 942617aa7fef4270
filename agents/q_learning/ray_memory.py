"""A replay buffer in an actor of Ray, and its checkpoints: :class:`RayMemory`."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
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
from agents.q_learning.errors import EngineError
from agents.q_learning.memory import memory_options
from agents.q_learning.standardization import RunningStandardization
from info_replay import (
    InfoReservoirReplayBuffer,
    SelectiveReplayBuffer,
    make_replay_buffer,
)
from info_replay.storage.snapshot import current_snapshot, new_snapshot

__all__ = [
    "MOST_DEATHS",
    "RayMemory",
    "buffer_parts",
    "is_death",
    "last_line",
    "load_memory",
    "save_memory",
]

#: After so many deaths in a row, without any work in between, a run gives up.
MOST_DEATHS = 3

_logger = logging.getLogger(__name__)
#: What a sample brings back; all else is in the buffer already.
_RETURNED = ("index", "index_generation", "feature", "td_error")


def is_death(error: RayActorError) -> bool:
    """Whether an actor died, and not of an error in its own constructor."""
    return not error.actor_init_failed


def last_line(error: BaseException) -> str:
    """What an error says, without the traceback that Ray puts in front of it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


class RayMemory:
    """A :class:`RayReplayBuffer` that can be started again from its checkpoint.

    The actor lives on the learner's node, so that both see the same files, and asks for
    no CPU of its own, so that there is always room for it.

    Args:
        config: the settings.
        checkpoint: folder to save to.

    Attributes:
        config: the settings.
        checkpoint: the folder.
        buffer: the buffer as it is now, once started.
    """

    buffer: RayReplayBuffer

    def __init__(self, config: DQNConfig, checkpoint: Path) -> None:
        self.checkpoint = checkpoint.absolute()
        self.config = config
        self._deaths = 0
        self._holds_frames = False

    def start(self) -> None:
        """Start the actor with what the checkpoint holds, or empty without one.

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
            self.ask(load_memory, self.checkpoint)
        except (RayTaskError, RayActorError) as error:
            if isinstance(error, RayTaskError) or not is_death(error):
                raise EngineError(
                    f"the buffer's actor could not be started: {last_line(error)}"
                ) from error
            raise

    def revive(self) -> None:
        """Start a new actor if the old one is dead.

        Raises:
            EngineError: if actors die one after the other.
        """
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
                len(self.buffer),
            )

    def _is_alive(self) -> bool:
        try:
            ray.get(self.actor.__ray_ready__.remote())
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
            self._holds_frames = len(self.buffer) > 0
        return self._holds_frames

    def sample(self, batch_size: int) -> TensorDictBase:
        """A sample on the learner's device.

        Args:
            batch_size: number of transitions.
        """
        return self.buffer.sample(batch_size).to(self.config.torch_device)

    def update_tensordict_priority(self, data: TensorDictBase) -> None:
        """Write fresh features and priorities back.

        Args:
            data: a sample after the loss; only what is new of it travels.
        """
        self.buffer.update_tensordict_priority(
            data.select(*_RETURNED, strict=False).detach().cpu()
        )
        self._deaths = 0

    def ask(self, question: Callable[..., Any], *details: Any) -> Any:
        """What a function says of the buffer, called in the actor.

        Args:
            question: called with the buffer and the details.
            *details: whatever else it needs.

        Returns:
            What it returns.
        """
        return ray.get(self.actor.__ray_call__.remote(question, *details))

    def save(self) -> None:
        """Save to the checkpoint, whole or not at all.

        Raises:
            EngineError: if it cannot be written.
        """
        try:
            self.ask(save_memory, self.checkpoint)
        except RayTaskError as error:
            raise EngineError(
                f"cannot save the memory to {self.checkpoint}: {last_line(error)}"
            ) from error

    def close(self) -> None:
        """End the actor, if it was started."""
        if hasattr(self, "buffer"):
            self.buffer.close()


def save_memory(memory: TensorDictReplayBuffer, path: Path) -> None:
    """Save a buffer to a folder, whole or not at all, whatever its class."""
    if isinstance(memory, SelectiveReplayBuffer):
        memory.dumps(path)
        return
    with new_snapshot(path) as snapshot:
        memory.dumps(snapshot)


def load_memory(memory: TensorDictReplayBuffer, path: Path) -> None:
    """Continue from what :func:`save_memory` wrote; without such, stay empty."""
    try:
        with current_snapshot(path) as snapshot:
            if not isinstance(memory, SelectiveReplayBuffer):
                memory.loads(snapshot)
                return
    except FileNotFoundError:
        return
    memory.loads(path)


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
    if config.keeps_features:
        options["transform_factory"] = RunningStandardization
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
