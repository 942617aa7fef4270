"""One run from its settings to its results: :class:`Experiment`.

The loop is test-then-train: predict a batch, be told its labels, learn from them. A run
can be killed at any moment and resumed; what comes out is the same bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torchrl.data import TensorDictReplayBuffer

from agents.runs.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from agents.runs.events import EventLog
from agents.runs.files import remove_partial_files
from agents.runs.folder import RunFolder
from agents.runs.interrupts import deferred_interrupt
from agents.runs.machine import prepare_machine
from agents.supervised.config import ExperimentConfig
from agents.supervised.derpp import DERPlusPlusAgent
from agents.supervised.memory import make_memory
from agents.supervised.metrics import (
    average_score,
    backward_transfer,
    class_variance,
    forward_transfer,
)
from agents.supervised.networks import FeatureNetwork, make_network
from continual_envs import ClassificationStreamEnv, StreamEnv, make_stream

__all__ = ["Experiment", "make_agent"]

_EVALUATION_BATCH = 1000
_WINDOW = 50  # steps of the recent reward

#: Told of the step, the number of steps, the mean reward and the recent one.
Progress = Callable[[int, int, float, float], None]
#: Makes a memory from the settings, the number of classes and the network.
MemoryMaker = Callable[
    [ExperimentConfig, int | None, FeatureNetwork], TensorDictReplayBuffer | None
]


class Experiment:
    """A run in progress.

    :meth:`run` goes on to the end. To go step by step, call :meth:`advance`, and
    :meth:`evaluate` before the first step and after each of :attr:`evaluation_steps`;
    then :meth:`result` tells what came out.

    Args:
        config: the settings.
        folder: where its files go; ``None`` to keep nothing.
        resume: whether to continue the run in the folder.
        make_memory: makes the memory; by default that of the settings.

    Attributes:
        agent: the learner.
        env: the stream.
        step: steps so far.
        num_steps: steps of the whole run.
        observation: the batch that will be predicted next.

    Example:
        >>> config = ExperimentConfig.preset("SplitDigits", policy="rs", epochs=1)
        >>> result = Experiment(config).run()
        >>> result["policy"], len(result["matrix"])
        ('rs', 5)

        Step by step:

        >>> experiment = Experiment(config)
        >>> while experiment.step < 3:
        ...     reward = experiment.advance()
        >>> scores = experiment.evaluate()
        >>> len(experiment.agent.memory), len(scores)
        (50, 5)
    """

    def __init__(
        self,
        config: ExperimentConfig,
        folder: RunFolder | None = None,
        *,
        resume: bool = False,
        make_memory: MemoryMaker = make_memory,
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
        self.agent = make_agent(config, self.env, make_memory)
        self.observation: NDArray[Any]
        self.observation, _ = self.env.reset(seed=config.seed)
        self.num_steps = min(config.steps or self.env.num_steps, self.env.num_steps)
        self.step = 0
        self._rewards: list[float] = []
        self._reward_sum = 0.0
        self._scores: dict[int, list[float]] = {}  # of every task, by step
        if folder is not None and not resume:
            folder.create(config)
        self._events = EventLog(folder, tensorboard=config.tensorboard)
        if folder is not None and resume:
            self._restore(folder)
        self._saved_at = time.monotonic()

    # -- running ----------------------------------------------------------------------

    def run(self, progress: Progress | None = None) -> dict[str, Any]:
        """Go on to the end.

        Args:
            progress: told of each step.

        Returns:
            The result, as in ``result.json``.

        Raises:
            CheckpointError, RunError: if a file cannot be written; the run can be
                resumed from the last checkpoint then.
            DivergenceError: if training diverges.
            KeyboardInterrupt: after Ctrl-C, once the step is done and saved.
        """
        if self.folder is not None and self.folder.is_finished:
            result: dict[str, Any] = self.folder.read("result.json")
            return result
        if not self._scores:
            self.evaluate()
        with deferred_interrupt() as interrupted:
            while self.step < self.num_steps:
                self.advance()
                if self.step in self.evaluation_steps:
                    self.evaluate()
                if progress is not None:
                    rewards = self.mean_reward, self.recent_reward
                    progress(self.step, self.num_steps, *rewards)
                if interrupted():
                    self.save()
                    raise KeyboardInterrupt
                if time.monotonic() - self._saved_at > self.config.checkpoint_every:
                    self.save()
        result = self.result()
        if self.folder is not None:
            self._finish(self.folder, result)
        return result

    def advance(self) -> float:
        """Predict a batch, be told its targets, and learn from them.

        Returns:
            The reward of the predictions: accuracy, or negative squared error.

        Raises:
            DivergenceError: if training diverges.
        """
        observation = self.observation
        prediction = self.agent.act(observation)
        self.observation, reward, _, _, info = self.env.step(prediction)
        target = info["label"] if "label" in info else info["target"]
        self.agent.learn(observation, target, info.get("mask"))
        self._rewards.append(float(reward))
        self._reward_sum += float(reward)
        self.step += 1
        return float(reward)

    @property
    def mean_reward(self) -> float:
        """The mean reward of all steps so far."""
        return self._reward_sum / self.step

    @property
    def recent_reward(self) -> float:
        """The mean reward of the last 50 steps."""
        recent = self._rewards[-_WINDOW:]
        return math.fsum(recent) / len(recent)

    @cached_property
    def task_ends(self) -> list[int]:
        """The steps after which each task is over, as far as this run goes.

        A shortened run ends in the middle of a task: its end is the last of them.
        """
        ends = [end for end in self.env.boundaries if end <= self.num_steps]
        return ends if self.num_steps in ends else [*ends, self.num_steps]

    @cached_property
    def evaluation_steps(self) -> set[int]:
        """The steps after which :meth:`run` evaluates: task ends and some between."""
        count = min(self.config.evaluations, self.num_steps)
        between = np.linspace(0, self.num_steps, count + 1)
        return {*self.task_ends, *(int(step) for step in between[1:])}

    # -- results ----------------------------------------------------------------------

    def evaluate(self) -> list[float]:
        """Score every task as things are, and note it.

        Returns:
            One score per task: accuracy, or negative squared error.

        Raises:
            DivergenceError: if training has diverged.
        """
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
        recent = self.recent_reward if self._rewards else None
        noted = {"scores": scores, "reward": recent}
        self._events.note("evaluation", noted, step=self.step)
        described = self._describe_memory()
        if described is not None:
            self._events.note("memory", described, step=self.step)
        self.agent.stopwatch.add("evaluation", start)
        return scores

    def _describe_memory(self) -> dict[str, Any] | None:
        memory = self.agent.memory
        if memory is None:
            return None
        described: dict[str, Any] = {
            "size": len(memory),
            "reservoir_count": getattr(memory, "reservoir_count", memory.write_count),
        }
        classes = self.env.dataset.num_classes
        if classes is not None:
            counts = [0] * classes
            if len(memory):
                counts = memory[:]["target"].bincount(minlength=classes).tolist()
            described["class_counts"] = counts
            described["class_variance"] = class_variance(counts)
        return described

    def result(self) -> dict[str, Any]:
        """What came out, once all of :attr:`task_ends` were evaluated.

        Returns:
            Settings, scores and memory, as in ``result.json``.
        """
        matrix = [self._scores[end] for end in self.task_ends]
        whole = self.num_steps == self.env.num_steps
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
            "task_ends": self.task_ends,
            "metric": "accuracy" if classes is not None else "negative squared error",
            "average": average_score(matrix),
            "backward_transfer": backward_transfer(matrix) if whole else None,
            "forward_transfer": (
                forward_transfer(matrix, self._scores[0]) if whole else None
            ),
            "prequential": float(np.mean(self._rewards)),
            "first": self._scores[0],
            "matrix": matrix,
            "memory": self._describe_memory(),
        }

    def _finish(self, folder: RunFolder, result: dict[str, Any]) -> None:
        self._events.write()
        folder.write("timing.json", self.agent.stopwatch.seconds)
        memory = self.agent.memory
        if memory is not None and len(memory):
            keys = ("observation", "target")
            content = {key: memory[:][key].cpu() for key in keys}
            save_checkpoint(folder.path / "memory.pt", content)
        folder.write("result.json", result)
        folder.checkpoint.unlink(missing_ok=True)

    # -- resuming ---------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint, from which a resumed run goes on bit for bit."""
        if self.folder is None:
            return
        self._events.write()
        save_checkpoint(
            self.folder.checkpoint,
            {
                "step": self.step,
                "env": self.env.state_dict(),
                "agent": self.agent.state_dict(),
                "rewards": self._rewards,
                "scores": self._scores,
                "written": self._events.size,
                "seconds": self.agent.stopwatch.seconds,
            },
        )
        self._saved_at = time.monotonic()

    def _restore(self, folder: RunFolder) -> None:
        remove_partial_files(folder.path)
        if folder.is_finished:
            folder.checkpoint.unlink(missing_ok=True)  # killed just before that
            return
        if not folder.checkpoint.exists():
            self._events.rewind(0)  # killed before the first checkpoint
            return
        state = load_checkpoint(folder.checkpoint)
        try:
            self.observation, _ = self.env.load_state_dict(state["env"])
            self.agent.load_state_dict(state["agent"])
            self.step = state["step"]
            self._rewards = state["rewards"]
            self._reward_sum = math.fsum(self._rewards)
            self._scores = state["scores"]
            written = state["written"]
            self.agent.stopwatch.seconds = state["seconds"]
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            text = " ".join(str(error).split())
            raise CheckpointError(
                f"{folder.checkpoint} does not fit this run: {text}"
            ) from error
        # What was noted after the checkpoint will be noted again.
        self._events.rewind(written)


def make_agent(
    config: ExperimentConfig, env: StreamEnv, make_memory: MemoryMaker = make_memory
) -> DERPlusPlusAgent:
    """The learner of a run.

    Args:
        config: the settings.
        env: the stream that it will learn from.
        make_memory: makes its memory; by default that of the settings.

    Returns:
        The agent.

    Raises:
        ValueError: if the settings do not fit the stream.
    """
    config.check_dataset(env.dataset)
    num_classes = env.dataset.num_classes
    shape = env.dataset.input_shape
    network = make_network(config.network, shape, num_classes or 1, config.seed)
    return DERPlusPlusAgent(
        network,
        make_memory(config, num_classes, network),
        num_classes=num_classes,
        learning_rate=config.learning_rate,
        alpha=config.alpha,
        beta=config.beta,
        replay_batch_size=config.replay_batch_size,
        augmented=config.augmented,
        device=config.torch_device,
        seed=config.seed,
    )
