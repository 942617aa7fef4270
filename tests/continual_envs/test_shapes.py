"""Long tails, blurred boundaries and noisy labels: counted exactly, by slow counts."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from continual_envs import make_stream
from continual_envs.blur import BlurredStream
from continual_envs.streams import TaskStream
from tests.continual_envs.helpers import (
    Episode,
    assert_same,
    make_numbered,
    numbered_dataset,
    numbers_of,
    permutation_of,
    play,
)

seeds = st.integers(0, 2**31 - 1)
batch_sizes = st.none() | st.integers(1, 90)
shares = st.sampled_from([0.0, 0.05, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1)
KINDS = ["SplitDigits", "PermutedDigits", "DriftDigits"]
DATA = numbered_dataset()
LABELS = DATA.train.targets


def held_out(env: Any) -> set[int]:
    """The numbers of the training samples that are evaluated on."""
    found = [numbers_of(one.inputs) for one in env.evaluation_sets]
    return {int(n) for numbers in found for n in numbers if n < len(LABELS)}


# -- long tails -----------------------------------------------------------------------


@given(
    benchmark=st.sampled_from(KINDS),
    ratio=st.sampled_from([1, 2, 10, 100]) | st.floats(1, 1000),
    epochs=st.integers(1, 2),
    validation=st.booleans(),
    batch=batch_sizes,
    seed=seeds,
)
def test_a_long_tail_keeps_an_exact_number_of_each_class(
    benchmark: str,
    ratio: float,
    epochs: int,
    validation: bool,
    batch: int | None,
    seed: int,
) -> None:
    env = make_numbered(
        benchmark,
        DATA,
        longtail=ratio,
        epochs=epochs,
        validation=validation,
        batch_size=batch,
    )
    episode = play(env, seed)
    out = held_out(env) if validation else set()
    shown = set(numbers_of(episode.inputs).tolist())
    assert not shown & out
    sizes = Counter(label for n, label in enumerate(LABELS.tolist()) if n not in out)
    kept = Counter(LABELS[sorted(shown)].tolist())
    # Some ranks give these numbers: match classes and ranks one by one.
    allowed = {
        label: {
            rank
            for rank in range(10)
            if kept[label] == max(1, round(sizes[label] * ratio ** (-rank / 9)))
        }
        for label in range(10)
    }
    assert perfect_matching(allowed)
    # What is kept comes as often as without a long tail.
    tasks = 20 if benchmark == "PermutedDigits" else 1
    counts = Counter(numbers_of(episode.inputs).tolist())
    assert set(counts.values()) == {epochs * tasks}


def perfect_matching(allowed: dict[int, set[int]]) -> bool:
    """Whether each class can have a rank of its own."""
    taken: dict[int, int] = {}

    def place(label: int, tried: set[int]) -> bool:
        for rank in allowed[label] - tried:
            tried.add(rank)
            if rank not in taken or place(taken[rank], tried):
                taken[rank] = label
                return True
        return False

    return all(place(label, set()) for label in allowed)


def test_over_many_seeds_every_class_is_the_rarest_at_times() -> None:
    rarest = set()
    for seed in range(60):
        env = make_stream("SplitDigits", longtail=100, batch_size=500)
        counts = np.bincount(play(env, seed).labels, minlength=10)
        assert counts.min() in (1, 2)  # about 150 of each class, over 100
        assert counts.max() > 130
        rarest.add(int(counts.argmin()))
    assert rarest == set(range(10))


def test_a_long_tail_does_not_depend_on_the_order_of_classes() -> None:
    counts = [
        np.bincount(play(make_stream("SplitDigits", longtail=50, **more), 3).labels)
        for more in ({}, {"class_order": range(9, -1, -1)})
    ]
    assert_same(*counts)


def test_test_data_have_no_long_tail() -> None:
    plain, tailed = (make_stream("SplitDigits", longtail=r) for r in (1, 100))
    for one, other in zip(plain.evaluation_sets, tailed.evaluation_sets, strict=True):
        assert_same(one.inputs, other.inputs)


# -- blurred boundaries ---------------------------------------------------------------


@st.composite
def blurred(draw: st.DrawFn) -> tuple[TaskStream, BlurredStream, float]:
    lengths = draw(st.lists(st.integers(0, 30), min_size=2, max_size=6).filter(any))
    epochs = [draw(st.integers(1, 3)) for _ in lengths]
    ends = np.cumsum(lengths)
    tasks = [np.arange(e - n, e) for n, e in zip(lengths, ends, strict=True)]
    seed, share = draw(seeds), draw(shares)
    plain = TaskStream(tasks, epochs, seed)
    return plain, BlurredStream(TaskStream(tasks, epochs, seed), share, seed), share


def occurrences(stream: Any) -> list[tuple[int, int]]:
    numbers, tasks = stream.take(0, len(stream))
    return list(
        zip(
            np.broadcast_to(tasks, len(numbers)).tolist(),
            numbers.tolist(),
            strict=True,
        )
    )


@given(blurred())
def test_a_blur_moves_an_exact_number_of_each_task_and_no_more(
    case: tuple[TaskStream, BlurredStream, float],
) -> None:
    plain, blurry, share = case
    before, after = occurrences(plain), occurrences(blurry)
    assert blurry.boundaries == plain.boundaries
    assert Counter(before) == Counter(after)
    windows = list(pairwise([0, *plain.boundaries]))
    moving = [round(share * (stop - start)) for start, stop in windows]
    for task, (start, stop) in enumerate(windows):
        away = sum(owner != task for owner, _ in after[start:stop])
        others = sum(moving) - moving[task]
        assert away == min(moving[task], others)
        missing = sum(owner == task for owner, _ in after) - sum(
            owner == task for owner, _ in after[start:stop]
        )
        assert missing == away
        # Who does not move stays at its place.
        same = sum(before[place] == after[place] for place in range(start, stop))
        assert same >= stop - start - moving[task]


@given(blurred(), st.lists(st.integers(0, 500), max_size=8))
def test_a_blurred_stream_can_be_read_in_any_pieces(
    case: tuple[TaskStream, BlurredStream, float], cuts: list[int]
) -> None:
    _, stream, _ = case
    expected = occurrences(stream)
    places = sorted(cut % (len(stream) + 1) for cut in cuts)
    pieces = {}
    for start, stop in reversed(list(pairwise([0, *places, len(stream)]))):
        numbers, tasks = stream.take(start, stop)
        owners = np.broadcast_to(tasks, len(numbers)).tolist()
        pieces[start, stop] = list(zip(owners, numbers.tolist(), strict=True))
    assert [one for piece in sorted(pieces) for one in pieces[piece]] == expected


def test_samples_that_move_are_spread_over_all_other_tasks_evenly() -> None:
    tasks = [np.arange(k * 1000, (k + 1) * 1000) for k in range(5)]
    table = np.zeros((5, 5))
    for seed in range(10):
        stream = BlurredStream(TaskStream(tasks, [1] * 5, seed), 0.4, seed)
        for task in range(5):
            numbers, _ = stream.take(1000 * task, 1000 * task + 1000)
            table[task] += np.bincount(numbers // 1000, minlength=5)
    assert (np.diag(table) == 6000).all()
    others = table[~np.eye(5, dtype=bool)]
    # 4,000 of each task over four others; deviations of a binomial.
    assert np.abs(others - 1000).max() < 5 * math.sqrt(4000 * 0.25 * 0.75)


@given(share=shares, batch=batch_sizes, seed=seeds)
def test_a_moved_sample_keeps_the_permutation_of_its_task(
    share: float, batch: int | None, seed: int
) -> None:
    options: dict[str, Any] = {"tasks": 4, "batch_size": batch, "expose_task_id": True}
    env = make_numbered("PermutedDigits", DATA, blur=share, **options)
    episode = play(env, seed)
    ways = {
        permutation_of(task.show(DATA.train.inputs[:1])[0]): number
        for number, task in enumerate(env.tasks)
    }
    tasks = [ways[permutation_of(image)] for image in episode.inputs]
    assert tasks == episode.task_ids.tolist()
    seen = Counter(zip(tasks, numbers_of(episode.inputs).tolist(), strict=True))
    assert set(seen.values()) == {1}
    assert len(seen) == 4 * 80
    expected = DATA.train.targets[numbers_of(episode.inputs)]
    assert episode.labels.tolist() == expected.tolist()
    for number in range(4):
        window = tasks[80 * number : 80 * number + 80]
        assert 80 - window.count(number) == round(share * 80)


# -- noisy labels ---------------------------------------------------------------------


@given(
    benchmark=st.sampled_from(KINDS),
    share=shares,
    ratio=st.sampled_from([1, 5]),
    validation=st.booleans(),
    seed=seeds,
)
def test_an_exact_share_of_each_class_has_a_wrong_label_in_training_only(
    benchmark: str, share: float, ratio: float, validation: bool, seed: int
) -> None:
    options: dict[str, Any] = {"longtail": ratio, "validation": validation}
    env = make_numbered(
        benchmark, DATA, label_noise=share, batch_size=50, epochs=2, **options
    )
    episode = play(env, seed)
    numbers = numbers_of(episode.inputs)
    told: dict[int, set[int]] = {}
    for number, label in zip(numbers.tolist(), episode.labels.tolist(), strict=True):
        told.setdefault(number, set()).add(label)
    assert {len(labels) for labels in told.values()} == {1}  # the same every time
    sizes: Counter[int] = Counter()
    wrong: Counter[int] = Counter()
    for number, (label,) in told.items():
        assert 0 <= label < 10
        sizes[int(LABELS[number])] += 1
        wrong[int(LABELS[number])] += label != LABELS[number]
    for label, size in sizes.items():
        assert wrong[label] == round(share * size)
    for one in env.evaluation_sets:
        clean = np.concatenate([LABELS, DATA.test.targets])
        assert one.targets.tolist() == clean[numbers_of(one.inputs)].tolist()
    # The samples and their order are those of the clean stream.
    clean_env = make_numbered(benchmark, DATA, batch_size=50, epochs=2, **options)
    assert_same(play(clean_env, seed).observations, episode.observations)


def test_wrong_labels_are_uniform_among_the_others() -> None:
    table = np.zeros((10, 10))
    for seed in range(20):
        env = make_stream("SplitDigits", label_noise=0.5, batch_size=500)
        episode = play(env, seed)
        clean = play(make_stream("SplitDigits", batch_size=500), seed)
        np.add.at(table, (clean.labels, episode.labels), 1)
    wrong = table[~np.eye(10, dtype=bool)]
    expected = 20 * 75 / 9
    assert np.abs(wrong - expected).max() < 5 * math.sqrt(expected)


def test_the_reward_counts_the_label_that_is_told() -> None:
    env = make_stream("SplitDigits", label_noise=1.0, batch_size=100)
    clean = play(make_stream("SplitDigits", batch_size=100), 0)
    answers = [info["label"].clip(0) for info in clean.infos[1:]]
    episode = play(env, 0, lambda observation, step: answers[step])
    assert episode.rewards == [0.0] * len(answers)


# -- fewer samples --------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 20, 140])
def test_no_class_has_more_samples_than_asked_for(count: int) -> None:
    everything = play(make_stream("SplitDigits", batch_size=64), 1)
    fewer = play(make_stream("SplitDigits", batch_size=64, samples_per_class=count), 1)
    wanted = np.minimum(np.bincount(everything.labels), count)
    assert np.bincount(fewer.labels).tolist() == wanted.tolist()
    kept = Counter(x.tobytes() for x in fewer.inputs)
    assert kept <= Counter(x.tobytes() for x in everything.inputs)


def test_the_seed_draws_the_samples_that_are_kept() -> None:
    env = make_stream("SplitDigits", batch_size=64, samples_per_class=20)
    first, again, other = play(env, 1), play(env, 1), play(env, 2)
    assert first.digest == again.digest
    kept = [{x.tobytes() for x in each.inputs} for each in (first, other)]
    assert kept[0] != kept[1]


# -- together -------------------------------------------------------------------------


def shaped(**options: Any) -> Episode:
    return play(make_stream("SplitDigits", batch_size=64, **options), 5)


def test_all_shapes_go_together() -> None:
    options = {"imbalance": 3, "longtail": 10, "blur": 0.3, "label_noise": 0.2}
    env = make_stream("SplitDigits", batch_size=64, expose_task_id=True, **options)
    episode = play(env, 5)
    tailed = shaped(longtail=10)
    repeats = np.where(tailed.labels // 2 == 0, 3, 1)  # seed 5: task 0
    assert Counter(x.tobytes() for x in episode.inputs) == Counter(
        x.tobytes()
        for x, times in zip(tailed.inputs, repeats, strict=True)
        for _ in range(times)
    )
    assert env.imbalanced_task == 0
    assert (np.diff(episode.task_ids) < 0).any()


def test_default_values_change_nothing() -> None:
    plain = shaped()
    for option, value in (
        ("samples_per_class", 10**6),
        ("longtail", 1),
        ("blur", 0),
        ("label_noise", 0.0),
    ):
        assert shaped(**{option: value}).digest == plain.digest


@pytest.mark.parametrize(
    ("data", "options", "told"),
    [
        ("DriftDigits", {"blur": 0.1}, "blur=0.1 needs tasks.*width"),
        ("SplitDiabetes", {"samples_per_class": 9}, "per_class=9 needs classes"),
        ("SplitDigits", {"samples_per_class": 0}, "samples_per_class .* got 0"),
        ("SplitDigits", {"samples_per_class": 2.5}, "samples_per_class .* got 2.5"),
        ("SplitDiabetes", {"longtail": 10}, "longtail=10 needs classes"),
        ("SplitDiabetes", {"label_noise": 0.1}, "label_noise=0.1 needs classes"),
        ("Diabetes", {"cut": "drift"}, "'drift' needs classes"),
        ("Digits", {"cut": "none", "blur": 0.1}, "blur=0.1 needs at least two tasks"),
        ("SplitDigits", {"longtail": 0.5}, "longtail .* at least 1, got 0.5"),
        ("SplitDigits", {"longtail": math.inf}, "longtail .* at least 1, got inf"),
        ("SplitDigits", {"longtail": "10"}, "longtail .* at least 1, got '10'"),
        ("SplitDigits", {"blur": 1.5}, "blur must be a number from 0 to 1, got 1.5"),
        ("SplitDigits", {"blur": -0.1}, "blur .* got -0.1"),
        ("SplitDigits", {"label_noise": math.nan}, "label_noise .* got nan"),
        ("SplitDigits", {"label_noise": True}, "label_noise .* got True"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused(
    data: str, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        make_stream(data, **options)
    assert "\n" not in str(caught.value)


def test_drift_combines_with_a_long_tail_and_noise() -> None:
    env = make_stream("DriftDigits", longtail=10, label_noise=0.1, batch_size=64)
    episode = play(env, 1)
    assert len(episode.labels) < 1000
    env = make_stream("DriftDigits", longtail=10, batch_size=64)
    assert_same(play(env, 1).observations, episode.observations)
