"""One run of Q-learning from its settings to its results: :class:`DQNExperiment`.

With engine 'local' a run can be killed at any moment and resumed; what comes out is the
same bit for bit. With engine 'ray' it goes on from its last checkpoint.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torchrl.data import TensorDictReplayBuffer
from torchrl.objectives import DQNLoss

from agents.q_learning.config import DQNConfig
from agents.q_learning.engine import make_engine
from agents.q_learning.environment import num_frames
from agents.q_learning.evaluation import TaskEvaluator
from agents.q_learning.memory import make_memory as memory_of_settings
from agents.q_learning.memory_state import memory_state
from agents.q_learning.resuming import read_progress, read_result, restore_engine
from agents.q_learning.saved_run import save_dqn_run
from agents.runs.checkpoint import save_checkpoint
from agents.runs.errors import EngineError
from agents.runs.events import EventLog
from agents.runs.files import remove_partial_files
from agents.runs.folder import RunFolder
from agents.runs.interrupts import Interrupted, deferred_interrupt
from agents.runs.machine import prepare_machine
from agents.runs.stopwatch import Stopwatch

__all__ = ["DQNExperiment", "summarize"]

#: Told of the frames so far, the frames of the run and the last returns.
Progress = Callable[[int, int, list[float]], None]
MemoryMaker = Callable[[DQNConfig, DQNLoss, torch.Size], Any]


class DQNExperiment:
    """A run in progress.

    Args:
        config: the settings.
        folder: where its files go; ``None`` to keep nothing.
        resume: whether to continue the run in the folder.
        make_memory: makes the replay buffer; by default that of the settings.

    Attributes:
        agent: the learner.
        engine: where it learns.
        evaluator: plays the episodes of an evaluation.
        num_frames: frames of the whole run.
        frame: frames so far.
        evaluations: what was found so far.

    Example:
        >>> config = DQNConfig(lengths="200,200", recent=0.0, evaluations=2, episodes=2)
        >>> result = DQNExperiment(config).run()
        >>> result["frames"], len(result["evaluations"][-1]["returns"])
        (416, 2)
    """

    def __init__(
        self,
        config: DQNConfig,
        folder: RunFolder | None = None,
        *,
        resume: bool = False,
        make_memory: MemoryMaker = memory_of_settings,
    ) -> None:
        if folder is not None:
            folder.check(config) if resume else folder.check_new()
        prepare_machine(config.device, config.threads)
        self.config = config
        self.folder = folder
        logger = "tensorboard" if config.tensorboard else config.logger
        self._events = EventLog(folder, logger=logger)
        self.engine = make_engine(config, make_memory)
        self.agent = self.engine.agent
        self._own_memory = make_memory is not memory_of_settings
        self.evaluator = TaskEvaluator(config)
        self.num_frames = num_frames(config)
        self.frame = 0
        self.evaluations: list[dict[str, Any]] = []
        self.stopwatch = Stopwatch()
        self._result: dict[str, Any] | None = None  # of a run that was over before
        self._saved_frame: int | None = None
        if folder is not None:
            if resume:
                folder.acquire()
                try:
                    self._restore(folder)
                except BaseException:
                    folder.release()
                    raise
            else:
                folder.create(config)
        self._saved_at = time.monotonic()

    # -- running ----------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> dict[str, Any]:
        """Collect and learn to the end.

        Args:
            progress: told of each batch of frames.

        Returns:
            The result, as in ``result.json``.

        Raises:
            CheckpointError, RunError: if a file cannot be written; the run can be
                resumed from the last checkpoint then.
            DivergenceError: if training diverges.
            EngineError: if another process failed.
            KeyboardInterrupt: after Ctrl-C or SIGTERM, once the batch is learned and
                saved, if there is a folder.
        """
        try:
            with contextlib.closing(self.engine):
                return self._run(progress)
        except EngineError as error:
            raise EngineError(f"{error}. {self._how_to_go_on()}") from error
        finally:
            if self.folder is not None:
                self.folder.release()
            self._events.close()

    def _run(self, progress: Progress | None) -> dict[str, Any]:
        if self._result is not None:
            self._events.send()  # what a kill kept from the logger
            return self._result
        self._announce()
        with deferred_interrupt() as interrupted:
            start = time.perf_counter()
            for frames in self.engine.train(self.num_frames):
                self.frame = frames
                self.stopwatch.add("learning", start)
                if self._is_evaluation_due():
                    self.evaluate(self.frame)
                if progress is not None:
                    last = self.evaluations[-1]["returns"] if self.evaluations else []
                    progress(self.frame, self.num_frames, last)
                if signal := interrupted():
                    self.save()
                    saved = self.folder is not None
                    raise Interrupted(signal, f"frame {self.frame}", saved=saved)
                if time.monotonic() - self._saved_at > self.config.checkpoint_every:
                    self.save()
                start = time.perf_counter()
            # A signal that comes now lets the run finish.
            if self._last_evaluation < self.frame:
                self.evaluate(self.frame)
            result = {
                **self.config.what_matters(),
                "frames": self.frame,
                **summarize(self.evaluations),
                "evaluations": self.evaluations,
            }
            if self.folder is not None:
                self._finish(self.folder, result)
        return result

    @property
    def _last_evaluation(self) -> int:
        """The frame of the last evaluation."""
        return self.evaluations[-1]["frame"] if self.evaluations else 0

    def _is_evaluation_due(self) -> bool:
        count = self.config.evaluations
        due = [-(-self.num_frames * part // count) for part in range(1, count + 1)]
        passed = np.searchsorted(due, [self._last_evaluation, self.frame], "right")
        return bool(passed[0] < passed[1])

    def evaluate(self, frame: int) -> None:
        """Play episodes of every task, and note how they went.

        Args:
            frame: frames so far.

        Raises:
            DivergenceError: if training has diverged.
        """
        start = time.perf_counter()
        self.agent.check_divergence()
        event = {
            "returns": self.evaluator.returns(self.agent.network),
            "tasks": self.engine.current_tasks(),
            **self.engine.ask_memory(describe_memory, self.evaluator.num_tasks),
        }
        self.evaluations.append({"frame": frame, **event})
        self._events.note("evaluation", event, frame=frame)
        self._events.write()
        self.stopwatch.add("evaluation", start)

    def _finish(self, folder: RunFolder, result: dict[str, Any]) -> None:
        folder.write("timing.json", self.stopwatch.seconds)
        own = self._own_memory
        memory = None if own else self.engine.ask_memory(memory_state)
        save_dqn_run(folder, self.agent, memory)
        folder.write("result.json", result)
        folder.checkpoint.unlink(missing_ok=True)
        self._events.send()

    # -- resuming ---------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint, from which a resumed run goes on.

        Without a folder, the engine keeps what it needs itself: on Ray, a new memory
        goes on from that.

        Raises:
            CheckpointError, RunError: if it cannot be written; the last one is kept.
        """
        if self.folder is None:
            self.engine.back_up()
        else:
            state = {
                "engine": self.engine.state_dict(),
                "frame": self.frame,
                "evaluations": self.evaluations,
                "written": self._events.size,
                "seconds": self.stopwatch.seconds,
            }
            save_checkpoint(self.folder.checkpoint, state)
            self._saved_frame = self.frame
            self._announce()
            self._events.send()
        self._saved_at = time.monotonic()

    def _restore(self, folder: RunFolder) -> None:
        """Go on from a run's files, which change only after all of them are read."""
        num_tasks = self.evaluator.num_tasks
        if folder.is_finished:
            own = self._own_memory
            self._result = read_result(folder, num_tasks, own_memory=own)
            self.frame = self._result["frames"]
            folder.checkpoint.unlink(missing_ok=True)  # killed just before that
        elif folder.has_checkpoint:
            state = read_progress(folder, num_tasks)
            restore_engine(folder, state, self.engine)
            self.frame = self._saved_frame = state["frame"]
            self.evaluations = state["evaluations"]
            self.stopwatch.seconds = state["seconds"]
            # What was noted after the checkpoint will be noted again.
            self._events.rewind(state["written"])
        else:
            self._events.rewind(0)  # killed before the first checkpoint
        remove_partial_files(folder.path)

    def _announce(self) -> None:
        self.engine.announce(f"the learner's process has ended. {self._how_to_go_on()}")

    def _how_to_go_on(self) -> str:
        """What is left after an error that is not the learner's."""
        if self.folder is None:
            return "Nothing was saved, because the run has no folder"
        if self._saved_frame is None:
            return f"Nothing was saved yet in {self.folder.path}"
        return (
            f"Frame {self._saved_frame} was saved; to go on: "
            f"{self.folder.how_to_resume('dqn')}"
        )


