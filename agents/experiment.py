"""One run from its settings to its results: :class:`Experiment`.

The loop is test-then-train: predict a batch, be told its labels, learn from them. A run
can be killed at any moment and resumed; what comes out is the same to the bit.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from agents.assembly import make_agent
from agents.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from agents.config import ExperimentConfig
from agents.interrupts import deferred_interrupt
from agents.metrics import (
    average_score,
    backward_transfer,
    class_variance,
    forward_transfer,
)
from agents.run_folder import RunFolder, make_logger
from agents.settings import prepare_machine
from continual_envs import ClassificationStreamEnv, make_stream
from info_replay import SelectiveReplayBuffer

__all__ = ["Experiment"]

_EVALUATION_BATCH = 1000
_WINDOW = 50  # steps of the accuracy that the progress shows

#: Told of the step, the number of steps, the accuracy so far and that of late.
Progress = Callable[[int, int, float, float], None]


class Experiment:
    """A run in progress.

    Args:
        config: the settings.
        folder: where its files go; ``None`` to keep nothing.
        resume: whether to continue the run in the folder.

    Example:
        >>> config = ExperimentConfig.preset("SplitDigits", policy="rs", epochs=1)
        >>> result = Experiment(config).run()
        >>> result["policy"], len(result["matrix"])
        ('rs', 5)
    """

    def __init__(
        self,
        config: ExperimentConfig,
        folder: RunFolder | None = None,
        *,
        resume: bool = False,
    ) -> None:
        if folder is not None:
            folder.check(config) if resume else folder.check_new()
        prepare_machine(config.device, config.threads)
        self.config = config
        self.folder = folder
        self.env = make_stream(
            config.env,
            batch_size=config.batch_size,
            epochs=config.epochs,
            imbalance=config.imbalance,
            validation=config.validation,
            data_dir=config.data_dir,
        )
        self.agent = make_agent(config, self.env)
        self._observation, _ = self.env.reset(seed=config.seed)
        self.num_steps = min(config.steps or self.env.num_steps, self.env.num_steps)
        self.step = 0
        self._rewards: list[float] = []
        self._reward_sum = 0.0
        self._scores: dict[int, list[float]] = {}  # of every task, by step
        self._lines: list[str] = []
        self._written = 0  # bytes of metrics that belong to the last checkpoint
        if folder is not None:
            if resume:
                self._restore()
            else:
                folder.create(config)
        self._saved_at = time.monotonic()
        self._logger = make_logger(config.tensorboard, folder)

    # -- running ----------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> dict[str, Any]:
        """Go on to the end.

        Args:
            progress: told of each step.

        Returns:
            The result, as in ``result.json``.

        Raises:
            CheckpointError: if the run cannot be saved; it can be resumed from the
                last checkpoint then.
            DivergenceError: if the learner is lost.
            KeyboardInterrupt: after Ctrl-C, once the step is done and saved.
        """
        if self.folder is not None and self.folder.is_finished:
            result: dict[str, Any] = self.folder.read("result.json")
            return result
        due = self._evaluation_steps()
        if not self._scores:
            self._evaluate()
        with deferred_interrupt() as interrupted:
            while self.step < self.num_steps:
                self._advance()
                if self.step in due:
                    self._evaluate()
                if progress is not None:
                    so_far = self._reward_sum / self.step
                    progress(self.step, self.num_steps, so_far, self._recent_reward())
                if interrupted():
                    self.save()
                    raise KeyboardInterrupt
                if time.monotonic() - self._saved_at > self.config.checkpoint_every:
                    self.save()
        return self._finish()

    def _advance(self) -> None:
        observation = self._observation
        prediction = self.agent.act(observation)
        self._observation, reward, _, _, info = self.env.step(prediction)
        target = info["label"] if "label" in info else info["target"]
        self.agent.learn(observation, target, info.get("mask"))
        self._rewards.append(float(reward))
        self._reward_sum += float(reward)
        self.step += 1

    def _boundaries(self) -> list[int]:
        """Steps after which each task is over, as far as this run goes.

        A shortened run ends in the middle of a task: its end is the last of them.
        """
        ends = [end for end in self.env.boundaries if end <= self.num_steps]
        return ends if self.num_steps in ends else [*ends, self.num_steps]

    def _evaluation_steps(self) -> set[int]:
        count = min(self.config.evaluations, self.num_steps)
        between = np.linspace(0, self.num_steps, count + 1)
        return {*self._boundaries(), *(int(step) for step in between[1:])}

    def _evaluate(self) -> None:
        start = time.perf_counter()
        self.agent.check_finite()
        scores = []
        for part in self.env.evaluation_sets:
            total = 0.0
            for inputs, targets in part.batches(_EVALUATION_BATCH):
                prediction = self.agent.predict(inputs)
                if isinstance(self.env, ClassificationStreamEnv):
                    total += float((prediction == targets).sum())
                else:
                    total -= float(np.square(prediction - targets).sum())
            scores.append(total / len(part))
        self._scores[self.step] = scores
        recent = self._recent_reward() if self._rewards else None
        self._note("evaluation", scores=scores, reward=recent)
        memory = self.agent.memory
        if memory is not None:
            self._note("memory", **self._describe(memory))
        self.agent.stopwatch.add("evaluation", start)

    def _recent_reward(self) -> float:
        recent = self._rewards[-_WINDOW:]
        return math.fsum(recent) / len(recent)

    def _describe(self, memory: SelectiveReplayBuffer) -> dict[str, Any]:
        described: dict[str, Any] = {
            "size": len(memory),
            "reservoir_count": memory.reservoir_count,
        }
        classes = self.env.dataset.num_classes
        if classes is not None:
            counts = [0] * classes
            if len(memory):
                counts = memory[:]["target"].bincount(minlength=classes).tolist()
            described["class_counts"] = counts
            described["class_variance"] = class_variance(counts)
        return described

    def _note(self, kind: str, **values: Any) -> None:
        self._lines.append(json.dumps({"kind": kind, "step": self.step, **values}))
        if self._logger is not None:
            for name, value in values.items():
                numbers = value if isinstance(value, list) else [value]
                for place, number in enumerate(numbers):
                    if number is not None:
                        suffix = f"/{place}" if isinstance(value, list) else ""
                        self._logger.log_scalar(
                            f"{kind}/{name}{suffix}", number, step=self.step
                        )

    # -- results ----------------------------------------------------------------------

    def _result(self) -> dict[str, Any]:
        matrix = [self._scores[end] for end in self._boundaries()]
        whole = self.num_steps == self.env.num_steps
        memory = self.agent.memory
        classes = self.env.dataset.num_classes
        return {
            **{
                name: value
                for name, value in self.config.as_dict().items()
                if name not in ("data_dir", "checkpoint_every", "tensorboard")
            },
            "steps_done": self.step,
            "steps_of_stream": self.env.num_steps,
            "imbalanced_task": self.env.imbalanced_task,
            "task_ends": self._boundaries(),
            "metric": "accuracy" if classes is not None else "negative squared error",
            "average": average_score(matrix),
            "backward_transfer": backward_transfer(matrix) if whole else None,
            "forward_transfer": (
                forward_transfer(matrix, self._scores[0]) if whole else None
            ),
            "prequential": float(np.mean(self._rewards)),
            "first": self._scores[0],
            "matrix": matrix,
            "memory": None if memory is None else self._describe(memory),
        }

    def _finish(self) -> dict[str, Any]:
        result = self._result()
        if self.folder is not None:
            self._write_lines()
            self.folder.write("timing.json", self.agent.stopwatch.seconds)
            if self.agent.memory is not None and len(self.agent.memory):
                content = {
                    key: self.agent.memory[:][key].cpu()
                    for key in ("observation", "target")
                }
                save_checkpoint(self.folder.path / "memory.pt", content)
            self.folder.write("result.json", result)
            self.folder.checkpoint.unlink(missing_ok=True)
        return result

    # -- resuming ---------------------------------------------------------------------

    def _write_lines(self) -> None:
        assert self.folder is not None
        try:
            with self.folder.metrics.open("a") as file:
                file.writelines(f"{line}\n" for line in self._lines)
                file.flush()
                os.fsync(file.fileno())
            self._written = self.folder.metrics.stat().st_size
        except OSError as error:
            kept = "; the last checkpoint is kept" if self._written else ""
            raise CheckpointError(
                f"cannot write the metrics ({error}){kept}"
            ) from error
        self._lines = []

    def save(self) -> None:
        """Write a checkpoint, from which a resumed run goes on to the bit."""
        if self.folder is None:
            return
        self._write_lines()
        save_checkpoint(
            self.folder.checkpoint,
            {
                "step": self.step,
                "env": self.env.state_dict(),
                "agent": self.agent.state_dict(),
                "rewards": self._rewards,
                "scores": self._scores,
                "written": self._written,
                "seconds": self.agent.stopwatch.seconds,
            },
        )
        self._saved_at = time.monotonic()

    def _restore(self) -> None:
        assert self.folder is not None
        for rubbish in self.folder.path.glob(".*.pt-*"):
            rubbish.unlink()  # of a process that was killed while it wrote
        if self.folder.is_finished:
            self.folder.checkpoint.unlink(missing_ok=True)  # killed just before that
            return
        if not self.folder.checkpoint.exists():
            # Killed before the first checkpoint: the beginning is the last good one.
            self.folder.metrics.unlink(missing_ok=True)
            return
        state = load_checkpoint(self.folder.checkpoint)
        try:
            self._observation, _ = self.env.load_state_dict(state["env"])
            self.agent.load_state_dict(state["agent"])
            self.step = state["step"]
            self._rewards = state["rewards"]
            self._reward_sum = math.fsum(self._rewards)
            self._scores = state["scores"]
            self._written = state["written"]
            self.agent.stopwatch.seconds = state["seconds"]
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            text = " ".join(str(error).split())
            raise CheckpointError(
                f"{self.folder.checkpoint} does not fit this run: {text}"
            ) from error
        metrics = self.folder.metrics
        if not metrics.exists() or metrics.stat().st_size < self._written:
            raise CheckpointError(
                f"{metrics} is shorter than when the checkpoint was written: the run "
                "cannot be resumed"
            )
        # What was noted after the checkpoint will be noted again.
        with metrics.open("a") as file:
            file.truncate(self._written)
