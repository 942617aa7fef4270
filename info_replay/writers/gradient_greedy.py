"""Greedy gradient-based sample selection: gradients in the memory should disagree."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase
from torch import Tensor

from info_replay.decision import Decision
from info_replay.random_stream import generator_of
from info_replay.registry import register_policy
from info_replay.storage.entries import BOOKKEEPING_KEYS
from info_replay.transfer import to_host
from info_replay.validation import check_count
from info_replay.writers.base import SelectionWriter

__all__ = ["GradientGreedyWriter"]

# Most numbers of per-sample gradients that are in memory at once.
_LARGEST = 2**25
# Score of items that came before there was anything to compare them with.
_FIRST_SCORE = 0.1


@register_policy("gss")
class GradientGreedyWriter(SelectionWriter):
    """Keeps items whose gradients point elsewhere: GSS-Greedy (Aljundi et al., 2019).

    The score of an item is the largest cosine similarity of its loss gradient to the
    gradients of some random groups of items in the memory. Every item is stored with
    its score while there is room. A full memory takes part in a block of items only if
    the gradient of the whole block is at an obtuse angle to that of every group. Then
    each item challenges one slot, drawn in proportion to the slots' scores (from 0 for
    the least to 1 for the greatest), and takes it with probability
    ``(s + 1) / ((s + 1) + (c + 1))``, ``s`` being the slot's score and ``c`` its own.

    The method is defined by blocks, here the batches that are offered, in parts where
    the memory becomes full in between or a batch has more items than the memory has
    slots. So, unlike with most policies, what is kept depends on the batch size.

    Args:
        gradients: gives the gradients ``(n, P)`` of the mean loss of each of ``n``
            groups of ``m`` items, a tensordict with ``batch_size=[n, m]`` on the
            storage's device.
        group_size: items of a group.
        groups: most groups that are drawn for a block; they do not overlap.

    Example:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> def gradients(items):  # of (weight * x - y)**2 / 2 at weight = 1
        ...     return ((items["x"] - items["y"]) * items["x"]).mean(1, keepdim=True)
        >>> buffer = TensorDictReplayBuffer(
        ...     storage=LazyTensorStorage(4), writer=GradientGreedyWriter(gradients)
        ... )
        >>> x = torch.ones(4)
        >>> buffer.extend(TensorDict({"x": x, "y": 0 * x}, batch_size=[4]))
        tensor([0, 1, 2, 3])
        >>> buffer.extend(TensorDict({"x": x, "y": -x}, batch_size=[4]))  # the same way
        tensor([-1, -1, -1, -1])
        >>> contrary = buffer.extend(TensorDict({"x": x, "y": 9 * x}, batch_size=[4]))
        >>> bool((contrary >= 0).any())
        True
    """

    def __init__(
        self,
        gradients: Callable[[TensorDictBase], Tensor],
        *,
        group_size: int = 10,
        groups: int = 10,
    ) -> None:
        super().__init__()
        if not callable(gradients):
            raise TypeError(f"gradients must be a function of items, got {gradients!r}")
        check_count("group_size", group_size)
        check_count("groups", groups)
        self.gradients = gradients
        self.group_size = group_size
        self.groups = groups
        self._scores = self.per_slot("scores", np.float64)

    @property
    def scores(self) -> NDArray[np.float64]:
        """Score of each item in the memory, by slot."""
        self.catch_up()
        return self._scores.array[: len(self.slots)].copy()

    # -- gradients --------------------------------------------------------------------

    def _units(self, items: TensorDictBase, width: int | None = None) -> Tensor:
        """Gradients ``(n, P)`` of groups of items, scaled to length 1 unless 0."""
        with torch.enable_grad():
            gradients = self.gradients(items)
        if not isinstance(gradients, Tensor) or not gradients.is_floating_point():
            kind = getattr(gradients, "dtype", type(gradients).__name__)
            raise TypeError(
                f"the gradients function must give a floating-point tensor, got {kind}"
            )
        shape = tuple(gradients.shape)
        if len(shape) != 2 or shape != (len(items), width or max(1, shape[1])):
            raise ValueError(
                "the gradients function must give one gradient per group, shape "
                f"({len(items)}, {width or 'P'}), got {shape}"
            )
        gradients = gradients.detach()
        # Squares of large numbers would overflow without the first division.
        gradients = gradients / _divisor(_largest(gradients))
        length = torch.linalg.vector_norm(gradients, dim=1, keepdim=True)
        return gradients.div_(_divisor(length))

    def _group_gradients(self, draws: NDArray[np.float64]) -> Tensor:
        """Gradients of random groups of the memory, ``(groups, P)``."""
        size = len(draws)
        width = min(self.group_size, size)
        count = min(self.groups, size // width)
        chosen = np.argsort(draws, kind="stable")[: count * width]
        index = torch.from_numpy(chosen).to(self.slots.device)
        return self._units(self.slots.read(index).reshape(count, width))

    def _similarities(self, items: TensorDictBase, groups: Tensor) -> Tensor:
        """Largest cosine similarity of each item to the groups, shape ``(n,)``."""
        width = groups.shape[1]
        return torch.cat(
            [
                (self._units(part.unsqueeze(1), width) @ groups.T).amax(1)
                for part in items.split(max(1, _LARGEST // width))
            ]
        )

    def _place(self, data: TensorDictBase) -> TensorDictBase:
        return data.exclude(*BOOKKEEPING_KEYS).to(self.slots.device)

    # -- deciding ---------------------------------------------------------------------

    def split(self, count: int) -> list[slice]:
        """Blocks of at most as many items as there are slots."""
        capacity = self.slots.capacity
        filled = min(count, capacity - len(self.slots))
        cuts = [*range(0, filled, capacity), *range(filled, count, capacity), count]
        return [slice(a, b) for a, b in itertools.pairwise(cuts)]

    def check(self, batch: TensorDictBase) -> None:
        """Refuse gradients that are not finite."""
        # The mean of gradients is finite only if all of them are.
        items, blocks = self._place(batch), self.split(len(batch))
        means = [self._units(items[block].unsqueeze(0)).sum() for block in blocks]
        _fetch(torch.stack(means), torch.zeros_like(means[0]))

    def decide(self, batch: TensorDictBase) -> Decision:
        """Give slots to the items of a batch; see :meth:`SelectionWriter.decide`."""
        size, count = len(self.slots), len(batch)
        group_draws, candidate_draws, draws = self._draw(size, count)
        scores = np.full(count, _FIRST_SCORE)
        places = size + np.arange(count)
        if not size:
            self.check(batch)  # later items are compared with these
        else:
            items = self._place(batch)
            groups = self._group_gradients(group_draws)
            if size < self.slots.capacity:
                scores = _fetch(self._similarities(items, groups), groups.sum())
            else:
                block = self._units(items.unsqueeze(0), groups.shape[1])
                (similarity,) = _fetch((block @ groups.T).amax(1), groups.sum())
                if similarity < 0:
                    scores = _fetch(self._similarities(items, groups), groups.sum())
                    stored = self._scores.array
                    places = _draw_order(stored, candidate_draws)[:count]
                    places[draws >= _chance(stored[places], scores)] = -1
                else:
                    places = np.full(count, -1)

        def commit() -> None:
            kept = places >= 0
            self._scores.array[places[kept]] = scores[kept]
            self.reservoir_count += int(kept.sum())

        return Decision(places, commit)

    def _draw(self, size: int, count: int) -> list[NDArray[np.float64]]:
        """Random numbers: one per slot for groups and candidates each, one per item."""
        generator = generator_of(self.seed, 1, self.draw_count)
        return [generator.random(length) for length in (size, size, count)]

    def adopt(self, items: TensorDictBase) -> None:
        """Give items that the storage brought along the score of the first ones."""
        self._scores.array[: len(items)] = _FIRST_SCORE


def _largest(rows: Tensor) -> Tensor:
    """Largest absolute value of each row, ``(n, 1)``."""
    # vector_norm() with order inf is 20 times slower, and abs() would make a copy.
    return torch.maximum(rows.amax(1, keepdim=True), -rows.amin(1, keepdim=True))


def _divisor(lengths: Tensor) -> Tensor:
    """What rows of some lengths are divided by; those of length 0 remain."""
    return torch.where(lengths > 0, lengths, 1)


def _fetch(similarities: Tensor, memory: Tensor) -> NDArray[np.float64]:
    """Bring similarities to the host; raises unless they and ``memory`` are finite."""
    found, of_memory = to_host(similarities, memory)
    for items, numbers in (("in the memory", of_memory), ("of the batch", found)):
        if not np.isfinite(numbers).all():
            raise ValueError(
                "the gradients function must give finite numbers, got infinite ones or "
                f"NaN for items {items}"
            )
    # Rounding must not make a probability negative.
    return np.clip(found.astype(np.float64), -1, 1)


def _draw_order(
    scores: NDArray[np.float64], draws: NDArray[np.float64]
) -> NDArray[np.int64]:
    """All slots as drawn without replacement, given a uniform number for each.

    Chances are in proportion to the distance from the least score, or the same if all
    scores are; slots without a chance come last, in random order.
    """
    weights = scores - scores.min()
    if not weights.any():
        weights = np.ones_like(scores)
    # Exponential waiting times with these rates end in the order of such draws.
    waits = -np.log1p(-draws)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        times = np.where(weights > 0, waits / weights, np.inf)
    return np.lexsort((waits, times))


def _chance(
    stored: NDArray[np.float64], scores: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Probability that an item of some score replaces one with a stored score."""
    total = (stored + 1) + (scores + 1)
    return np.divide(stored + 1, total, out=np.full(len(total), 0.5), where=total > 0)