def describe_memory(memory: TensorDictReplayBuffer, num_tasks: int) -> dict[str, Any]:
    """What a memory holds.

    Args:
        memory: the replay buffer.
        num_tasks: of a sequence, whose observations end in a one-hot context.

    Returns:
        Its size, the share of terminal transitions, the share of each task if there are
        several, and counts of what was offered and what passed.
    """
    described: dict[str, Any] = {
        "size": len(memory),
        "terminal_share": 0.0,
        "write_count": int(memory.write_count),
        "reservoir_count": int(getattr(memory, "reservoir_count", memory.write_count)),
    }
    if not len(memory):
        return described
    content = memory[:]
    terminated = content["next", "terminated"].float()
    described["terminal_share"] = float(terminated.mean())
    if num_tasks > 1:
        context = content["observation"][:, -num_tasks:]
        described["task_shares"] = context.mean(0).tolist()
    return described


def summarize(evaluations: list[dict[str, Any]]) -> dict[str, Any]:
    """The numbers by which memories are compared.

    Args:
        evaluations: of a run, in order.

    Returns:
        For a single task its return at the end and the mean over the run. For a
        sequence: ``current_end``, the return on the last task at the end; ``old_end``,
        that on the others; ``old_during``, the same while only the last was played;
        ``forgetting``, by how much the others were once better; ``mean_end``, over all.
    """
    returns = np.array([event["returns"] for event in evaluations])
    end = returns[-1]
    if returns.shape[1] == 1:
        return {"end": float(end[0]), "mean": float(returns.mean())}
    last = returns.shape[1] - 1
    during = [min(event["tasks"]) == last for event in evaluations]
    return {
        "current_end": float(end[-1]),
        "old_end": float(end[:-1].mean()),
        "old_during": float(returns[during, :-1].mean()) if any(during) else None,
        "current_during": float(returns[during, -1].mean()) if any(during) else None,
        "forgetting": float((returns[:, :-1].max(0) - end[:-1]).mean()),
        "mean_end": float(end.mean()),
    }
