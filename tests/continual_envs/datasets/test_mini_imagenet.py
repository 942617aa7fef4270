"""mini-ImageNet is read from a folder, decoded once, and refused if it is damaged."""

from __future__ import annotations

import csv
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from continual_envs import DatasetError, load_dataset, make_stream
from continual_envs.datasets import mini_imagenet
from continual_envs.datasets.mini_imagenet import load_mini_imagenet
from tests.continual_envs.helpers import require_data, still

CLASSES = [f"n{number:08d}" for number in range(100)]
TABLES = {"train.csv": range(64), "val.csv": range(64, 80), "test.csv": range(80, 100)}


def colour(label: int, number: int) -> tuple[int, int, int]:
    """The colour of one image: it tells the class and the number."""
    return (25 * (label // 10), 25 * (label % 10), 40 * number)


def told_by(image: Any) -> tuple[int, int]:
    """Class and number of an image of one colour, which JPEG may have rounded."""
    assert np.ptp(image.reshape(3, -1), axis=1).max() == 0
    red, green, blue = image[:, 0, 0].tolist()
    return 10 * round(red / 25) + round(green / 25), round(blue / 40)


def write_tables(folder: Path, classes: list[str]) -> None:
    random = np.random.default_rng(0)
    for table, labels in TABLES.items():
        rows = [
            (f"{classes[label]}{number:08d}.jpg", classes[label])
            for label in labels
            if label < len(classes)
            for number in range(6)
        ]
        with (folder / table).open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["filename", "label"])
            writer.writerows(rows[row] for row in random.permutation(len(rows)))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six small images of one colour in each of 100 classes, and decoded."""
    root = tmp_path_factory.mktemp("mini")
    folder = root / "mini-imagenet"
    (folder / "images").mkdir(parents=True)
    for label, name in enumerate(CLASSES):
        for number in range(6):
            image = Image.new("RGB", (8, 8), colour(label, number))
            image.save(folder / "images" / f"{name}{number:08d}.jpg", quality=95)
    write_tables(folder, CLASSES)
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to play with; the user's folder is empty."""
    monkeypatch.delenv("CONTINUAL_ENVS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    shutil.copytree(made, tmp_path / "root")
    return tmp_path / "root"


@pytest.fixture
def no_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(mini_imagenet.Image, "open", fail)


def picture_of(root: Path, label: int, number: int) -> Path:
    return root / "mini-imagenet/images" / f"{CLASSES[label]}{number:08d}.jpg"


def caches(place: Path) -> list[Path]:
    folder = place / "mini-imagenet-decoded"
    return sorted(folder.iterdir()) if folder.exists() else []


def assert_right(data: Any) -> None:
    """The first five images of each class by name train, the sixth tests."""
    assert data.num_classes == 100
    assert data.train.inputs.shape == (500, 3, 84, 84)
    assert data.test.inputs.shape == (100, 3, 84, 84)
    assert data.train.inputs.dtype == np.uint8
    assert data.train.targets.dtype == np.int64
    for part, numbers in ((data.train, range(5)), (data.test, [5])):
        found = [told_by(image) for image in part.inputs]
        assert [label for label, _ in found] == part.targets.tolist()
        assert sorted(found) == [(label, n) for label in range(100) for n in numbers]


def test_each_class_is_split_five_to_one_by_name_and_resized(root: Path) -> None:
    data = load_mini_imagenet(root)
    assert np.bincount(data.train.targets).tolist() == [5] * 100
    assert np.bincount(data.test.targets).tolist() == [1] * 100
    assert_right(data)


def test_the_folder_itself_may_be_given(root: Path) -> None:
    whole = load_mini_imagenet(root)
    inner = load_mini_imagenet(root / "mini-imagenet")
    np.testing.assert_array_equal(whole.train.inputs, inner.train.inputs)


def test_an_image_keeps_its_pixels_or_is_resized_as_a_whole(root: Path) -> None:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (84, 84, 3), dtype=np.uint8)
    grey = Image.fromarray(pixels[:, :, 0])
    Image.fromarray(pixels).save(picture_of(root, 0, 0), format="png")
    grey.save(picture_of(root, 0, 1), format="png")
    wide = Image.new("RGB", (200, 100), (255, 0, 0))
    wide.paste((0, 0, 255), (100, 0, 200, 100))
    wide.save(picture_of(root, 0, 2), format="png")
    first, second, third = load_mini_imagenet(root).train.inputs[:3]
    np.testing.assert_array_equal(first.transpose(1, 2, 0), pixels)
    for channel in second:
        np.testing.assert_array_equal(channel, pixels[:, :, 0])
    assert (third[:, 0, 0].tolist(), third[:, 83, 83].tolist()) == (
        [255, 0, 0],
        [0, 0, 255],
    )


def test_the_second_time_images_come_from_the_cache(
    root: Path, request: pytest.FixtureRequest
) -> None:
    first = load_mini_imagenet(root)
    (cache,) = caches(root)
    assert {path.name for path in cache.iterdir()} == {"train.npy", "test.npy"}
    request.getfixturevalue("no_decoder")
    second = load_mini_imagenet(root)
    np.testing.assert_array_equal(first.train.inputs, second.train.inputs)
    np.testing.assert_array_equal(first.test.inputs, second.test.inputs)
    assert caches(root) == [cache]
    assert isinstance(second.train.inputs.base, np.memmap)
    assert not second.train.inputs.flags.writeable


@pytest.mark.usefixtures("no_decoder")
def test_the_first_time_images_are_decoded(root: Path) -> None:
    with pytest.raises(AssertionError, match="decoded again"):
        load_mini_imagenet(root)
    assert caches(root) == []


def test_an_image_that_is_replaced_renews_the_cache(root: Path) -> None:
    before = load_mini_imagenet(root).train.inputs[5].copy()
    Image.new("RGB", (84, 84), (1, 2, 3)).save(picture_of(root, 1, 0), format="png")
    after = load_mini_imagenet(root).train.inputs[5]
    assert before[:, 0, 0].tolist() != [1, 2, 3]
    assert after[:, 0, 0].tolist() == [1, 2, 3]


def test_an_image_that_is_added_renews_the_cache(root: Path) -> None:
    load_mini_imagenet(root)
    shutil.copy(picture_of(root, 0, 0), root / "mini-imagenet/images/new.jpg")
    with (root / "mini-imagenet/train.csv").open("a") as file:
        file.write(f"new.jpg,{CLASSES[0]}\n")
    data = load_mini_imagenet(root)
    # Of seven images, six are nearest to five sixths.
    assert (data.train.targets == 0).sum() == 6
    assert len(data.train.inputs) == 501


def test_a_folder_that_cannot_be_written_has_its_cache_at_the_users(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def access(path: Any, mode: int) -> bool:
        return not Path(path).is_relative_to(root)

    monkeypatch.setattr(os, "access", access)
    before = sorted(root.iterdir())
    assert_right(load_mini_imagenet(root))
    assert sorted(root.iterdir()) == before
    assert len(caches(tmp_path / "user" / "continual_envs")) == 1

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(mini_imagenet.Image, "open", fail)
    assert len(load_mini_imagenet(root).train) == 500


@pytest.mark.parametrize("content", [b"", b"no image", None])
def test_an_image_that_cannot_be_read_is_named_and_no_cache_is_left(
    root: Path, content: bytes | None
) -> None:
    path = picture_of(root, 99, 5)
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half if content is None else content)
    with pytest.raises(DatasetError) as caught:
        load_dataset("MiniImageNet", root)
    assert str(path) in str(caught.value)
    assert "Copy the file anew" in str(caught.value)
    assert caches(root) == []


def test_a_damaged_cache_is_never_taken_for_the_data(root: Path) -> None:
    load_mini_imagenet(root)
    (cache,) = caches(root)
    for damage in (b"", b"\x93NUMPY", (cache / "train.npy").read_bytes()[:-100]):
        (cache / "train.npy").unlink()  # not into the file that is mapped
        (cache / "train.npy").write_bytes(damage)
        try:
            data = load_mini_imagenet(root)
        except DatasetError as error:
            assert str(cache) in str(error)  # noqa: PT017
        else:
            assert_right(data)


def test_a_cache_without_one_of_its_files_is_renewed_or_named(root: Path) -> None:
    load_mini_imagenet(root)
    (cache,) = caches(root)
    (cache / "test.npy").unlink()
    try:
        data = load_mini_imagenet(root)
    except DatasetError as error:
        assert str(cache) in str(error)  # noqa: PT017
    else:
        assert_right(data)


def test_an_image_that_a_table_names_must_be_there(root: Path) -> None:
    picture_of(root, 7, 3).unlink()
    expected = f"{picture_of(root, 7, 3)} is missing, but a table names it"
    with pytest.raises(DatasetError, match=expected):
        load_dataset("MiniImageNet", root)
    assert caches(root) == []


@pytest.mark.parametrize("table", TABLES)
def test_all_tables_must_be_there(root: Path, table: str) -> None:
    (root / "mini-imagenet" / table).unlink()
    with pytest.raises(DatasetError, match=f"{table} is missing.*train.csv, val.csv"):
        load_dataset("MiniImageNet", root)


@pytest.mark.parametrize(
    ("head", "told"),
    [("file,label", "got file,label"), ("filename", "got filename"), ("", "got ")],
)
def test_tables_must_have_their_columns(root: Path, head: str, told: str) -> None:
    path = root / "mini-imagenet" / "val.csv"
    path.write_text(head + "\n")
    expected = f"val.csv must have the columns filename,label, {told}"
    with pytest.raises(DatasetError, match=expected):
        load_dataset("MiniImageNet", root)


@pytest.mark.parametrize("line", ["alone.jpg", "\xff\xfe"], ids=["no label", "no text"])
def test_a_row_that_makes_no_sense_names_its_table(root: Path, line: str) -> None:
    path = root / "mini-imagenet" / "val.csv"
    path.write_bytes(path.read_bytes() + line.encode("latin1") + b"\n")
    with pytest.raises(DatasetError, match="val.csv"):
        load_dataset("MiniImageNet", root)


def test_there_must_be_a_hundred_classes(root: Path) -> None:
    write_tables(root / "mini-imagenet", CLASSES[:99])
    with pytest.raises(DatasetError, match="name 99 classes, expected 100"):
        load_dataset("MiniImageNet", root)


def test_a_missing_data_set_says_where_to_put_it(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        make_stream("SplitMiniImageNet", data_dir=tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "mini-imagenet") in message
    for word in ("no official download", "images/", "train.csv", "data_dir"):
        assert word in message
    assert list(tmp_path.iterdir()) == []


def test_a_tiny_set_streams_ten_tasks_of_ten_classes(root: Path) -> None:
    env = make_stream("SplitMiniImageNet", batch_size=50, data_dir=root)
    env.reset(seed=0)
    for step in range(10):
        *_, over, _, info = env.step(still(env))
        assert sorted(set(info["label"].tolist())) == [
            *range(10 * step, 10 * step + 10)
        ]
        assert over == (step == 9)


def test_the_real_images_are_those_of_the_files() -> None:
    root = require_data("MiniImageNet")
    assert root is not None
    data = load_dataset("MiniImageNet", root)
    classes: dict[str, list[str]] = {}
    for table in TABLES:
        with (root / "mini-imagenet" / table).open(newline="") as file:
            for name, label in list(csv.reader(file))[1:]:
                classes.setdefault(label, []).append(name)
    assert len(classes) == data.num_classes == 100
    rows: dict[str, int] = {"train": 0, "test": 0}
    for label, one in enumerate(sorted(classes)):
        names = sorted(classes[one])
        cut = round(len(names) * 500 / 600)
        for part, kept, chosen in (
            ("train", data.train, names[:cut]),
            ("test", data.test, names[cut:]),
        ):
            row = rows[part]
            assert set(kept.targets[row : row + len(chosen)].tolist()) == {label}
            with Image.open(root / "mini-imagenet/images" / chosen[-1]) as image:
                expected = np.asarray(image.convert("RGB").resize((84, 84), 2))
            shown = kept.inputs[row + len(chosen) - 1].transpose(1, 2, 0)
            np.testing.assert_array_equal(shown, expected)
            rows[part] = row + len(chosen)
    assert rows == {"train": len(data.train), "test": len(data.test)}


def test_the_real_images_stream() -> None:
    require_data("MiniImageNet")
    env = make_stream("SplitMiniImageNet", batch_size=128, validation=True)
    env.reset(seed=0)
    assert len(env.boundaries) == 10
    labels = []
    for _ in range(8):
        *_, info = env.step(still(env))
        labels.append(info["label"])
    assert (np.diff(np.concatenate(labels) // 10) >= 0).all()
