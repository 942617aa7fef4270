"""Control tasks one after the other in one environment: :class:`TaskSequenceEnv`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.wrappers import TimeLimit

from continual_envs.cartpole import (
    CartPoleVariantEnv,
    Info,
    Observation,
    make_variants,
)
from continual_envs.checks import is_whole

__all__ = ["MAX_EPISODE_STEPS", "TaskSequenceEnv"]

#: As in CartPole-v1.
MAX_EPISODE_STEPS = 500


class TaskSequenceEnv(CartPoleVariantEnv):
    """CartPole whose task changes now and then, and never back.

    Task ``i`` is variant ``i`` of :func:`~continual_envs.cartpole.make_variants`. It
    gives way to the next one at the first ``reset()`` after ``lengths[i]`` of its own
    frames: no episode is cut, and the frames that its last episode takes beyond its
    length are not taken from the next task. The last task stays for good. An
    observation is CartPole's four numbers, as the variant shows them, and a one-hot
    context; nothing else tells the tasks apart.

    ``reset(seed=...)`` begins a new life: the first task, and a new generator.
    ``reset()`` goes on with this one. So seed the first reset only.

    The class knows no time limit; ``gymnasium.make`` wraps it in one of 500 steps. The
    evaluator, not the learner, may read :attr:`task`, :attr:`frames`,
    :attr:`boundaries` and :meth:`make_task`.

    Args:
        lengths: frames of each task.
        variants: ``"permuted"`` or ``"physics"``.
        render_mode: ``"rgb_array"`` or ``"human"``; both need pygame.

    Attributes:
        lengths: frames of each task.
        variants: kind of the variants.
        task: number of the current task.
        frames: number of steps since the last reset with a seed.

    Raises:
        ValueError: if an option has a wrong value.

    Example:
        >>> env = TaskSequenceEnv(lengths=(5, 20))
        >>> observation, info = env.reset(seed=0)
        >>> over = False
        >>> while not over:
        ...     observation, reward, over, _, info = env.step(0)
        >>> env.task, env.frames, env.boundaries
        (0, 11, [5, 25])
        >>> observation, info = env.reset()
        >>> env.task, env.frames, env.boundaries
        (1, 11, [11, 31])
    """

    def __init__(
        self,
        lengths: Sequence[int] = (10_000, 10_000, 10_000),
        variants: str = "permuted",
        render_mode: str | None = None,
    ) -> None:
        self.lengths = _checked_lengths(lengths)
        self.variants = variants
        self.frames = 0
        self._starts = [0]  # frames before each task that has begun
        super().__init__(make_variants(variants, len(self.lengths)), 0, render_mode)

    # -- gymnasium's interface --------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Start an episode, of the next task if the current one had its frames.

        Args:
            seed: starts the sequence again from its first task, with a new generator;
                by default both go on.
            options: CartPole's ``low`` and ``high``, bounds of the first state, by
                default -0.05 and 0.05.

        Returns:
            The first observation and an empty info.
        """
        before = self.frames, self._starts
        if seed is not None:
            self.frames, self._starts = 0, [0]
        elif (
            self.task < len(self.lengths) - 1
            and self.frames - self._starts[-1] >= self.lengths[self.task]
        ):
            self._starts = [*self._starts, self.frames]
        self._become(len(self._starts) - 1)
        try:
            return super().reset(seed=seed, options=options)
        except Exception:  # CartPole refuses seed or options: all stays as it was
            self.frames, self._starts = before
            self._become(len(self._starts) - 1)
            raise

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Push the cart.

        Args:
            action: 0 or 1.

        Returns:
            The observation, the reward 1, whether the pole fell or the cart left the
            track, ``False``, and an empty info.
        """
        outcome = super().step(action)
        self.frames += 1
        return outcome

    # -- for the evaluator ------------------------------------------------------------

    @property
    def boundaries(self) -> list[int]:
        """Frames, counted from the beginning, after which each task is over.

        Those of the past are exact. The current and future tasks may end some frames
        later, as their last episode is not cut. Before the first step these are the
        cumulated lengths.
        """
        ahead = itertools.accumulate(
            self.lengths[self.task :], initial=self._starts[-1]
        )
        return self._starts[1:] + list(ahead)[1:]

    def make_task(
        self, task: int, render_mode: str | None = None
    ) -> TimeLimit[Any, Any]:
        """An environment of one task alone, to judge a learner by.

        Args:
            task: its number.
            render_mode: ``"rgb_array"`` or ``"human"``.

        Returns:
            The environment, with the same spaces and a time limit of 500 steps.
            It shares nothing with this one.

        Raises:
            ValueError: if there is no such task.

        Example:
            >>> env = TaskSequenceEnv().make_task(2)
            >>> observation, info = env.reset(seed=0)
            >>> observation[4:].tolist()
            [0.0, 0.0, 1.0]
        """
        last = len(self.lengths) - 1
        if not is_whole(task) or not 0 <= task <= last:
            raise ValueError(
                f"the task must be a whole number from 0 to {last}, got {task!r}"
            )
        env = CartPoleVariantEnv(self._variants, int(task), render_mode)
        return TimeLimit(env, MAX_EPISODE_STEPS)

    # -- resuming ---------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        return {"variants": self.variants, "lengths": list(self.lengths)}

    def state_dict(self) -> dict[str, Any]:
        """Where the sequence is between two episodes, as values that JSON can hold.

        Call it when an episode is over: the state of the cart is not in it.

        Returns:
            The state, for :meth:`load_state_dict`.
        """
        return {
            **self._identity(),
            "starts": list(self._starts),
            "frames": self.frames,
            "np_random": self.np_random.bit_generator.state,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`, maybe of another process.

        Call ``reset()`` next, without a seed: it starts the episode that it would have
        started after the state was saved.

        Args:
            state_dict: of an environment with the same options.

        Raises:
            ValueError: if it is of another sequence; nothing is changed then.
        """
        if not isinstance(state_dict, dict):
            raise ValueError(
                f"the state of a sequence is a dictionary, got {type(state_dict)}"
            )
        for key, expected in self._identity().items():
            found = state_dict.get(key)
            if found != expected:
                raise ValueError(
                    f"cannot continue a sequence with {key}={found!r} as one with "
                    f"{key}={expected!r}"
                )
        for key in ("starts", "frames", "np_random"):
            if key not in state_dict:
                raise ValueError(
                    f"this is not the state of a sequence: it has no {key}"
                )
        starts, frames = state_dict["starts"], state_dict["frames"]
        self._check_progress(starts, frames)
        bits = np.random.PCG64()
        try:
            bits.state = state_dict["np_random"]
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(
                f"np_random is not a generator's state: {error!r}"
            ) from error
        self.np_random = np.random.Generator(bits)
        self._starts, self.frames = list(starts), frames
        self._become(len(starts) - 1)
        self.state = None  # a step before the next reset is refused

    def _check_progress(self, starts: Any, frames: Any) -> None:
        """Refuse starts of tasks and a number of frames that cannot come together."""
        possible = (
            is_whole(frames)
            and isinstance(starts, list)
            and 1 <= len(starts) <= len(self.lengths)
            and all(map(is_whole, starts))
            and starts[0] == 0
            and frames >= starts[-1]
            and all(
                after - before >= length
                for (before, after), length in zip(
                    itertools.pairwise(starts), self.lengths, strict=False
                )
            )
        )
        if not possible:
            raise ValueError(
                f"tasks of {list(self.lengths)} frames cannot have started after "
                f"{starts!r} of {frames!r} frames"
            )


def _checked_lengths(lengths: Any) -> tuple[int, ...]:
    """The lengths as a tuple of whole numbers; raise if they are none."""
    listed = lengths.tolist() if isinstance(lengths, np.ndarray) else lengths
    if (
        not isinstance(listed, list | tuple)
        or not listed
        or not all(is_whole(length) and length > 0 for length in listed)
    ):
        raise ValueError(
            "lengths must be a sequence of whole numbers of at least 1, one a task, "
            f"got {lengths!r}"
        )
    return tuple(int(length) for length in listed)
