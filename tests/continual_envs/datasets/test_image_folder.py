"""A folder of images, one folder per class, is data."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from continual_envs import DatasetError, make_dataset, make_stream

RANDOM = np.random.default_rng(0)


def draw(path: Path, shape: tuple[int, ...] = (6, 5, 3)) -> Any:
    """Save a random image and return its pixels."""
    pixels = RANDOM.integers(0, 256, shape, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


@pytest.fixture
def animals(tmp_path: Path) -> tuple[Path, dict[str, list[Any]]]:
    """Two classes of ten images."""
    root = tmp_path / "animals"
    images = {
        name: [draw(root / name / f"{number}.png") for number in range(10)]
        for name in ("dog", "cat")
    }
    return root, images


def test_classes_are_folders_by_name_and_images_are_bytes(
    animals: tuple[Path, dict[str, list[Any]]],
) -> None:
    root, images = animals
    for data in (make_dataset(root), make_dataset(str(root))):
        assert data.name == "animals"
        assert data.num_classes == 2
        assert data.input_shape == (3, 6, 5)
        assert data.train.inputs.dtype == np.uint8
        assert (len(data.train), len(data.test)) == (16, 4)
    for label, name in enumerate(["cat", "dog"]):
        found = {
            x.tobytes()
            for part in (data.train, data.test)
            for x in part.inputs[part.targets == label]
        }
        assert found == {x.transpose(2, 0, 1).tobytes() for x in images[name]}


def test_train_and_test_have_folders_of_their_own(tmp_path: Path) -> None:
    for part, count in (("train", 5), ("test", 2)):
        for name in ("dog", "cat"):
            for number in range(count):
                draw(tmp_path / part / name / f"{number}.png")
    shutil.rmtree(tmp_path / "test" / "dog")
    for number in range(3):
        draw(tmp_path / "test" / "dog" / "more" / f"{number}.jpg")  # deeper
    data = make_dataset(tmp_path)
    assert np.bincount(data.train.targets).tolist() == [5, 5]
    assert np.bincount(data.test.targets).tolist() == [2, 3]
    apart = make_dataset(tmp_path / "train", test=tmp_path / "test")
    assert apart.fingerprint == data.fingerprint
    draw(tmp_path / "test" / "bird" / "0.png")
    for make in (
        lambda: make_dataset(tmp_path),
        lambda: make_dataset(tmp_path / "train", test=tmp_path / "test"),
    ):
        with pytest.raises(ValueError, match="class 'bird' appears only in"):
            make()


def test_gray_images_have_one_channel_unless_one_has_colors(tmp_path: Path) -> None:
    for number in range(5):
        draw(tmp_path / "a" / f"{number}.png", (6, 5))
        draw(tmp_path / "b" / f"{number}.png", (6, 5))
    assert make_dataset(tmp_path).input_shape == (1, 6, 5)
    draw(tmp_path / "b" / "color.png")
    data = make_dataset(tmp_path)
    assert data.input_shape == (3, 6, 5)


def test_images_of_different_sizes_are_named_and_can_be_resized(
    animals: tuple[Path, dict[str, list[Any]]],
) -> None:
    root, _ = animals
    draw(root / "dog" / "large.png", (9, 8, 3))
    told = r"cat.0.png \(6, 5\) and .*dog.large.png \(9, 8\): image_size=\(H, W\)"
    with pytest.raises(ValueError, match=told):
        make_dataset(root)
    data = make_dataset(root, image_size=(4, 7))
    assert data.input_shape == (3, 4, 7)
    assert len(data.train) + len(data.test) == 21


def test_files_that_are_no_images_are_left_out(
    animals: tuple[Path, dict[str, list[Any]]],
) -> None:
    root, _ = animals
    (root / "dog" / "notes.txt").write_text("good dogs")
    (root / "dog" / ".hidden.png").write_bytes(b"")
    (root / ".cache").mkdir()
    (root / "readme.md").write_text("animals")
    data = make_dataset(root)
    assert len(data.train) + len(data.test) == 20


def test_a_class_folder_without_images_is_named(
    animals: tuple[Path, dict[str, list[Any]]],
) -> None:
    root, _ = animals
    (root / "bird").mkdir()
    with pytest.raises(DatasetError, match="animals.bird has no images"):
        make_dataset(root)


@pytest.mark.parametrize("damage", ["text", "truncated"])
def test_an_image_that_cannot_be_read_is_named(
    animals: tuple[Path, dict[str, list[Any]]], damage: str
) -> None:
    root, _ = animals
    path = root / "dog" / "3.png"
    path.write_bytes(b"woof" if damage == "text" else path.read_bytes()[:70])
    with pytest.raises(DatasetError, match="dog.3.png cannot be read as an image"):
        make_dataset(root)


def test_a_folder_without_folders_is_refused(tmp_path: Path) -> None:
    draw(tmp_path / "0.png")
    with pytest.raises(DatasetError, match="has no folders: put the images of each"):
        make_dataset(tmp_path)


def test_options_of_arrays_do_not_apply(
    animals: tuple[Path, dict[str, list[Any]]],
) -> None:
    root, _ = animals
    with pytest.raises(ValueError, match="targets does not apply to a folder"):
        make_stream(root, targets="numbers")


def test_images_of_16_bits_are_refused_instead_of_cut_off(tmp_path: Path) -> None:
    deep = np.arange(30, dtype=np.uint16).reshape(6, 5) * 1000
    for name in ("a", "b"):
        draw(tmp_path / name / "0.png", (6, 5))
    Image.fromarray(deep).save(tmp_path / "b" / "deep.png")
    with pytest.raises(ValueError, match="deep.png has more than 8 bits .*'I;16'"):
        make_dataset(tmp_path)
