"""Memories and criteria by name: :func:`make_replay_buffer`, :func:`make_criterion`."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from info_replay.buffers import InfoReservoirReplayBuffer, SelectiveReplayBuffer
from info_replay.model.criteria import Criterion
from info_replay.registry import CRITERIA, POLICIES
from info_replay.writers import HybridWriter, SelectionWriter

__all__ = ["make_criterion", "make_replay_buffer"]


def make_replay_buffer(
    policy: str,
    capacity: int | None = None,
    *,
    recent: int | float | None = None,
    **options: Any,
) -> SelectiveReplayBuffer:
    """A replay buffer by the name of its selection policy.

    Options that only other policies have a use for are ignored, so a loop over policies
    can give all of them the same ones.

    Args:
        policy: ``"auto"``, to begin with (:func:`~info_replay.writers.auto_writer`);
            ``"rs"``, ``"wrs"``, ``"cbrs"``, ``"gss"``, ``"fss-clust"``, ``"coreset"``,
            ``"infogs"``, ``"infogs-rs"``, ``"infors"``, one that was registered
            (:func:`register_policy`), or any writer as ``"module:Name"``.
        capacity: number of slots.
        recent: how many of the slots, a number or a share, hold the most recent items,
            the policy selecting among older ones for the rest; see
            :class:`HybridWriter`. By default it selects for all slots.
        **options: of the policy's writer and of :class:`SelectiveReplayBuffer`.

    Returns:
        The buffer, an :class:`InfoReservoirReplayBuffer` for ``"infors"``.

    Raises:
        ValueError: if there is no such policy.
        TypeError: if no policy and no buffer has such an option, or one that the policy
            needs is missing.

    Example:
        >>> for policy in ("auto", "rs", "cbrs", "infors"):
        ...     buffer = make_replay_buffer(policy, 100, num_classes=10, batch_size=32)
        ...     buffer.writer
        BalancedInfoReservoirWriter(write_count=0, reservoir_count=0)
        ReservoirWriter(write_count=0, reservoir_count=0)
        ClassBalancedReservoirWriter(write_count=0, reservoir_count=0)
        InfoReservoirWriter(write_count=0, reservoir_count=0)
    """
    make_writer = POLICIES.get(policy)
    of_buffer = _options(*(each.__init__ for each in SelectiveReplayBuffer.__mro__))
    own = _own_options(policy, make_writer, options, of_buffer)
    rest = {name: value for name, value in options.items() if name in of_buffer}
    if policy == "infors":
        return InfoReservoirReplayBuffer(capacity, recent=recent, **own, **rest)
    writer = make_writer(**own)
    if not isinstance(writer, SelectionWriter):
        raise TypeError(
            f"policy {policy!r} must make a SelectionWriter, got {writer!r}"
        )
    if recent is not None:
        writer = HybridWriter(writer, recent)
    return SelectiveReplayBuffer(capacity, writer=writer, **rest)


def _own_options(
    policy: str,
    make_writer: Callable[..., Any],
    options: dict[str, Any],
    of_buffer: set[str],
) -> dict[str, Any]:
    """The options of the policy's writer; raises if one is unknown or missing."""
    parameters = _parameters(make_writer)
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    known = of_buffer | _options(make_writer)
    if options.keys() - known and not takes_all:
        known |= _options(*map(POLICIES.get, POLICIES))
    for name in options.keys() - known:
        if not takes_all:
            close = difflib.get_close_matches(name, sorted(known), 1)
            raise TypeError(
                f"no policy and no buffer has an option {name!r}"
                + (f"; did you mean {close[0]!r}?" if close else "")
            )
    own = {
        name: value
        for name, value in options.items()
        if name in parameters or (takes_all and name not in known)
    }
    for name, parameter in parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and not variadic and name not in own:
            raise TypeError(f"policy {policy!r} needs the option {name!r}")
    return own


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Arguments of a function; none of builtin types without a signature."""
    try:
        return inspect.signature(function).parameters
    except ValueError:
        return {}


def _options(*functions: Callable[..., Any]) -> set[str]:
    """Names of the arguments of some functions."""
    return {
        name
        for function in functions
        for name, parameter in _parameters(function).items()
        if name not in ("self", "writer")
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def make_criterion(criterion: str, **options: Any) -> Criterion:
    """A criterion by its name.

    Options that only other criteria have a use for are ignored, as ``eta`` is by
    ``"er"``.

    Args:
        criterion: ``"mic"``, ``"ig"``, ``"er"``, one that was registered
            (:func:`register_criterion`), or any criterion as ``"module:Name"``.
        **options: of the criterion.

    Returns:
        The criterion.

    Raises:
        ValueError: if there is no such criterion.
        TypeError: if no criterion has such an option.

    Example:
        >>> make_criterion("mic", eta=0.5), make_criterion("er", eta=0.5)
        (MIC(eta=0.5), EntropyReduction())
    """
    make = CRITERIA.get(criterion)
    known = _options(make, *map(CRITERIA.get, CRITERIA))
    for name in options.keys() - known:
        raise TypeError(f"no criterion has an option {name!r}; known: {sorted(known)}")
    own = _options(make)
    made = make(**{name: value for name, value in options.items() if name in own})
    if not isinstance(made, Criterion):
        raise TypeError(f"criterion {criterion!r} must make a Criterion, got {made!r}")
    return made
