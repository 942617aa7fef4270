"""One run of Q-learning from its settings to its results: :class:`DQNExperiment`."""

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
from agents.q_learning.memory import make_memory
from agents.runs.events import EventLog
from agents.runs.folder import RunFolder
from agents.runs.interrupts import Interrupted, deferred_interrupt
from agents.runs.machine import prepare_machine

__all__ = ["DQNExperiment", "summarize"]

#: Told of the frames so far, the frames of the run and the last returns.
Progress = Callable[[int, int, list[float]], None]


class DQNExperiment:
    """A run in progress.

    Args:
        config: the settings.
        folder: where its files go; ``None`` to keep nothing.
        make_memory: makes the replay buffer; by default that of the settings.

    Attributes:
        agent: the learner.
        engine: where it learns.
        evaluator: plays the episodes of an evaluation.
        num_frames: frames of the whole run.
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
        make_memory: Callable[[DQNConfig, DQNLoss, torch.Size], Any] = make_memory,
    ) -> None:
        if folder is not None:
            folder.check_new(resumable=False)
        prepare_machine(config.device, config.threads)
        self.config = config
        self.folder = folder
        logger = "tensorboard" if config.tensorboard else config.logger
        self._events = EventLog(folder, logger=logger)
        self.engine = make_engine(
            config, None if folder is None else folder.path, make_memory
        )
        self.agent = self.engine.agent
        self.evaluator = TaskEvaluator(config)
        self.num_frames = num_frames(config)
        self.evaluations: list[dict[str, Any]] = []
        if folder is not None:
            try:
                folder.create(config, resumable=False)
            except BaseException:
                self.engine.close()  # it has processes of its own
                raise

    def run(self, progress: Progress | None = None) -> dict[str, Any]:
        """Collect and learn to the end.

        Args:
            progress: told of each batch of frames.

        Returns:
            The result, as in ``result.json``.

        Raises:
            EngineError: if another process failed.
            RunError: if a file cannot be written.
            KeyboardInterrupt: after Ctrl-C or SIGTERM.
        """
        try:
            with contextlib.closing(self.engine):
                result, timing = self._run(progress)
            if self.folder is not None:
                self.folder.write("timing.json", timing)
                self.folder.write("result.json", result)
        finally:
            if self.folder is not None:
                self.folder.release()
            self._events.close()
        return result

    def _run(
        self, progress: Progress | None
    ) -> tuple[dict[str, Any], dict[str, float]]:
        count = self.config.evaluations
        due = [-(-self.num_frames * part // count) for part in range(1, count + 1)]
        torch.manual_seed(self.config.seed)  # of exploration
        start = time.perf_counter()
        evaluating = 0.0
        frames = 0
        with deferred_interrupt() as interrupted:
            for frames in self.engine.train(self.num_frames):
                passed = int(np.searchsorted(due, frames, side="right"))
                if passed:
                    due = due[passed:]
                    before = time.perf_counter()
                    self.evaluate(frames)
                    evaluating += time.perf_counter() - before
                if progress is not None:
                    last = self.evaluations[-1]["returns"] if self.evaluations else []
                    progress(frames, self.num_frames, last)
                if signal := interrupted():
                    raise Interrupted(signal)
        if not self.evaluations or self.evaluations[-1]["frame"] < frames:
            self.evaluate(frames)
        seconds = time.perf_counter() - start
        result = {
            **self.config.as_dict(),
            "frames": frames,
            **summarize(self.evaluations),
            "evaluations": self.evaluations,
        }
        return result, {"learning": seconds - evaluating, "evaluation": evaluating}

    def evaluate(self, frame: int) -> None:
        """Play episodes of every task, and note how they went.

        Args:
            frame: frames so far.
        """
        event = {
            "returns": self.evaluator.returns(self.agent.network),
            "tasks": self.engine.current_tasks(),
            **self.engine.ask_memory(describe_memory, self.evaluator.num_tasks),
        }
        self.evaluations.append({"frame": frame, **event})
        self._events.note("evaluation", event, frame=frame)
        self._events.write()
        self._events.send()


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
