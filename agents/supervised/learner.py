"""What a run asks of its learner, and learners by name.

* :class:`Learner`, the protocol: any class that follows it can be trained;
* :data:`LEARNERS` and :func:`make_learner`, learners by name.

What learners with a memory share is in :mod:`agents.supervised.replay_learner`.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from agents.runs.divergence import DivergenceError
from agents.runs.stopwatch import Stopwatch
from info_replay.registry import Registry

if TYPE_CHECKING:  # names of learners can be listed without torch
    import torch
    from torchrl.data import TensorDictReplayBuffer

__all__ = [
    "LEARNERS",
    "DivergenceError",
    "Learner",
    "learner_options",
    "make_learner",
]


class Learner(Protocol):
    """Predicts a batch, is told its targets, and learns from them.

    A class of the user's has to have :meth:`act`, :meth:`learn`, :meth:`state_dict` and
    :meth:`load_state_dict`; :func:`make_learner` adds what else is missing.

    Attributes:
        network: what it learns, of any class of torch's modules.
        memory: what it replays from, ``None`` for no replay.
        stopwatch: where its time goes.
    """

    network: torch.nn.Module
    memory: TensorDictReplayBuffer | None
    stopwatch: Stopwatch

    def act(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Predictions for a batch that :meth:`learn` will be given next."""

    def learn(
        self,
        observation: NDArray[Any],
        target: NDArray[Any],
        mask: NDArray[np.bool_] | None = None,
    ) -> None:
        """Learn from a batch whose targets are known now.

        Args:
            observation: inputs, shape ``(n, ...)``. If it is the very array that
                :meth:`act` was given last, it must not have been changed since.
            target: labels ``(n,)``, or numbers ``(n,)`` or ``(n, K)``.
            mask: which of them are not padding, shape ``(n,)``; by default labels that
                are not -1, and all numbers.

        Raises:
            ValueError: if shapes, types or labels are wrong; nothing is changed.
            DivergenceError: if training diverges.
        """

    def predict(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Predictions for an evaluation; what is learned does not depend on it.

        By default those of :meth:`act`.
        """
        return self.act(inputs)

    def check_finite(self) -> None:
        """Look whether the network can still be learned with; waits for the device.

        By default whether all parameters are finite.

        Raises:
            DivergenceError: if it cannot.
        """
        if not all(bool(each.isfinite().all()) for each in self.network.parameters()):
            raise DivergenceError("parameters of the network are not finite")

    def state_dict(self) -> dict[str, Any]:
        """Everything that later steps depend on, as plain values and tensors."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`."""


class _Learners(Registry[Callable[..., Any]]):
    """Ours are imported when they are asked for: their modules import this one."""

    ours = {
        "der++": "agents.supervised.derpp:DERPlusPlusAgent",
        "er": "agents.supervised.er:ExperienceReplay",
        "er-ace": "agents.supervised.er_ace:AsymmetricReplay",
        "finetune": "agents.supervised.finetune:Finetune",
    }

    def __iter__(self) -> Iterator[str]:
        others = (name for name in super().__iter__() if name not in self.ours)
        return iter([*self.ours, *others])

    def get(self, name: str) -> Callable[..., Any]:
        return super().get(self.ours.get(name, name))


#: Learners by name; each entry makes one from a network, a memory and options.
LEARNERS = _Learners("learner", "info_replay.learners")


def make_learner(
    learner: str | Callable[..., Any],
    network: torch.nn.Module,
    memory: TensorDictReplayBuffer | None,
    *,
    num_classes: int | None,
    **options: Any,
) -> Learner:
    """A learner by its name.

    Options that the learner does not ask for are ignored if another one of
    :data:`LEARNERS` does, so a loop over learners can give all of them the same ones.

    Args:
        learner: one of :data:`LEARNERS`, ``"module:Name"``, or a class that follows
            :class:`Learner`.
        network: that learns.
        memory: to replay from, ``None`` for no replay.
        num_classes: number of classes, ``None`` for regression.
        **options: ``prediction_range``, ``device``, ``seed``, ``learning_rate``, ... of
            the learner's constructor.

    Returns:
        The learner.

    Raises:
        ValueError: if there is no such learner, if no learner has such an option, if
            one that it needs is missing or wrong, or if what is made is not a learner.

    Example:
        >>> from agents.supervised.networks import make_network
        >>> for name in LEARNERS:
        ...     network = make_network("fc", (4,), 3, seed=0)
        ...     made = make_learner(name, network, None, num_classes=3, alpha=0.5)
        ...     print(type(made).__name__)
        DERPlusPlusAgent
        ExperienceReplay
        AsymmetricReplay
        Finetune
    """
    make = LEARNERS.get(learner) if isinstance(learner, str) else learner
    name = learner if isinstance(learner, str) else getattr(make, "__name__", make)
    asked = learner_options(make)
    options["num_classes"] = num_classes
    known = set(asked)
    if options.keys() - known:
        known = known.union(_COMMON, *map(learner_options, map(LEARNERS.get, LEARNERS)))
    for option in sorted(options.keys() - known):
        close = difflib.get_close_matches(option, sorted(known), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"no learner has an option {option!r}{hint}")
    for option, parameter in asked.items():
        if parameter.default is parameter.empty and option not in options:
            raise ValueError(f"learner {name!r} needs the option {option!r}")
    given = {key: value for key, value in options.items() if key in asked}
    made: Learner = make(network, memory, **given)
    defaults = {
        "network": network,
        "memory": memory,
        "stopwatch": Stopwatch(),
        "predict": getattr(made, "act", None),
        "check_finite": functools.partial(Learner.check_finite, made),
    }
    for part, default in defaults.items():
        if not hasattr(made, part):
            setattr(made, part, default)
    wanted = [*Learner.__annotations__, *vars(Learner)]
    missing = [
        each for each in wanted if not (each.startswith("_") or hasattr(made, each))
    ]
    if missing:
        raise ValueError(
            f"learner {name!r} must follow agents.supervised.learner.Learner, but it "
            f"has no {', '.join(missing)}"
        )
    return made


# What a run gives every learner.
_COMMON = ("num_classes", "prediction_range", "device", "seed")


def learner_options(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Options that a learner asks for, also those that it hands on to its base.

    Args:
        make: the class of the learner, or a function that makes one.

    Example:
        >>> "join" in learner_options(LEARNERS.get("er"))
        True
    """
    if not inspect.isclass(make):
        return _after_memory([*inspect.signature(make).parameters.values()])
    found: dict[str, inspect.Parameter] = {}
    for each in make.__mro__[:-1]:
        if "__init__" in vars(each):
            _, *parameters = inspect.signature(
                vars(each)["__init__"]
            ).parameters.values()
            found = {**_after_memory(parameters), **found}
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
    return found


def _after_memory(parameters: list[inspect.Parameter]) -> dict[str, inspect.Parameter]:
    """Parameters that can be given by name, but for the network and the memory."""
    leading = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD][2:]
    named = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    return {parameter.name: parameter for parameter in (*leading, *named)}
