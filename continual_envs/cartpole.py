"""Variants of gymnasium's CartPole that one network can tell apart.

:func:`make_variants` numbers them, :class:`CartPoleVariantEnv` plays one. They share
their spaces: an observation is the four numbers of CartPole, as the variant shows them,
followed by a one-hot context with the number of the variant.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from numpy.typing import NDArray

__all__ = ["KINDS", "CartPoleVariantEnv", "Variant", "make_variants"]

Observation = NDArray[np.float32]
Info = dict[str, Any]

#: The kinds of variants.
KINDS = ("permuted", "physics")

# The variants are part of the benchmark: this never changes. It was chosen among seeds
# so that the first variants are not nearly the same problem.
_SHUFFLE_SEED = 42

# CartPole's speeds are unbounded, which gymnasium's checker complains about. This is
# about twice what an episode can reach: no variant accelerates its cart beyond 11 m/s²,
# along 4.8 m, or its pole beyond 65 rad/s², along 0.42 rad.
_MAX_SPEED = 20.0


@dataclass(frozen=True)
class Variant:
    """How one variant differs from CartPole-v1; by default not at all.

    Args:
        order: which of CartPole's four numbers is shown at each place.
        signs: what the number at each place is multiplied with, 1 or -1.
        swapped: whether action 0 pushes to the right and action 1 to the left.
        gravity: in m/s²; where it is negative, the pole hangs from the cart.
        length: half the length of the pole, in m.
        mass: of the pole, in kg; the cart has 1 kg.
    """

    order: tuple[int, ...] = (0, 1, 2, 3)
    signs: tuple[int, ...] = (1, 1, 1, 1)
    swapped: bool = False
    gravity: float = 9.8
    length: float = 0.5
    mass: float = 0.1


_PHYSICS = (
    Variant(),
    Variant(gravity=-9.8, length=1.5, mass=1.0),
    Variant(gravity=30.0, length=0.2, mass=0.1),
)


def make_variants(kind: str, count: int) -> list[Variant]:
    """The first variants of a kind, the same for every seed. The first is CartPole-v1.

    * ``"permuted"``: the four numbers change places and signs, and the actions may be
      swapped. There are 384: of two that mirror each other, and so are one problem to
      a learner, only one is in the list.
    * ``"physics"``: there are three. The second has a long and heavy pole that hangs
      from the cart (gravity -9.8 m/s², half-length 1.5 m, mass 1 kg): the cart comes
      back when it is pushed back, while CartPole's must be pushed on until the pole
      leans back. The third has a short pole and strong gravity (30 m/s², 0.2 m,
      0.1 kg): only quick corrections keep it up. CartPole-v1 has 9.8 m/s², 0.5 m and
      0.1 kg. In each a linear policy can reach all 500 steps.

    Args:
        kind: ``"permuted"`` or ``"physics"``.
        count: how many.

    Returns:
        The variants.

    Raises:
        ValueError: if there is no such kind or there are not so many.

    Example:
        >>> plain, hanging, short = make_variants("physics", 3)
        >>> hanging.gravity, hanging.length, hanging.mass
        (-9.8, 1.5, 1.0)
    """
    if kind not in KINDS:
        raise ValueError(f"variants must be one of {list(KINDS)}, got {kind!r}")
    known = list(_PHYSICS) if kind == "physics" else _permuted()
    if count > len(known):
        raise ValueError(
            f"there are {len(known)} {kind} variants, got lengths for {count} tasks"
        )
    return known[:count]


def _permuted() -> list[Variant]:
    """All permuted variants, the plain one first, the others shuffled."""
    every = [
        Variant(order, signs, swapped)
        for order in itertools.permutations(range(4))
        for signs in itertools.product((1, -1), repeat=4)
        for swapped in (False, True)
    ]
    shuffled = np.random.Generator(np.random.PCG64(_SHUFFLE_SEED)).permutation(
        len(every)
    )
    found: dict[Variant, None] = {Variant(): None}  # a set that keeps its order
    for number in shuffled:
        variant = every[number]
        # CartPole is symmetric: left and right may be exchanged in all it tells and
        # all it takes, and nothing changes.
        mirror = Variant(
            variant.order, tuple(-sign for sign in variant.signs), not variant.swapped
        )
        if mirror not in found:
            found[variant] = None
    return list(found)


class CartPoleVariantEnv(CartPoleEnv):
    """One of several variants of CartPole, which it tells in its observation.

    As gymnasium's own, it knows no time limit: that is a wrapper's business.

    Args:
        variants: all that share the spaces.
        task: number of the one to play.
        render_mode: ``"rgb_array"`` or ``"human"``; both need pygame.

    Attributes:
        task: number of the variant that is played.

    Example:
        >>> env = CartPoleVariantEnv(make_variants("permuted", 3), task=1)
        >>> observation, info = env.reset(seed=0)
        >>> observation.shape, observation[4:].tolist()
        ((7,), [0.0, 1.0, 0.0])
    """

    def __init__(
        self, variants: Sequence[Variant], task: int, render_mode: str | None = None
    ) -> None:
        modes = self.metadata["render_modes"]
        if render_mode is not None and render_mode not in modes:
            raise ValueError(
                f"render_mode must be None or one of {modes}, got {render_mode!r}"
            )
        super().__init__(render_mode=render_mode)
        self._variants = tuple(variants)
        plain = self.observation_space
        assert isinstance(plain, spaces.Box)
        bounds = np.where(np.isfinite(plain.high), plain.high, _MAX_SPEED)
        # One box for all variants: at each place the widest bounds of any.
        high = np.max(
            [bounds[list(variant.order)] for variant in self._variants], axis=0
        )
        ones = np.ones(len(self._variants), dtype=np.float32)
        self.observation_space = spaces.Box(
            np.concatenate([-high, 0 * ones]).astype(np.float32),
            np.concatenate([high, ones]).astype(np.float32),
        )
        self._become(task)

    def _become(self, task: int) -> None:
        """Play a variant from now on."""
        variant = self._variants[task]
        self.task = task
        self._order = np.array(variant.order)
        self._signs = np.array(variant.signs, dtype=np.float32)
        self._swapped = variant.swapped
        self.gravity = variant.gravity
        self.length = variant.length
        self.masspole = variant.mass
        # CartPole works these out once, from its own constants.
        self.total_mass = self.masspole + self.masscart
        self.polemass_length = self.masspole * self.length

    def _show(self, numbers: Observation) -> Observation:
        """CartPole's four numbers as this variant shows them, and the context."""
        observation = np.zeros(4 + len(self._variants), dtype=np.float32)
        observation[:4] = self._signs * numbers[self._order]
        observation[4 + self.task] = 1
        return observation

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Start an episode.

        Args:
            seed: of the random first states; by default the generator goes on.
            options: CartPole's ``low`` and ``high``, bounds of the first state, by
                default -0.05 and 0.05.

        Returns:
            The first observation and an empty info.
        """
        numbers, info = super().reset(seed=seed, options=options)
        return self._show(numbers), info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Push the cart.

        Args:
            action: 0 or 1.

        Returns:
            The observation, the reward 1, whether the pole fell or the cart left the
            track, ``False``, and an empty info.
        """
        if self.state is None or self.steps_beyond_terminated is not None:
            raise gymnasium.error.ResetNeeded(
                "there is no episode: call reset() to start one"
            )
        if not self.action_space.contains(action):
            raise ValueError(f"the action must be 0 or 1, got {action!r}")
        push = 1 - int(action) if self._swapped else int(action)
        numbers, reward, terminated, truncated, info = super().step(push)
        return self._show(numbers), reward, terminated, truncated, info

    def render(self) -> Any:
        """The cart and its pole, whatever the variant shows of them.

        Returns:
            A picture if the render mode is ``"rgb_array"``.
        """
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() needs a render_mode when the environment is made"
            )
            return None
        return super().render()
