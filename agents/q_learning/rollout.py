"""Frames from copies of an environment, with a way to resume: :class:`Rollout`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import EnvBase

from agents.runs.saved_states import check_parts, check_tensor

__all__ = ["Rollout"]


class Rollout:
    """Plays copies of an environment with a policy; episodes go on between batches.

    TorchRL's collectors do the same, but cannot be continued in another process: the
    state of an environment cannot be read in general. A rollout remembers the actions
    instead. To continue, it plays them again, and compares what it sees then.

    Args:
        env: copies of an environment with categorical actions, seeded.
        policy: writes the actions.
        keys: entries that frames keep, ``"action"`` among them.
        recorded: whether actions are remembered; without them there is no state.

    Example:
        >>> from torchrl.envs import GymEnv
        >>> def policy(frames):
        ...     return frames.set("action", torch.tensor(1))
        >>> def play():
        ...     env = GymEnv("CartPole-v1", categorical_action_encoding=True)
        ...     env.set_seed(0)
        ...     return Rollout(env, policy, ["action", "observation"])
        >>> one, two = play(), play()
        >>> frames = one.collect(50)
        >>> two.load_state_dict(one.state_dict())
        >>> bool((one.collect(9)["observation"] == two.collect(9)["observation"]).all())
        True
    """

    def __init__(
        self,
        env: EnvBase,
        policy: Callable[[TensorDictBase], TensorDictBase],
        keys: Sequence[NestedKey],
        *,
        recorded: bool = True,
    ) -> None:
        self._env = env
        self._policy = policy
        self._keys = keys
        self._num_actions = int(env.action_spec_unbatched.space.n)
        self._dtype = torch.int32 if self._num_actions > 256 else torch.uint8
        self._recorded = recorded
        self._actions: list[Tensor] = []  # of each batch
        self._current: TensorDictBase | None = None

    @torch.no_grad()
    def collect(self, steps: int) -> TensorDictBase:
        """Go on playing.

        Args:
            steps: of each copy.

        Returns:
            Frames with the copies first, then the steps.
        """
        current, frames = self._begin(), []
        for _ in range(steps):
            frame, current = self._env.step_and_maybe_reset(self._policy(current))
            frames.append(frame.select(*self._keys))
        self._current = current
        batch: TensorDictBase = torch.stack(frames, -1)
        if self._recorded:
            self._actions.append(batch["action"].to("cpu", self._dtype))
        return batch

    def _begin(self) -> TensorDictBase:
        """What the policy looks at next; the first episodes begin here."""
        if self._current is None:
            self._current = self._env.reset()
            # TorchRL's collector tries its policy once. With the same random numbers,
            # results are those of the versions that used it.
            self._policy(self._current.clone())
        return self._current

    def state_dict(self) -> dict[str, Any]:
        """All actions so far, and what they led to.

        Returns:
            The state, for :meth:`load_state_dict`.

        Raises:
            ValueError: if actions are not remembered.
        """
        if not self._recorded:
            raise ValueError("a rollout that is not recorded cannot be saved")
        current = self._begin()
        empty = torch.zeros(*self._env.batch_size, 0, dtype=self._dtype)
        self._actions = [torch.cat([empty, *self._actions], -1)]
        return {"actions": self._actions[0], "observation": current["observation"]}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict` by playing its actions.

        Args:
            state_dict: of copies that had the same seed; these here must not have been
                played yet.

        Raises:
            ValueError: if it is not the state of such a rollout, or the same actions
                lead to something else here.
        """
        self.check_state(state_dict)
        actions, current = state_dict["actions"], self._begin()
        for action in actions.to(current.device).long().unbind(-1):
            _, current = self._env.step_and_maybe_reset(current.set("action", action))
        found = current["observation"]
        if not torch.equal(found.cpu(), state_dict["observation"].cpu()):
            raise ValueError(
                "the environment does not repeat itself: with the same seed and the "
                "same actions it shows something else, so it cannot be continued"
            )
        self._actions, self._current = [actions], current

    def check_state(self, state: Any) -> None:
        """Refuse what is not the state of such a rollout; nothing is played.

        Args:
            state: that was read.

        Raises:
            ValueError: naming the part that does not fit.
        """
        check_parts(state, "actions", "observation", name="the state of a rollout")
        actions, copies = state["actions"], [*self._env.batch_size]
        steps = actions.shape[-1] if isinstance(actions, Tensor) and actions.ndim else 0
        like = torch.zeros(*copies, steps, dtype=self._dtype)
        check_tensor(actions, like, "actions of the rollout")
        if steps and not 0 <= int(actions.min()) <= int(actions.max()) < (
            self._num_actions
        ):
            raise ValueError(f"actions must be below {self._num_actions}")
        shown = self._begin()["observation"]
        check_tensor(state["observation"], shown, "observation of the rollout")
