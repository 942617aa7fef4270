"""One run from its settings to its results: :class:`Experiment`.

The loop is test-then-train: predict a batch, be told its labels, learn from them. A run
can be killed at any moment and resumed; what comes out is the same bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.runs.checkpoint import save_checkpoint
from agents.runs.events import EventLog
from agents.runs.files import remove_partial_files
from agents.runs.folder import RunFolder
from agents.runs.interrupts import Interrupted, deferred_interrupt
from agents.runs.machine import prepare_machine
from agents.supervised.assembly import (
    MemoryMaker,
    NetworkSource,
    make_agent,
    make_env,
    prediction_range,
    settings_of,
)
from agents.supervised.callbacks import Callback, make_callbacks
from agents.supervised.config import ExperimentConfig
from agents.supervised.evaluation import Evaluator, Metric, named_metrics
from agents.supervised.learner import Learner
from agents.supervised.memory import make_memory as memory_of_settings
from agents.supervised.results import describe_memory, summarize
from agents.supervised.resuming import read_progress, read_result, restore_parts
from agents.supervised.saved_run import check_savable, restore_agent, save_run
from continual_envs import StreamEnv

__all__ = ["Experiment", "make_agent"]

_WINDOW = 50  # steps of the recent reward

#: Told of the step, of all steps (``None`` if unknown), the mean and the recent reward.
Progress = Callable[[int, int | None, float, float], None]


class Experiment:
    """A run in progress.

    :meth:`run` goes on to the end. To go step by step, call :meth:`advance`, and
    :meth:`evaluate` before the first step and after each of :attr:`evaluation_steps`;
    then :meth:`result` tells what came out.

    What is given beside the settings stands for the setting of the same name, which
    then has its name only.

    Args:
        config: the settings.
        folder: where its files go; ``None`` to keep nothing.
        resume: whether to continue the run in the folder.
        make_memory: makes the memory; by default that of the settings.
        env: the stream, in batches; by default that of the settings.
        network: a module, or what makes one from the shape of an input and the number
            of outputs.
        learner: class of the learner.
        metrics: of each task, by name, in place of those of the settings.
        callbacks: told of each step and each evaluation.

    Attributes:
        agent: the learner.
        env: the stream.
        step: steps so far.
        num_steps: steps of the whole run, ``None`` of a stream without an end.
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
        make_memory: MemoryMaker | None = None,
        env: StreamEnv | None = None,
        network: NetworkSource | None = None,
        learner: Callable[..., Learner] | None = None,
        metrics: Mapping[str, Metric] | Iterable[str | Metric] | None = None,
        callbacks: Iterable[Callback] = (),
    ) -> None:
        named = named_metrics(metrics)
        if config.metrics is not None and metrics is None:
            named = named_metrics(config.metrics.split(","))
        config = settings_of(
            config, env, network, learner, [*named] if metrics else None
        )
        if folder is not None:
            folder.check(config) if resume else folder.check_new()
        prepare_machine(config.device, config.threads)
        self.config, self.folder = config, folder
        self.env = make_env(config) if env is None else env
        self.agent = make_agent(
            config,
            self.env,
            make_memory or memory_of_settings,
            network=network,
            learner=learner,
        )
        self._own_memory = make_memory is not None
        self.observation: NDArray[Any]
        self.observation, _ = self.env.reset(seed=config.seed)
        lengths = filter(None, (config.steps, self.env.num_steps))
        self.num_steps = min(lengths, default=None)
        self.step, self.is_over = 0, False
        self._evaluator = Evaluator(self.env, named)
        self._callbacks = make_callbacks(callbacks, config)
        self._result: dict[str, Any] | None = None  # of a run that was over before
        self._rewards: list[float] = []
        self._reward_sum = 0.0
        self._scores: dict[int, list[float]] = {}  # of every task, by step
        self._metrics: dict[int, dict[str, list[float]]] = {}
        logger = "tensorboard" if config.tensorboard else config.logger
        self._events = EventLog(folder, logger=logger)
        if named:
            self._evaluator.evaluate(self.agent)  # one that always fails is found now
        if folder is not None:
            check_savable(self.agent, self.env)
            if resume:
                folder.acquire()
                try:
                    folder.check_data(self.env.dataset.fingerprint)
                    self._restore(folder)
                except BaseException:
                    folder.release()
                    raise
            else:
                folder.create(config, data=self.env.dataset.fingerprint)
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
            KeyboardInterrupt: after Ctrl-C or SIGTERM, once the step is done and saved,
                if there is a folder.
        """
        if self.folder is None:
            return self._run(progress)
        self.folder.acquire()
        try:
            return self._run(progress)
        finally:
            self.folder.release()
            self._events.close()

    def _run(self, progress: Progress | None) -> dict[str, Any]:
        if self.folder is not None and self.folder.is_finished:
            self._events.send()  # what a kill kept from the logger
            return self.result()
        if not self._scores:
            self.evaluate()
        self._evaluate_if_due()  # a callback may have saved between step and evaluation
        with deferred_interrupt() as interrupted:
            while not self.is_over:
                self.advance()
                self._evaluate_if_due()
                if progress is not None:
                    rewards = self.mean_reward, self.recent_reward
                    progress(self.step, self.num_steps, *rewards)
                if signal := interrupted():
                    self.save()
                    saved = self.folder is not None
                    raise Interrupted(signal, f"step {self.step}", saved=saved)
                if time.monotonic() - self._saved_at > self.config.checkpoint_every:
                    self.save()
            # A signal that comes now lets the run finish.
            if self.step not in self._scores:
                self.evaluate()  # nobody knew that this would be the end
            result = self.result()
            if self.folder is not None:
                self._finish(self.folder, result)
        return result

    def _evaluate_if_due(self) -> None:
        if self.step in self.evaluation_steps and self.step not in self._scores:
            self.evaluate()

    def advance(self) -> float:
        """Predict a batch, be told its targets, and learn from them.

        Returns:
            The reward of the predictions: accuracy, or negative squared error.

        Raises:
            DivergenceError: if training diverges.
        """
        observation = self.observation
        prediction = self.agent.act(observation)
        self.observation, reward, ended, _, info = self.env.step(prediction)
        target = info["label"] if "label" in info else info["target"]
        self.agent.learn(observation, target, info.get("mask"))
        self._rewards.append(float(reward))
        self._reward_sum += float(reward)
        self.step += 1
        if ended:
            self.num_steps = self.step  # a live stream may end before that
        self.is_over = self.step == self.num_steps
        for callback in self._callbacks:
            callback.on_step(self, float(reward))
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

    @property
    def task_ends(self) -> list[int]:
        """The steps after which each task is over, as far as this run goes.

        A shortened run ends in the middle of a task: its end is the last of them.
        """
        last = self.step if self.num_steps is None else self.num_steps
        ends = [end for end in self.env.boundaries if end <= last]
        return ends if last in ends else [*ends, last]

    @cached_property
    def evaluation_steps(self) -> set[int]:
        """The steps after which :meth:`run` evaluates: task ends and some between.

        A stream without an end has none; it is evaluated before the first step and
        after the last.
        """
        if self.num_steps is None:
            return set()
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
        scores, metrics = self._evaluator.evaluate(self.agent)
        self._scores[self.step], self._metrics[self.step] = scores, metrics
        noted = {"scores": scores, "reward": self.recent_reward if self.step else None}
        self._events.note("evaluation", noted, step=self.step)
        if metrics:
            self._events.note("metrics", metrics, step=self.step)
        described = describe_memory(self.agent.memory, self.env.dataset.num_classes)
        if described is not None:
            self._events.note("memory", described, step=self.step)
        self.agent.stopwatch.add("evaluation", start)
        for callback in self._callbacks:
            callback.on_evaluation(self, scores)
        return scores

    def result(self) -> dict[str, Any]:
        """What came out, once all of :attr:`task_ends` were evaluated.

        Returns:
            Settings, scores and memory, as in ``result.json``.
        """
        if self._result is not None:
            return self._result
        ends = self.task_ends
        classes = self.env.dataset.num_classes
        found = summarize(
            [self._scores[end] for end in ends],
            self._scores[0],
            {
                name: [self._metrics[end][name] for end in ends]
                for name in self._evaluator.metrics
            },
            whole=self.num_steps == self.env.num_steps,
        )
        return {
            **self.config.what_matters(),
            "stream": self.config.stream,
            "steps_done": self.step,
            "steps_of_stream": self.env.num_steps,
            "imbalanced_task": self.env.imbalanced_task,
            "task_ends": ends,
            "metric": "accuracy" if classes is not None else "negative squared error",
            "prequential": float(np.mean(self._rewards)),
            **found,
            "memory": describe_memory(self.agent.memory, classes),
        }

    def _finish(self, folder: RunFolder, result: dict[str, Any]) -> None:
        self._events.write()
        folder.write("timing.json", self.agent.stopwatch.seconds)
        save_run(
            folder,
            self.agent,
            self.env.dataset,
            prediction_range=prediction_range(self.env),
            own_memory=self._own_memory,
        )
        folder.write("result.json", result)
        folder.checkpoint.unlink(missing_ok=True)
        self._events.send()

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
                "over": self.is_over,
                "env": self.env.state_dict(),
                "agent": self.agent.state_dict(),
                "rewards": self._rewards,
                "scores": self._scores,
                "metrics": self._metrics,
                "written": self._events.size,
                "seconds": self.agent.stopwatch.seconds,
            },
        )
        self._events.send()
        self._saved_at = time.monotonic()

    def _restore(self, folder: RunFolder) -> None:
        """Go on from a run's files, which change only after all of them are read."""
        if folder.is_finished:
            result = read_result(folder)
            restore_agent(folder, self.agent)
            self._result = result
            self.step = self.num_steps = result["steps_done"]
            self.is_over = True
            self._rewards = [result["prequential"]]  # the single ones are gone
            self._reward_sum = result["prequential"] * self.step
            folder.checkpoint.unlink(missing_ok=True)  # killed just before that
        elif folder.has_checkpoint:
            names = self._evaluator.metrics
            state = read_progress(folder, self.env, self.num_steps, names)
            self._go_on_from(state, folder)
            # What was noted after the checkpoint will be noted again.
            self._events.rewind(state["written"])
        else:
            self._events.rewind(0)  # killed before the first checkpoint
        remove_partial_files(folder.path)

    def _go_on_from(self, state: dict[str, Any], folder: RunFolder) -> None:
        self.observation = restore_parts(folder, state, self.agent, self.env)
        self.step, self.is_over = state["step"], state["over"]
        if self.is_over:
            self.num_steps = self.step
        self._rewards = state["rewards"]
        self._reward_sum = math.fsum(self._rewards)
        self._scores, self._metrics = state["scores"], state["metrics"]
        self.agent.stopwatch.seconds = state["seconds"]
