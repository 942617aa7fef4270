"""A data set of Hugging Face is data; its columns follow from their types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from continual_envs import make_dataset, make_stream

hf = pytest.importorskip("datasets")

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 4)).astype(np.float32)
Y = np.arange(60) % 3
PIXELS = RANDOM.integers(0, 256, (60, 6, 5, 3), dtype=np.uint8)
NAMES = hf.ClassLabel(names=["cat", "dog", "bird"])


def table(**columns: Any) -> Any:
    """A data set made in memory, with types where a column is a pair."""
    types = {k: v[1] for k, v in columns.items() if isinstance(v, tuple)}
    values = {k: v[0] if isinstance(v, tuple) else v for k, v in columns.items()}
    made = hf.Dataset.from_dict({k: list(v) for k, v in values.items()})
    for key, kind in types.items():
        made = made.cast_column(key, kind)
    return made


def pictures(count: int = 60) -> list[Image.Image]:
    return [Image.fromarray(pixels) for pixels in PIXELS[:count]]


def test_vectors_and_labels_are_found() -> None:
    found = make_dataset(table(vector=X.tolist(), label=Y))
    assert found.fingerprint == make_dataset((X, Y)).fingerprint


def test_images_and_named_classes_are_found() -> None:
    data = table(
        id=Y, image=(pictures(), hf.Image()), label=(Y, NAMES), text=["a"] * 60
    )
    found = make_dataset(data, test=data)
    assert found.num_classes == 3
    np.testing.assert_array_equal(found.train.inputs, PIXELS.transpose(0, 3, 1, 2))
    assert found.train.targets.tolist() == Y.tolist()


def test_arrays_of_bytes_stay_bytes() -> None:
    kind = hf.Array3D((3, 6, 5), "uint8")
    images = PIXELS.transpose(0, 3, 1, 2)
    found = make_dataset(table(image=(images.tolist(), kind), label=Y))
    assert found.train.inputs.dtype == np.uint8
    assert found.fingerprint == make_dataset((images, Y)).fingerprint


def test_numbers_are_predicted_from_columns_of_numbers() -> None:
    data = table(a=X[:, 0], b=X[:, 1], price=X[:, 2] + 40)
    found = make_dataset(data, input_key=["b", "a"], target_key="price")
    assert found.num_classes is None
    expected = make_dataset((X[:, [1, 0]], X[:, 2] + 40))
    np.testing.assert_allclose(found.train.inputs, expected.train.inputs, atol=1e-5)


def test_a_selection_is_read_in_its_order() -> None:
    data = table(vector=X.tolist(), label=Y).select(range(59, -1, -1))
    found = make_dataset(data, test=data, standardize=False)
    np.testing.assert_array_equal(found.train.inputs, X[::-1])


def test_a_format_of_torch_changes_nothing() -> None:
    plain = table(vector=X.tolist(), label=Y)
    one, other = make_dataset(plain), make_dataset(plain.with_format("torch"))
    assert one.fingerprint == other.fingerprint


def test_splits_are_train_and_test() -> None:
    data = table(vector=X.tolist(), label=(Y, NAMES))
    splits = hf.DatasetDict(train=data, test=data.select(range(9)))
    found = make_dataset(splits)
    assert (len(found.train), len(found.test)) == (60, 9)
    with pytest.raises(ValueError, match="has the splits fold: give one of them"):
        make_dataset(hf.DatasetDict(fold=data))


def test_classes_of_test_data_go_by_their_names() -> None:
    train = table(vector=X.tolist(), label=(Y, NAMES))
    other = hf.ClassLabel(names=["dog", "cat"])
    test = table(vector=X[:4].tolist(), label=([0, 1, 1, 0], other))
    found = make_dataset(train, test=test)
    assert found.test.targets.tolist() == [1, 0, 0, 1]
    fish = table(vector=X[:1].tolist(), label=([0], hf.ClassLabel(names=["fish"])))
    with pytest.raises(ValueError, match="class 'fish' appears only in the test set"):
        make_dataset(train, test=fish)


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ({"a": X[:, 0], "b": X[:, 1]}, {}, "may be in a, b of a, b: .*target_key="),
        (
            {"a": X[:, 0], "b": X[:, 1], "y": Y},
            {"target_key": "y"},
            "may be in no column of a, b, y: .*input_key=",
        ),
        (
            {"a": X.tolist(), "b": X.tolist(), "y": Y},
            {},
            "may be in a, b of .*input_key",
        ),
        ({"a": X.tolist()}, {}, "targets may be in no column of a"),
        ({"a": X.tolist(), "y": Y}, {"input_key": "x"}, "'x' is not a column.* a, y"),
        ({"a": X.tolist(), "y": Y}, {"target_key": "x"}, "'x' is not a column.* a, y"),
        (
            {"a": X.tolist(), "b": X[:, 0], "y": Y},
            {"input_key": ["a", "b"], "target_key": "y"},
            "input_key='a' is no column of numbers",
        ),
        (
            {"text": ["dog"] * 60, "y": Y},
            {"input_key": "text"},
            "X must be numbers, got <U3",
        ),
        ({"a": [[1.0]] * 59 + [[1.0, 2.0]], "y": Y}, {}, "X is an array of objects"),
        ({"a": X.tolist(), "y": [0, None] * 30}, {}, "y .*got nan in row 1"),
        ({"a": X.tolist(), "y": ["a"] * 60}, {"target_key": "y"}, "got 'a': np.unique"),
    ],
)
def test_columns_that_are_not_clear_are_asked_for(
    columns: dict[str, Any], options: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        make_dataset(table(**columns), **options)
    assert "\n" not in str(caught.value)


def test_images_of_different_sizes_are_named_and_can_be_resized() -> None:
    images = pictures(20)
    images[7] = images[7].resize((9, 8))
    data = table(image=(images, hf.Image()), label=Y[:20])
    with pytest.raises(
        ValueError, match=r"sample 7 .*\(3, 8, 9\).*image_size=\(H, W\)"
    ):
        make_dataset(data)
    env = make_stream(data, image_size=(6, 5), batch_size=3)
    assert env.reset(seed=0)[0].shape == (3, 3, 6, 5)


def test_an_image_that_is_missing_is_named() -> None:
    images = [*pictures(19), None]
    data = table(image=(images, hf.Image()), label=Y[:20])
    with pytest.raises(
        ValueError, match="sample 19 has no image in the column 'image'"
    ):
        make_dataset(data)
