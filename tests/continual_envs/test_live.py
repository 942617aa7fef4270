"""A live stream shows the samples of an iterator, each checked on arrival."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from continual_envs import (
    ClassificationStreamEnv,
    RegressionStreamEnv,
    make_dataset,
    make_stream,
)
from tests.continual_envs.helpers import assert_same, play, play_on, still

Sample = tuple[Any, Any]


def sample(number: int) -> Sample:
    """The n-th sample: its input tells its number."""
    return np.array([number, 1, -number], dtype=np.float32), number % 5


def endless() -> Iterator[Sample]:
    return map(sample, itertools.count())


def first(count: int) -> Callable[[], Iterator[Sample]]:
    """A function that starts an iterator of some samples."""
    return lambda: map(sample, range(count))


def batches(sizes: list[int]) -> Iterator[Sample]:
    """The same samples, in batches of these sizes."""
    samples = endless()
    for size in sizes:
        inputs, targets = zip(*itertools.islice(samples, size), strict=True)
        yield np.stack(inputs), np.array(targets)


def numbers(observation: Any) -> list[int]:
    return observation.reshape(-1, 3)[:, 0].astype(int).tolist()


# -- what is shown --------------------------------------------------------------------


@given(total=st.integers(1, 60), batch=st.none() | st.integers(1, 20))
def test_every_sample_comes_once_in_order_and_the_end_is_the_end(
    total: int, batch: int | None
) -> None:
    env = make_stream(first(total), num_classes=5, batch_size=batch)
    assert isinstance(env, ClassificationStreamEnv)
    episode = play(env, seed=0)
    assert numbers(episode.inputs) == list(range(total))
    assert episode.labels.tolist() == [n % 5 for n in range(total)]
    assert len(episode.rewards) == -(-total // (batch or 1))
    assert not episode.observations[-1].any()
    for observation in episode.observations:
        assert observation in env.observation_space
    with pytest.raises(Exception, match="the stream is over"):
        env.step(still(env))


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    batch=st.none() | st.integers(1, 20),
)
def test_batches_are_cut_anew(sizes: list[int], batch: int | None) -> None:
    options: dict[str, Any] = {"num_classes": 5, "batch_size": batch}
    batched = make_stream(lambda: batches(sizes), batched=True, **options)
    single = make_stream(first(sum(sizes)), **options)
    assert play(batched, 0).digest == play(single, 0).digest


def test_only_one_batch_is_read_ahead() -> None:
    asked: list[int] = []

    def watched() -> Iterator[Sample]:
        for number in itertools.count():
            asked.append(number)
            yield sample(number)

    env = make_stream(watched, num_classes=5, batch_size=4)
    assert asked == [0]  # to see what samples look like
    env.reset(seed=0)
    assert asked == list(range(4))  # nothing is asked for twice
    env.step(still(env))
    assert asked == list(range(8))


def test_with_test_data_nothing_is_read_before_the_first_reset() -> None:
    def fail() -> Iterator[Sample]:
        raise OSError("the sensor is off")
        yield

    inputs, targets = zip(*map(sample, range(20)), strict=True)
    env = make_stream(fail, test=(inputs, targets))
    assert env.dataset.num_classes == 5
    (judged,) = env.evaluation_sets
    np.testing.assert_array_equal(judged.inputs, np.stack(inputs))
    assert judged.targets.tolist() == list(targets)
    with pytest.raises(OSError, match="the sensor is off"):
        env.reset(seed=0)


@pytest.mark.parametrize("outputs", [0, 1, 3])
def test_a_standardized_data_set_judges_in_the_units_of_the_stream(
    outputs: int,
) -> None:
    inputs = 5 + 100 * np.random.default_rng(0).normal(size=(50, 3))
    targets = inputs[:, 0] if outputs == 1 else inputs
    if not outputs:
        targets = np.arange(50) % 5
    env = make_stream(
        lambda: zip(inputs, targets, strict=True), test=make_dataset((inputs, targets))
    )
    (judged,) = env.evaluation_sets
    raw = make_dataset((inputs, targets), standardize=False).test
    np.testing.assert_allclose(judged.inputs, raw.inputs, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(judged.targets, raw.targets, rtol=1e-5, atol=1e-4)
    assert judged.inputs.dtype == np.float32
    assert judged.targets.dtype == (np.float32 if outputs else np.int64)


def test_a_live_stream_has_no_end_and_no_tasks() -> None:
    env = make_stream(endless, num_classes=5, batch_size=4)
    env.reset(seed=0)
    assert env.name == "live"
    assert env.num_steps is None
    assert env.boundaries == []
    assert env.evaluation_sets == []
    assert env.tasks == []
    assert env.imbalanced_task is None


@pytest.mark.parametrize("outputs", [1, 3])
def test_numbers_can_be_predicted(outputs: int) -> None:
    values = np.random.default_rng(0).normal(size=(30, outputs)).squeeze()
    source = [(np.ones(2) * row, y) for row, y in enumerate(values)]
    env = make_stream(lambda: iter(source), batch_size=8)
    assert isinstance(env, RegressionStreamEnv)
    episode = play(env, 0)
    assert env.dataset.num_outputs == outputs
    np.testing.assert_array_equal(episode.targets, values.astype(np.float32))
    expected = -np.square(values[:8].astype(np.float32)).mean(dtype=np.float64)
    assert episode.rewards[0] == pytest.approx(expected, rel=1e-6)


def test_iterables_of_torch_are_live() -> None:
    class Ticks(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return map(sample, range(10))

    env = make_stream(Ticks(), num_classes=5, batch_size=4)
    assert numbers(play(env, 0).inputs) == list(range(10))
    inputs, targets = zip(*map(sample, range(10)), strict=True)
    tensors = TensorDataset(torch.tensor(np.stack(inputs)), torch.tensor(targets))
    loader = DataLoader(tensors, batch_size=3)
    env = make_stream(loader, num_classes=5, batched=True, batch_size=4)
    assert numbers(play(env, 0).inputs) == list(range(10))


def test_a_batch_that_its_maker_uses_again_is_kept() -> None:
    def reused() -> Iterator[Sample]:
        inputs = np.zeros((6, 3), dtype=np.float32)
        for number in range(4):
            inputs[:] = number
            yield inputs, np.zeros(6, dtype=int)

    env = make_stream(reused, num_classes=5, batch_size=4, batched=True)
    assert numbers(play(env, 0).inputs) == np.repeat(range(4), 6).tolist()


def test_a_function_that_takes_a_seed_is_given_that_of_the_stream() -> None:
    def seeded(seed: int) -> Iterator[Sample]:
        return map(sample, itertools.count(5 * seed))

    env = make_stream(seeded, num_classes=5, batch_size=2)
    assert numbers(env.reset(seed=3)[0]) == [15, 16]
    assert numbers(env.reset(seed=4)[0]) == [20, 21]


def test_a_source_that_keeps_its_place_begins_at_its_first_sample() -> None:
    for data in (Stateful(None), lambda: Stateful(None)):
        env = make_stream(data, num_classes=5, batch_size=2)
        assert numbers(env.reset(seed=0)[0]) == [0, 1]


def test_a_function_may_return_data_that_are_not_live() -> None:
    inputs, targets = zip(*map(sample, range(50)), strict=True)
    env = make_stream(lambda: (inputs, targets), batch_size=10)
    env.reset(seed=0)
    assert env.num_steps == 4
    env = make_stream(lambda: lambda: (inputs, targets), batch_size=10)
    env.reset(seed=0)
    assert env.num_steps == 4


# -- what is wrong --------------------------------------------------------------------


def after(count: int, *wrong: Any) -> Callable[[], Iterator[Any]]:
    """Some good samples, then these."""
    return lambda: itertools.chain(map(sample, range(count)), wrong)


X = sample(0)[0]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ((X, 5), "sample 10 of the stream has the label 5, expected one from 0 to 4"),
        ((X, -1), "labels of y of the stream must be from 0 on, got -1 in row 10"),
        ((X, 1.0), r'whole numbers, got .*y.astype\("int64"\)'),
        ((X, "dog"), "the labels of"),
        ((X[:2], 1), r"sample 10 has the shape \(2,\) and sample 8 \(3,\)"),
        ((X * np.nan, 1), "X of the stream must be finite .*got nan in row 10"),
        (X, "what arrived after 10 samples is a ndarray, expected a pair"),
        ({"x": X, "y": 1}, "what arrived after 10 samples is a dict, expected a pair"),
        ((X, [1, 2]), "targets of samples 8 to 11 have different shapes"),
    ],
)
def test_a_wrong_sample_is_named_by_its_place_in_the_stream(
    wrong: Any, told: str
) -> None:
    env = make_stream(after(10, wrong, sample(1)), num_classes=5, batch_size=4)
    env.reset(seed=0)
    env.step(still(env))
    for _ in range(2):  # it does not go on as if nothing had happened
        with pytest.raises(ValueError, match=told) as caught:
            env.step(still(env))
        assert "\n" not in str(caught.value)
    assert numbers(env.reset(seed=0)[0]) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ((X[None], [1, 2]), r"batch after 12 samples has inputs of shape \(1, 3\) and"),
        ((np.ones((2, 4)), [1, 2]), r"sample 12 .*shape \(4,\), expected .*\(3,\)"),
        ((np.ones((2, 3), "u1"), [1, 2]), "sample 12 .* uint8 .*expected float32"),
        ((np.ones((2, 3)), [1, 7]), "sample 13 of the stream has the label 7"),
    ],
)
def test_a_wrong_batch_is_named_by_its_place_in_the_stream(
    wrong: Any, told: str
) -> None:
    def source() -> Iterator[Any]:
        return itertools.chain(batches([6, 6]), [wrong])

    env = make_stream(source, num_classes=5, batch_size=4, batched=True)
    env.reset(seed=0)
    env.step(still(env))
    env.step(still(env))
    with pytest.raises(ValueError, match=told):
        env.step(still(env))


@pytest.mark.parametrize(
    ("data", "options", "told"),
    [
        (
            endless,
            {},
            "needs num_classes=, or test data as test=; its first target is 0",
        ),
        (iter(()), {"num_classes": 5}, "the stream has no samples"),
        (endless, {"num_classes": 5, "test_share": 0.5}, "test_share does not apply"),
        (endless, {"test": (np.ones((3, 2)), [0, 1, 7]), "num_classes": 5}, "got 7 in"),
        (
            endless,
            {"test": (np.ones((3, 2)), [0, 1, 10**12])},
            "y_test has labels from 0 to 1000000000000, but no sample of class 2, 3, 4",
        ),
        (endless, {"test": 3}, "cannot take a int as test data"),
        (lambda: 3, {}, "cannot make a data set of a int"),
    ],
)
def test_what_makes_no_live_stream_is_refused(
    data: Any, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        make_stream(data, **options)


@pytest.mark.parametrize("option", ["epochs", "tasks", "longtail", "validation", "cut"])
def test_options_of_data_sets_are_refused(option: str) -> None:
    told = f"a live stream got an unexpected keyword argument '{option}'"
    value = {"validation": True, "cut": "none"}.get(option, 2)
    with pytest.raises(TypeError, match=told):
        make_stream(endless, num_classes=5, **{option: value})


# -- starting again and going on ------------------------------------------------------


def test_an_iterator_that_starts_only_once_says_so() -> None:
    env = make_stream(endless(), num_classes=5, batch_size=2)
    assert numbers(env.reset(seed=0)[0]) == [0, 1]
    for again in (env.reset, lambda: env.load_state_dict(env.state_dict())):
        with pytest.raises(ValueError, match="cannot start again: give a function"):
            again()
    observation, *_ = env.step(still(env))  # it is where it was
    assert numbers(observation) == [2, 3]


class Stateful:
    """A loader that keeps its place, as torchdata's does, and counts what it yields."""

    def __init__(self, chunk: int | None) -> None:
        self.chunk = chunk
        self.place = 0
        self.yielded = 0

    def __iter__(self) -> Iterator[Any]:
        samples = map(sample, itertools.count(self.place))
        while self.place < 60:
            self.yielded += 1
            if self.chunk is None:
                self.place += 1
                yield next(samples)
            else:
                self.place += self.chunk
                chunk = itertools.islice(samples, self.chunk)
                inputs, targets = zip(*chunk, strict=True)
                yield np.stack(inputs), np.array(targets)

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


