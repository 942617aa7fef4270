"""Arrays of one's own become a data set; wrong ones get one line that says why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from continual_envs import Dataset, Part, load_dataset, make_dataset
from continual_envs.datasets import to_inputs

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 4))
Y = np.arange(60) % 3


def part(inputs: Any, targets: Any = Y, **options: Any) -> Part:
    """The training part as it is, without anything held out."""
    options = {"standardize": False, **options}
    return make_dataset((inputs, targets), test=(inputs, targets), **options).train


# -- inputs ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", "i1", "i8", "u2", "?"])
def test_numbers_other_than_bytes_become_floats_of_32_bits(dtype: str) -> None:
    values = (10 * X).astype(dtype)
    found = part(values).inputs
    assert found.dtype == np.dtype("float32")
    np.testing.assert_array_equal(found, values.astype("f4"))


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((60, 7), (7,)),
        ((60, 8, 9), (1, 8, 9)),
        ((60, 1, 8, 9), (1, 8, 9)),
        ((60, 3, 8, 9), (3, 8, 9)),
        ((60, 8, 9, 1), (1, 8, 9)),
        ((60, 8, 9, 3), (3, 8, 9)),
        ((60, 3, 9, 3), (3, 9, 3)),  # channels are first already
        ((60, 8, 9, 5), (8, 9, 5)),
    ],
)
def test_bytes_stay_bytes_and_images_get_their_channels_first(
    shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    values = RANDOM.integers(0, 256, shape, dtype=np.uint8)
    found = part(values).inputs
    assert found.dtype == np.uint8
    assert found.shape == (60, *expected)
    assert found.flags.c_contiguous
    for row in (0, 59):
        one = found[row]
        if expected[0] in (1, 3) and shape[-1] == expected[0] and shape[1] != shape[-1]:
            one = one.transpose(1, 2, 0)
        np.testing.assert_array_equal(one.reshape(shape[1:]), values[row])


def test_floats_without_channels_stay_as_they_are() -> None:
    assert part(RANDOM.normal(size=(60, 8, 9))).inputs.shape == (60, 8, 9)


BYTES = RANDOM.integers(0, 256, (60, 8, 9, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    "given",
    [
        X,
        X[::-1],
        X.tolist(),
        torch.tensor(X),
        BYTES,
        torch.tensor(BYTES),
        BYTES[..., 0],
    ],
)
def test_inputs_can_be_brought_to_what_a_stream_shows(given: Any) -> None:
    found = to_inputs(given)
    np.testing.assert_array_equal(found, part(given).inputs)
    assert found.flags.c_contiguous  # torch takes no array that runs backwards


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_tensors_are_brought_to_the_host(dtype: torch.dtype) -> None:
    values = (torch.arange(240).reshape(60, 4) % 200).to(dtype)
    found = part(values, torch.tensor(Y))
    np.testing.assert_array_equal(found.inputs, values.float().numpy())
    assert found.targets.tolist() == Y.tolist()


def test_a_tensor_that_requires_a_gradient_is_fine() -> None:
    assert part(torch.ones(60, 4, requires_grad=True)).inputs.all()


def test_lists_are_arrays() -> None:
    found = part(X.tolist(), Y.tolist())
    np.testing.assert_array_equal(found.inputs, X.astype("f4"))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_nothing_is_copied_and_the_users_array_stays_writable(dtype: Any) -> None:
    values = (100 * np.abs(X)).astype(dtype)
    found = part(values)
    assert np.shares_memory(found.inputs, values)
    assert np.shares_memory(found.targets, Y)
    assert not found.inputs.flags.writeable
    assert values.flags.writeable
    assert Y.flags.writeable


# -- targets --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "u8", ">i4", "?"])
def test_whole_numbers_are_labels(dtype: str) -> None:
    values = (Y % 2).astype(dtype)
    data = make_dataset((X, values))
    assert data.num_classes == data.num_outputs == 2
    assert data.train.targets.dtype == np.int64


@pytest.mark.parametrize("dtype", ["i8", "u1", "?"])
def test_a_single_column_of_whole_numbers_is_labels(dtype: str) -> None:
    values = (Y % 2).astype(dtype)
    data = make_dataset((X, values[:, None]), test=(X, values[:, None]))
    assert data.num_classes == 2
    assert data.train.targets.tolist() == data.test.targets.tolist() == values.tolist()


@pytest.mark.parametrize("targets", ["auto", "numbers"])
@pytest.mark.parametrize(("shape", "outputs"), [((60,), 1), ((60, 1), 1), ((60, 3), 3)])
def test_floats_are_numbers_to_predict(
    shape: tuple[int, ...], outputs: int, targets: str
) -> None:
    values = RANDOM.normal(size=shape)
    data = make_dataset((X, values), targets=targets)
    assert data.num_classes is None
    assert data.num_outputs == outputs
    assert data.train.targets.dtype == np.float32
    assert data.train.targets.shape == ((48,) if outputs == 1 else (48, 3))


def test_whole_numbers_are_predicted_as_numbers_if_asked_to() -> None:
    data = make_dataset((X, 1.0 * Y), targets="numbers")
    assert data.num_classes is None
    assert make_dataset((X, Y), targets="numbers").num_classes is None


def test_whole_floats_are_labels_if_asked_to() -> None:
    assert make_dataset((X, 1.0 * Y), targets="labels").num_classes == 3


# -- what is wrong --------------------------------------------------------------------

RAGGED = [[1.0, 2.0]] * 59 + [[1.0]]


def with_value(values: Any, row: int, value: float) -> Any:
    changed = np.array(values, dtype=np.float64)
    changed[row] = value
    return changed


WRONG: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "lengths": (X, Y[:-1], {}, "X has 60 samples and y has 59"),
    "gaps": (X, 2 * Y, {}, r"no sample of class 1, 3: .*np.unique\(y, return_inverse"),
    "a huge gap": (
        X,
        np.where(Y == 2, 10**12, Y),
        {},
        r"labels from 0 to 1000000000000, but no sample of class 2, 3, 4, 5, 6, \.\.\.",
    ),
    "far too many classes": (X, Y, {"num_classes": 10**12}, "class 3, 4, 5, 6, 7, ..."),
    "negative": (X, Y - 1, {}, r"from 0 on, got -1 in row 0.*np.unique\(y"),
    "strings": (X, Y.astype(str), {}, r"got '0': np.unique\(y, return_inverse=True"),
    "whole floats": (
        X,
        1.0 * Y,
        {},
        r'whole numbers of dtype float64.*y.astype\("int64"\).*targets="numbers"',
    ),
    "floats as labels": (X, Y + 0.5, {"targets": "labels"}, "got 0.5 in row 0"),
    "one column per class": (X, np.eye(3, dtype=int)[Y], {}, r"y.argmax\(1\)"),
    "one hot floats": (X, np.eye(3)[Y], {}, r"y.argmax\(1\).*targets='numbers'"),
    "nan in X": (with_value(X, 7, np.nan), Y, {}, "X .*got nan in row 7"),
    "inf in X": (with_value(X, 8, -np.inf), Y, {}, "X .*got -inf in row 8"),
    "huge in X": (with_value(X, 8, 1e300), Y, {}, r"X .*got 1e\+300 in row 8"),
    "nan in y": (X, with_value(X[:, 0], 9, np.nan), {}, "y .*got nan in row 9"),
    "objects in X": (X.astype(object), Y, {}, "X is an array of objects.*float"),
    "objects in y": (X, Y.astype(object), {}, "y is an array of objects.*int"),
    "ragged": (RAGGED, Y, {}, "X is no array: its rows have different shapes"),
    "words in X": (X.astype(str), Y, {}, "X must be numbers, got <U"),
    "dates in X": (X.astype("M8[s]"), Y, {}, "X must be numbers, got datetime64"),
    "complex": (X + 1j, Y, {}, "X must be numbers, got complex128"),
    "vector X": (X[:, 0], Y, {}, r"got \(60,\): X\[:, None\]"),
    "cube y": (X, np.ones((60, 2, 2)) / 2, {}, r"y must have the shape.*\(60, 2, 2\)"),
    "empty": (X[:0], Y[:0], {}, r"X is empty, shape \(0, 4\)"),
    "no columns": (X[:, :0], Y, {}, r"X is empty, shape \(60, 0\)"),
    "a number": (3.0, Y, {}, "X has no samples"),
    "too few": (X[:4], [0, 0, 0, 1], {}, "class 1 has 1 samples, too few"),
    "too many classes": (X, Y, {"num_classes": 2}, "num_classes=2 .*got 2 in row 2"),
    "empty class": (X, Y, {"num_classes": 5}, "no sample of class 3, 4: add some"),
    "task ids": (X, Y, {"task_ids": Y[:5]}, r"task_ids .*60 samples, got .*\(5,\)"),
    "float task ids": (X, Y, {"task_ids": 1.0 * Y}, "task_ids must be one whole"),
    "test task ids": (X, Y, {"test_task_ids": Y}, "test_task_ids needs test data"),
    "share": (X, Y, {"test_share": 0.0}, "test_share must be above 0.*got 0.0"),
    "share above 1": (X, Y, {"test_share": 20}, "test_share .* from 0 to 1, got 20"),
    "test seed": (X, Y, {"test_seed": -1}, "test_seed .* got -1"),
    "kind of targets": (X, Y, {"targets": "class"}, "targets must be .*got 'class'"),
    "image size": (X, Y, {"image_size": (8, 8)}, "image_size does not apply to arrays"),
    "image sizes": (X, Y, {"image_size": 8}, r"image_size must be \(height, width\)"),
    "column": (X, Y, {"input_key": "a"}, "input_key does not apply to arrays"),
    "standardize": (X, Y, {"standardize": 1}, "standardize must be True or False"),
    "nothing to standardize": (
        np.zeros((60, 8, 9), dtype=np.uint8),
        Y,
        {"standardize": True},
        r"standardize=True .*labels and .*uint8 of shape \(1, 8, 9\): leave it out",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arrays_are_refused_in_one_line_that_says_what_to_do(case: str) -> None:
    inputs, targets, options, told = WRONG[case]
    with pytest.raises(ValueError, match=told) as caught:
        make_dataset((inputs, targets), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ((X, Y + 1), "class 3 appears only in the test set .first in row 2 of y_test"),
        ((X[:, :2], Y), r"X has samples of shape \(4,\) and X_test of \(2,\)"),
        ((X.astype("u1"), Y), "X is float32 and X_test uint8"),
        ((X, Y[1:]), "X_test has 60 samples and y_test has 59"),
        ((X, Y - 1), "labels of y_test must be from 0 on, got -1"),
        ((X, Y + 0.5), "labels of y_test must be whole numbers, got 0.5 in row 0"),
        ((with_value(X, 3, np.nan), Y), "X_test .*got nan in row 3"),
        ((X[:0], Y[:0]), "X_test is empty"),
        (X, "cannot take a ndarray as test data"),
    ],
)
def test_wrong_test_data_are_named(test: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make_dataset((X, Y), test=test)


def test_a_class_that_only_the_test_set_has_between_others_is_found() -> None:
    gap = np.where(Y == 1, 0, Y)
    with pytest.raises(ValueError, match="class 1 appears only in the test set"):
        make_dataset((X, gap), test=(X, Y))


@pytest.mark.parametrize("data", [X, 3, None, {"X": X}, (X,), [X, Y, Y], {1, 2}])
def test_what_is_no_data_is_refused_with_all_that_is(data: Any) -> None:
    with pytest.raises(ValueError, match=r"cannot make a data set of .*\(X, y\)"):
        make_dataset(data)


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TypeError, match="'share'.*'test_share'"):
        make_dataset((X, Y), share=0.1)


# -- holding out ----------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(4, 30), min_size=1, max_size=5),
    share=st.floats(0.15, 0.85),
    seed=st.integers(0, 1000),
)
def test_an_exact_share_of_each_class_is_held_out(
    sizes: list[int], share: float, seed: int
) -> None:
    labels = np.random.default_rng(seed).permutation(
        np.repeat(np.arange(len(sizes)), sizes)
    )
    numbers = np.arange(len(labels), dtype=np.float32)[:, None]
    data = make_dataset(
        (numbers, labels),
        test_share=share,
        test_seed=seed,
        task_ids=labels + 7,
        standardize=False,
    )
    for found, counts in (
        (data.test, [round(share * size) for size in sizes]),
        (data.train, [size - round(share * size) for size in sizes]),
    ):
        rows = found.inputs[:, 0].astype(int)
        assert rows.tolist() == sorted(rows.tolist())
        assert found.targets.tolist() == labels[rows].tolist()
        assert found.task_ids is not None
        assert found.task_ids.tolist() == (labels[rows] + 7).tolist()
        assert [int((found.targets == c).sum()) for c in range(len(sizes))] == counts
    both = np.concatenate([data.train.inputs, data.test.inputs])[:, 0]
    assert sorted(both.tolist()) == list(range(len(labels)))


def test_the_test_seed_decides_who_is_held_out() -> None:
    def held_out(seed: int) -> list[float]:
        return make_dataset((X, Y), test_seed=seed).test.inputs[:, 0].tolist()

    assert held_out(0) == held_out(0)
    assert held_out(0) != held_out(1)


def test_a_share_of_all_numbers_is_held_out() -> None:
    data = make_dataset((X, X[:, 0]), test_share=0.25)
    assert (len(data.train), len(data.test)) == (45, 15)


# -- data sets of one's own -----------------------------------------------------------


def test_a_data_set_is_taken_as_it_is() -> None:
    data = make_dataset((X, Y))
    assert make_dataset(data) is data
    assert make_dataset("Digits") is load_dataset("Digits")
    assert make_dataset(lambda: data) is data


def test_task_ids_can_be_given_to_a_data_set() -> None:
    data = make_dataset((X, Y))
    more = make_dataset(data, task_ids=np.arange(48), test_task_ids=np.arange(12))
    assert data.train.task_ids is None
    assert more.train.task_ids is not None
    assert more.fingerprint != data.fingerprint
    digits = make_dataset("Digits", task_ids=np.zeros(1500, dtype=int))
    assert digits.fingerprint != load_dataset("Digits").fingerprint


def floats(count: int, width: int = 2) -> Any:
    return np.zeros((count, width), dtype=np.float32)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (Dataset("Mine", Part(floats(0), Y[:0]), Part(floats(3), Y[:3]), 3), "0 train"),
        (
            Dataset("Mine", Part(floats(3), Y[:3]), Part(floats(3, 4), Y[:3]), 3),
            r"shape \(2,\) and test inputs of \(4,\)",
        ),
        (
            Dataset("Mine", Part(floats(3), Y[:3]), Part(floats(3), Y[:3]), None),
            "int64",
        ),
        (Dataset("Mine", Part(floats(3), Y[:3]), Part(floats(3), Y[:3]), 4), "class 3"),
        (
            Dataset("Mine", Part(X[:3], Y[:3]), Part(floats(3, 4), Y[:3]), 3),
            "training inputs of type float64: give uint8 or float32",
        ),
        (
            Dataset("Mine", Part(floats(3), Y[:3] / 2), Part(floats(3), Y[:3]), 3),
            "labels are whole",
        ),
        (
            Dataset("Mine", Part(floats(3), Y[:3] - 1), Part(floats(3), Y[:3]), 3),
            "labels of Mine must be from 0 on, got -1 in row 0",
        ),
        (
            Dataset("Mine", Part(floats(3), Y[:3, None]), Part(floats(3), Y[:3]), 3),
            r"labels of shape \(3, 1\): give \(samples,\)",
        ),
    ],
)
def test_a_data_set_that_does_not_fit_together_is_refused(
    data: Dataset, told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        make_dataset(data)


def test_complete_data_take_no_test_data_and_no_share() -> None:
    with pytest.raises(ValueError, match="test= does not apply"):
        make_dataset("Digits", test=(X, Y))
    with pytest.raises(ValueError, match="test_share does not apply"):
        make_dataset("Digits", test_share=0.5)
    for option, value in (("test_share", 0.5), ("test_seed", 1)):
        with pytest.raises(ValueError, match=f"{option}={value} does not apply"):
            make_dataset((X, Y), test=(X, Y), **{option: value})


@pytest.mark.parametrize("change", ["inputs", "targets", "test", "order"])
def test_the_fingerprint_tells_data_apart(change: str) -> None:
    inputs, targets, test = X.copy(), Y.copy(), X.copy()
    before = make_dataset((inputs, targets), test=(test, Y)).fingerprint
    assert before == make_dataset((X.copy(), Y.copy()), test=(X, Y)).fingerprint
    if change == "inputs":
        inputs[3, 1] += 1e-3
    elif change == "targets":
        targets[3] = 2
    elif change == "test":
        test[0, 0] = 5
    else:
        inputs = inputs[::-1]
    after = make_dataset((inputs, targets), test=(test, Y)).fingerprint
    assert after != before
    assert len(after) == 32


def test_masked_values_and_words_of_tables_are_named() -> None:
    masked = np.ma.masked_array(X)
    masked[3, 1] = np.ma.masked
    with pytest.raises(ValueError, match=r"X has masked values: X.filled\(...\)"):
        make_dataset((masked, Y))
    words = np.array(["cat", "dog"] * 30, dtype=object)
    with pytest.raises(ValueError, match="got 'cat': np.unique"):
        make_dataset((X, words))
    with pytest.raises(ValueError, match="got 1e\\+299 in row 0: give it in a larger"):
        make_dataset((np.where(X == X[0, 0], 1e299, X), Y))


@pytest.mark.parametrize("unit", [1e100, 1e300])
@pytest.mark.parametrize("options", [{}, {"targets": "numbers"}])
def test_numbers_beyond_32_bits_are_not_taken_for_classes(
    unit: float, options: dict[str, Any]
) -> None:
    targets = unit * np.linspace(-1, 1, 40)
    with pytest.raises(ValueError, match="y must be finite numbers .* larger unit"):
        make_dataset((np.ones((40, 2)), targets), **options)


def test_large_numbers_are_standardized() -> None:
    targets = 1e30 * np.linspace(-1, 1, 40)
    data = make_dataset((np.ones((40, 2)), targets))
    assert data.num_classes is None
    assert abs(data.train.targets.std() - 1) < 1e-3
