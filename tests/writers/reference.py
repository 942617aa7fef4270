"""The paper's algorithms, one item at a time and as slow as they are written.

Each function follows its pseudocode line by line, on the formulas of
:mod:`tests.reference`, and every item meets the memory as the one before it left it.
Nothing is shared with the package but the random number of each item, so that decisions
can be compared one by one. The streams that tests feed to both are at the end.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from info_replay import SelectionWriter
from info_replay.random_stream import RandomStream, generator_of
from tests.reference import Criterion, Memory, moments, one_hot

Array = NDArray[np.float64]

#: A score this far below a threshold, in units of 1 + |threshold|, ties with it.
TIE = math.sqrt(np.finfo(np.float64).eps)


def random_numbers(seed: int, count: int) -> Array:
    """The number in [0, 1) that decides about each item of a stream."""
    return RandomStream().uniforms(seed, 0, count)[:, 0]


# -- reservoirs -----------------------------------------------------------------------


@dataclass
class Run:
    """What became of a stream.

    Attributes:
        slots: that each item was given when it was offered, -1 for none.
        memory: number of the item in each slot.
        reservoir_count: items that entered reservoir sampling.
        scores: criterion with which each item was tested.
        learnabilities: with which each item was tested, if the policy does.
        groups: of what is in each slot, class and mode, if the policy has groups.
    """

    slots: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    reservoir_count: int = 0
    scores: list[float] = field(default_factory=list)
    learnabilities: list[float] = field(default_factory=list)
    groups: list[tuple[int, int]] = field(default_factory=list)

    def put(self, item: int, slot: int) -> None:
        """Give an item a slot, a new one or one that another item holds."""
        if slot == len(self.memory):
            self.memory.append(item)
        else:
            self.memory[slot] = item


def settled(slots: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """What ``extend`` returns: in each chunk the last item that was given a slot."""
    result = list(slots)
    bounds = [0, *itertools.accumulate(sizes)]
    for start, stop in itertools.pairwise(bounds):
        for item in range(start, stop):
            if result[item] in result[item + 1 : stop]:
                result[item] = -1
    return result


def _reservoir_step(run: Run, item: int, capacity: int, u: float) -> None:
    """Alg. "Reservoir Sampling" for one item; ``i`` is counted from 0."""
    if len(run.memory) < capacity:
        slot = len(run.memory)
    else:
        i = math.floor(u * (run.reservoir_count + 1))
        slot = i if i < capacity else -1
    run.reservoir_count += 1
    run.slots.append(slot)
    if slot >= 0:
        run.put(item, slot)


def reservoir(count: int, capacity: int, draws: Array) -> Run:
    """Alg. "Reservoir Sampling"."""
    run = Run()
    for item in range(count):
        _reservoir_step(run, item, capacity, draws[item])
    return run


def weighted_reservoir(weights: Sequence[float], capacity: int, draws: Array) -> Run:
    """Alg. "Weighted Reservoir Sampling"."""
    run = Run()
    total = 0.0
    for item, weight in enumerate(weights):
        total += weight
        slot = -1
        if len(run.memory) < capacity:
            slot = len(run.memory)
        elif weight > 0:
            share = min(weight / total, 1 / capacity)
            # The M + 1 outcomes side by side: M of width `share`, then the rest.
            if draws[item] < capacity * share:
                slot = min(math.floor(draws[item] / share), capacity - 1)
        run.reservoir_count += 1
        run.slots.append(slot)
        if slot >= 0:
            run.put(item, slot)
    return run


def class_balanced_reservoir(
    labels: Sequence[int], num_classes: int, capacity: int, draws: Array
) -> Run:
    """Alg. 1 of Chrysakis and Moens (2020).

    Where it says "a random one" of a class, the slots of the class are a list; the last
    one takes the place of one that leaves it. Of several largest classes, the first
    gives a slot away.
    """
    run = Run()
    offered = [0] * num_classes
    full = [False] * num_classes
    members: list[list[int]] = [[] for _ in range(num_classes)]
    for item, label in enumerate(labels):
        offered[label] += 1
        slot = -1
        if len(run.memory) < capacity:
            slot = len(run.memory)
            members[label].append(slot)
        elif not full[label]:
            largest = max(members, key=len)
            place = math.floor(draws[item] * len(largest))
            slot = largest[place]
            largest[place] = largest[-1]
            largest.pop()
            members[label].append(slot)
        else:
            place = math.floor(draws[item] * offered[label])
            if place < len(members[label]):
                slot = members[label][place]
        run.reservoir_count += 1
        run.slots.append(slot)
        if slot >= 0:
            run.put(item, slot)
        if len(run.memory) == capacity:
            for each in range(num_classes):
                full[each] |= len(members[each]) == max(map(len, members))
    return run


# -- selection by information ---------------------------------------------------------


@dataclass(frozen=True)
class Settings:
    """What InfoRS and InfoGS have in common."""

    capacity: int
    criterion: Criterion
    gamma: float = 0.0
    decay: float | None = None
    noise: float = 0.3
    jitter: float = 0.1


@dataclass(frozen=True)
class Items:
    """Features as they are given, ``(n, d0)``, and targets as numbers, ``(n, K)``.

    Scaled targets are standardized by what was seen: see :meth:`after`.
    """

    features: Array
    targets: Array
    scaled: bool = False

    def after(self, count: int) -> Items:
        """The same items, with targets in units of those of the first ``count``."""
        if not self.scaled:
            return self
        targets = np.zeros((len(self.targets), self.targets[0].size))
        seen = self.targets.reshape(targets.shape)
        for column in range(targets.shape[1]) if count else ():
            known = seen[:count, column]
            if known.std() > 1e-14 * abs(known.mean()):
                targets[:, column] = (seen[:, column] - known.mean()) / known.std()
        return Items(self.features, targets)

    def memory(self, rows: Sequence[int], settings: Settings) -> Memory:
        """A memory that holds some of the items."""
        chosen = list(rows)
        return Memory(
            self.features[chosen],
            self.targets[chosen],
            settings.noise,
            settings.jitter,
        )

    def point(self, item: int) -> tuple[Array, Array]:
        """Features and target of an item."""
        return self.features[item], self.targets[item]


def threshold(values: Sequence[float], gamma: float, decay: float | None) -> float:
    """``mean + gamma * deviation``, less what rounding may cost a score in a tie."""
    _, mean, deviation = moments(values, decay)
    value = mean + gamma * deviation
    return value - TIE * (1 + abs(value))


def info_reservoir(items: Items, settings: Settings, draws: Array) -> Run:
    """Alg. 1 "InfoRS"."""
    run = Run()
    for item in range(len(items.features)):
        known = items.after(item + 1)
        memory = known.memory(run.memory, settings)
        score = settings.criterion(memory, *known.point(item))
        if len(run.memory) < settings.capacity or score >= threshold(
            run.scores, settings.gamma, settings.decay
        ):
            _reservoir_step(run, item, settings.capacity, draws[item])
        else:
            run.slots.append(-1)
        run.scores.append(score)
    return run


def modes(labels: Sequence[int], surprises: Sequence[float]) -> list[int]:
    """Which mode of its class each item is of (model/modes.py), item by item."""
    known: dict[int, list[float]] = {}
    sums, numbers = dict.fromkeys(labels, 0.0), dict.fromkeys(labels, 0)
    found = []
    for label, surprise in zip(labels, surprises, strict=True):
        seen = known.setdefault(label, [])
        if len(seen) >= 30:
            _, mean, deviation = moments(seen, 0.99)
            deviation = max(deviation, math.sqrt(1e-12 * (1 + mean**2)))
            step = max(-4.0, min(4.0, (surprise - mean) / deviation))
            sums[label] = max(0.0, sums[label] + step - 0.5)
            if sums[label] > 20:
                numbers[label] += 1
                sums[label] = 0.0
                seen.clear()
        seen.append(surprise)
        found.append(numbers[label])
    return found


class Clusters:
    """Clusters of features (model/clusters.py), point by point."""

    def __init__(self, points: Sequence[Array], draws: Array) -> None:
        self.centers: list[Array] = []
        for draw in draws.tolist():
            squares = [
                min((((p - c) ** 2).sum() for c in self.centers), default=1.0)
                for p in points
            ]
            # The first point up to which there is more than the drawn share of all.
            sums = itertools.accumulate(squares)
            drawn = draw * sum(squares)
            place = next((n for n, it in enumerate(sums) if it > drawn), -1)
            self.centers.append(points[place])
        for _ in range(10):
            self.move(points, [self.nearest(point) for point in points])

    def nearest(self, point: Array) -> int:
        """The first of the centers that are as near as any."""
        origin = np.mean(self.centers, axis=0)
        squares = [float(((point - center) ** 2).sum()) for center in self.centers]
        size = max(float(((center - origin) ** 2).sum()) for center in self.centers)
        bound = min(squares) + TIE * (float(((point - origin) ** 2).sum()) + size)
        return next(each for each, square in enumerate(squares) if square <= bound)

    def move(self, points: Sequence[Array], clusters: Sequence[int]) -> None:
        """To the means of the points of each."""
        for number in range(len(self.centers)):
            its = [p for p, own in zip(points, clusters, strict=True) if own == number]
            if its:
                self.centers[number] = np.mean(its, axis=0)


def balanced_info_reservoir(
    items: Items,
    labels: Sequence[int],
    settings: Settings,
    draws: Array,
    seed: int,
    *,
    gamma: float | None,
    admission: str,
    victims: str,
    tournament: int,
    by_mode: bool,
    num_clusters: int | None = None,
    period: int = 1024,
) -> Run:
    """What :class:`info_replay.BalancedInfoReservoirWriter` describes."""
    run = Run()
    labels = [0] * len(labels) if num_clusters else [*labels]
    clusters: Clusters | None = None
    moved = -1
    groups: list[tuple[int, int]] = []
    surprises: list[float] = []
    numbers: dict[tuple[int, int], int] = {}
    for item, label in enumerate(labels):
        known = items.after(item + 1)
        memory = known.memory(run.memory, settings)
        score = settings.criterion(memory, *known.point(item))
        full = len(run.memory) == settings.capacity
        if full and num_clusters:
            points = [items.features[each] for each in run.memory]
            if clusters is None or moved // period < item // period:
                draws_of = generator_of(seed, 2, item).random(num_clusters)
                clusters, moved = Clusters(points, draws_of), item
                sizes = Counter(groups[each] for each in run.memory)
                shares = [numbers[groups[e]] / sizes[groups[e]] for e in run.memory]
                numbers = {}
                for each, point, share in zip(run.memory, points, shares, strict=True):
                    groups[each] = (clusters.nearest(point), 0)
                    numbers[groups[each]] = numbers.get(groups[each], 0) + share
                total, upper, lower = sum(numbers.values()), 0.0, 0
                for group in sorted(numbers):
                    upper += numbers[group] * run.reservoir_count / total
                    # Halves are rounded down, whatever the rounding before.
                    rounded = math.floor(upper + 0.5 - 1e-12 * run.reservoir_count)
                    numbers[group] = rounded - lower
                    lower = rounded
            label = labels[item] = clusters.nearest(items.features[item])
        mode = 0
        if full and by_mode:
            surprises.append(memory.surprise(*known.point(item)))
            mode = modes(labels[item + 1 - len(surprises) : item + 1], surprises)[-1]
        group = (label, mode)
        groups.append(group)
        slot = -1
        takes_part = (
            not full
            or gamma is None
            or score >= threshold(run.scores, gamma, settings.decay)
        )
        if takes_part:
            numbers[group] = numbers.get(group, 0) + 1
            run.reservoir_count += 1
        if not full:
            slot = len(run.memory)
        elif takes_part:
            own, seen = numbers[group], [*numbers.values()]
            if admission == "capped":
                cap = max(own, statistics.median(seen))
                seen = [min(number, cap) for number in seen]
            elif admission == "balanced":
                seen = [own] * len(seen)
            if draws[item] * sum(seen) < settings.capacity:
                generator = generator_of(seed, 1, item)
                held = [groups[each] for each in run.memory]
                pool = _slots_of_victims(victims, group, held)
                count = min(tournament, len(pool))
                chosen = generator.choice(pool, count, replace=False)
                left = {
                    place: settings.criterion(
                        memory.without(place), *known.point(run.memory[place])
                    )
                    for place in chosen.tolist()
                }
                least = min(left.values())
                least += TIE * (1 + abs(least))
                slot = next(each for each in left if left[each] <= least)
        run.scores.append(score)
        run.slots.append(slot)
        if slot >= 0:
            run.put(item, slot)
    run.groups = [groups[each] for each in run.memory]
    return run


def _slots_of_victims(
    victims: str, group: tuple[int, int], held: list[tuple[int, int]]
) -> list[int]:
    """Slots that one is drawn from, given the group of what each slot holds."""
    if victims == "all":
        return [*range(len(held))]
    most = max(map(held.count, held))
    largest = {each for each in held if held.count(each) == most}
    if group in largest or (victims == "own" and group in held):
        largest = {group}
    return [slot for slot, each in enumerate(held) if each in largest]


def info_greedy(
    items: Items,
    sizes: Sequence[int],
    settings: Settings,
    draws: Array,
    *,
    gamma_learnability: float = 0.0,
    reservoir: bool = False,
) -> Run:
    """Alg. "InfoGS", and InfoGS-RS with a reservoir (Appendix "Ablation studies").

    The slots of the run are those at the end of the batch of each item.
    """
    run = Run(slots=[-1] * len(items.features))

    def test(known: Items, rows: Iterable[int]) -> dict[int, tuple[float, float]]:
        memory = known.memory(run.memory, settings)
        return {
            row: (
                settings.criterion(memory, *known.point(row)),
                memory.learnability(*known.point(row)),
            )
            for row in rows
        }

    def record(results: Iterable[tuple[float, float]]) -> None:
        for score, learnable in results:
            run.scores.append(score)
            run.learnabilities.append(learnable)

    bounds = [0, *itertools.accumulate(sizes)]
    for start, stop in itertools.pairwise(bounds):
        batch = list(range(start, stop))
        while batch and len(run.memory) < settings.capacity:
            item = batch.pop(0)
            record(test(items.after(item + 1), [item]).values())
            run.put(item, len(run.memory))
            run.reservoir_count += 1
        improvement = threshold(run.scores, settings.gamma, settings.decay)
        least = threshold(run.learnabilities, gamma_learnability, settings.decay)
        tested: dict[int, tuple[float, float]] = {}
        waiting = list(batch)
        known = items.after(stop - len(batch))  # as before the batch
        while waiting:
            tested.update(test(known, waiting))
            eligible = [item for item in waiting if tested[item][1] >= least]
            if not eligible:
                break
            best = max(eligible, key=lambda item: tested[item][0])
            pool = known.memory([*run.memory, best], settings)
            informations = [
                settings.criterion(pool.without(slot), *known.point(item))
                for slot, item in enumerate(run.memory)
            ]
            worst = min(range(settings.capacity), key=informations.__getitem__)
            if tested[best][0] < informations[worst] + improvement:
                break
            waiting.remove(best)
            run.reservoir_count += 1
            if (
                not reservoir
                or math.floor(draws[best] * run.reservoir_count) < settings.capacity
            ):
                run.put(best, worst)
        record(tested[item] for item in batch)
        for slot, item in enumerate(run.memory):
            if item >= start:
                run.slots[item] = slot
    return run


# -- streams --------------------------------------------------------------------------


def make_stream(
    seed: int,
    count: int,
    *,
    feature_dim: int = 4,
    num_classes: int | None = None,
    num_outputs: int = 1,
    distinct: int | None = None,
    noise: float = 0.5,
    scale: float = 1.0,
) -> TensorDict:
    """A stream that changes half-way; each item carries its number as ``"id"``.

    Args:
        seed: of the stream.
        count: number of items.
        feature_dim: width of the features.
        num_classes: number of classes; ``None`` for regression targets.
        num_outputs: number of regression targets.
        distinct: number of different items; the others repeat them.
        noise: deviation of what cannot be learned.
        scale: of the features.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    kinds = num_classes or 3
    kind = torch.randint(kinds, (count,), generator=generator)
    kind[: count // 2] = kind[: count // 2] // 2
    features = normal(kinds, feature_dim)[kind] + noise * normal(count, feature_dim)
    if num_classes is None:
        slopes = normal(feature_dim, num_outputs)
        target = features @ slopes + noise * normal(count, num_outputs)
    else:
        target = kind
    if distinct is not None:
        source = torch.randint(min(distinct, count), (count,), generator=generator)
        features, target = features[source], target[source]
    return TensorDict(
        {"id": torch.arange(count), "feature": scale * features, "target": target},
        batch_size=[count],
    )


def as_items(
    stream: TensorDict, num_classes: int | None = None, scaled: bool = True
) -> Items:
    """Features and one-hot or real targets of a stream, in double precision."""
    targets = stream["target"].double().numpy()
    if num_classes is not None:
        targets = one_hot(stream["target"].tolist(), num_classes)
    features = stream["feature"].double().numpy()
    return Items(features, targets, scaled and num_classes is None)


def make_buffer(
    writer: SelectionWriter, capacity: int, seed: int = 0
) -> TensorDictReplayBuffer:
    """TorchRL's own buffer around a writer."""
    return TensorDictReplayBuffer(
        storage=LazyTensorStorage(capacity),
        writer=writer,
        generator=torch.Generator().manual_seed(seed),
        batch_size=1,
    )


def extend_all(
    buffer: TensorDictReplayBuffer, stream: TensorDict, sizes: Sequence[int]
) -> list[int]:
    """Offer a stream in chunks and put together what was returned."""
    parts = stream.split(list(sizes))
    return torch.cat([buffer.extend(part) for part in parts]).tolist()


def kept_ids(buffer: TensorDictReplayBuffer) -> list[int]:
    """Numbers of the items in the memory, in the order of the slots."""
    ids: list[int] = buffer[:]["id"].tolist() if len(buffer) else []
    return ids


def examples(count: int) -> settings:
    """So many examples of a law, more of them if the profile wants to explore."""
    return settings(max_examples=count * settings.default.max_examples // 25)


def chunkings(count: int) -> st.SearchStrategy[list[int]]:
    """Sizes of chunks that a stream of so many items can be cut into."""
    cuts = st.sets(st.integers(1, max(count - 1, 1)), max_size=25)
    return cuts.map(
        lambda places: [
            stop - start
            for start, stop in itertools.pairwise(sorted({0, count, *places}))
        ]
    )