@given(
    kind=st.sampled_from(["function", "iterable", "stateful"]),
    chunk=st.none() | st.integers(1, 11),
    batch=st.none() | st.integers(1, 9),
    steps=st.integers(0, 20),
)
def test_a_live_stream_goes_on_from_any_step(
    kind: str, chunk: int | None, batch: int | None, steps: int
) -> None:
    total = 60 if chunk is None else -(-60 // chunk) * chunk
    sizes = [] if chunk is None else [chunk] * (total // chunk)
    made: list[Stateful] = []

    def stateful() -> Stateful:
        made.append(Stateful(chunk))
        return made[-1]

    def make() -> Any:
        plain = first(total) if chunk is None else (lambda: batches(sizes))
        iterable = list(plain())
        data = {
            "function": plain,
            "iterable": DataLoader(iterable, batch_size=None, collate_fn=lambda x: x),
            "stateful": stateful,
        }[kind]
        options: dict[str, Any] = {"num_classes": 5, "batch_size": batch}
        return make_stream(data, batched=chunk is not None, **options)

    env = make()
    observation, info = env.reset(seed=1)
    for _ in range(min(steps, total // (batch or 1))):
        observation, _, _, _, info = env.step(still(env))
    state = json.loads(json.dumps(env.state_dict()))
    other = make()
    seen = other.load_state_dict(state)
    assert_same(seen, (observation, info))
    assert other.state_dict()["position"] == env.state_dict()["position"]
    again = make()
    assert_same(again.load_state_dict(other.state_dict()), (observation, info))
    if observation.any():
        assert play_on(other, *seen).digest == play_on(env, observation, info).digest


def test_a_source_that_keeps_its_place_does_not_start_again() -> None:
    env = make_stream(lambda: Stateful(None), num_classes=5, batch_size=4)
    env.reset(seed=0)
    for _ in range(10):
        env.step(still(env))
    loader = Stateful(None)
    other = make_stream(loader, num_classes=5, batch_size=4)
    loader.yielded = 0
    observation, _ = other.load_state_dict(env.state_dict())
    assert numbers(observation) == [40, 41, 42, 43]
    assert loader.yielded == 8  # the batch before is told again


def test_states_of_other_streams_are_refused() -> None:
    env = make_stream(endless, num_classes=5, batch_size=4)
    env.reset(seed=0)
    for options, told in (
        ({"batch_size": 3, "num_classes": 5}, "batch_size=4 as one with batch_size=3"),
        ({"batch_size": 4, "num_classes": 6}, "data has changed"),
    ):
        with pytest.raises(ValueError, match=told):
            make_stream(endless, **options).load_state_dict(env.state_dict())
    for _ in range(5):
        env.step(still(env))
    short = make_stream(first(7), num_classes=5, batch_size=4)
    with pytest.raises(
        ValueError, match="ended after 7 samples, it cannot go on after"
    ):
        short.load_state_dict(env.state_dict())


@pytest.mark.parametrize(
    "source",
    [
        None,
        "text",
        {},
        {"received": 4},
        {"received": None, "state": {"place": 0}},
        {"received": -1, "state": {"place": 0}},
        {"received": 10**9, "state": {"place": 0}},
        {"received": 0, "state": {}},
    ],
)
def test_an_edited_state_of_a_source_changes_nothing(source: Any) -> None:
    loader = Stateful(None)
    env = make_stream(loader, num_classes=5, batch_size=4)
    env.reset(seed=0)
    for _ in range(3):
        env.step(still(env))
    before, place = env.state_dict(), loader.place
    with pytest.raises((ValueError, KeyError)):
        env.load_state_dict({**before, "source": source})
    assert env.state_dict() == before
    assert loader.place == place
    observation, *_ = env.step(still(env))
    assert numbers(observation) == [16, 17, 18, 19]


def test_a_state_that_leads_to_a_wrong_sample_changes_nothing() -> None:
    def spoiled() -> Iterator[Any]:
        yield from itertools.islice(map(sample, itertools.count()), 8)
        yield "no sample"

    env = make_stream(spoiled, num_classes=5, batch_size=4)
    env.reset(seed=0)
    before = env.state_dict()
    with pytest.raises(ValueError, match="expected a pair"):
        env.load_state_dict({**before, "position": 8})
    assert env.state_dict() == before
    observation, *_ = env.step(still(env))
    assert numbers(observation) == [4, 5, 6, 7]


def test_a_state_beyond_the_end_of_a_source_changes_nothing() -> None:
    loader = Stateful(None)
    env = make_stream(loader, num_classes=5, batch_size=4)
    env.reset(seed=0)
    env.step(still(env))
    before, place = env.state_dict(), loader.place
    with pytest.raises(ValueError, match="ended after 60 samples"):
        env.load_state_dict({**before, "position": 400})
    assert loader.place == place
    observation, *_ = env.step(still(env))
    assert numbers(observation) == [8, 9, 10, 11]
