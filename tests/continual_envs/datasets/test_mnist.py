"""MNIST is read as torchvision reads it, and refused if a file is not its own."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import MNIST

from continual_envs import DatasetError, load_dataset, make_stream
from continual_envs.datasets.mnist import load_mnist
from tests.continual_envs.helpers import require_data, still

SIZES = {"train": 6, "t10k": 4}


def idx(values: np.ndarray) -> bytes:
    """An array in the IDX format, written by its description."""
    head = bytes([0, 0, 8, values.ndim])
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return head + sizes + values.astype(np.uint8).tobytes()


def small_archives() -> dict[str, bytes]:
    """Archives like those of MNIST with a few images of 2 x 3 pixels."""
    random = np.random.default_rng(0)
    archives = {}
    for part, size in SIZES.items():
        images = random.integers(0, 256, (size, 2, 3))
        labels = np.arange(size)
        archives[f"{part}-images-idx3-ubyte.gz"] = gzip.compress(idx(images), mtime=0)
        archives[f"{part}-labels-idx1-ubyte.gz"] = gzip.compress(idx(labels), mtime=0)
    return archives


@pytest.fixture
def archives(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Small archives whose checksums are the published ones."""
    made = small_archives()
    publish(monkeypatch, made)
    return made


def publish(monkeypatch: pytest.MonkeyPatch, archives: dict[str, bytes]) -> None:
    """Let archives have the checksums that torchvision knows."""
    checksums = [
        (name, hashlib.md5(data).hexdigest()) for name, data in archives.items()
    ]
    monkeypatch.setattr(MNIST, "resources", checksums)


def put(root: Path, archives: dict[str, bytes]) -> Path:
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for name, content in archives.items():
        (folder / name).write_bytes(content)
    return folder


def test_archives_are_read_as_they_are(
    tmp_path: Path, archives: dict[str, bytes]
) -> None:
    folder = put(tmp_path, archives)
    data = load_mnist(tmp_path)
    assert data.train.inputs.shape == (6, 1, 2, 3)
    assert data.test.inputs.shape == (4, 1, 2, 3)
    assert data.train.inputs.dtype == np.uint8
    assert data.train.targets.dtype == np.int64
    assert data.train.targets.tolist() == [0, 1, 2, 3, 4, 5]
    raw = gzip.decompress(archives["t10k-images-idx3-ubyte.gz"])
    assert data.test.inputs.tobytes() == raw[16:]
    assert sorted(path.name for path in folder.iterdir()) == sorted(archives)


def test_what_is_missing_is_downloaded_once(
    tmp_path: Path, archives: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fetch(url: str, root: Path, name: str, md5: str) -> None:
        asked.append((url, md5))
        (Path(root) / name).write_bytes(archives[name])

    monkeypatch.setattr("torchvision.datasets.utils.download_url", fetch)
    assert len(load_mnist(tmp_path).train) == 6
    assert [url.rsplit("/", 1)[1] for url, _ in asked] == [
        name for name, _ in MNIST.resources
    ]
    # With the checksums that torchvision knows.
    assert [md5 for _, md5 in asked] == [md5 for _, md5 in MNIST.resources]
    assert len(load_mnist(tmp_path).train) == 6
    assert len(asked) == 4


@pytest.mark.parametrize("name", [name for name, _ in MNIST.resources])
def test_a_file_that_is_missing_or_damaged_is_named(
    tmp_path: Path, archives: dict[str, bytes], name: str
) -> None:
    folder = put(tmp_path, archives)
    for content in (archives[name][:-5], archives[name][:-1] + b"x", b""):
        (folder / name).write_bytes(content)
        with pytest.raises(DatasetError, match=f"{name} is damaged.*Delete the folder"):
            load_dataset("MNIST", tmp_path)
    (folder / name).unlink()
    with pytest.raises(DatasetError, match=f"{name} is missing. Delete .* or copy"):
        load_dataset("MNIST", tmp_path)
    (folder / name).write_bytes(archives[name])
    assert len(load_dataset("MNIST", tmp_path).train) == 6


def test_an_archive_that_cannot_be_unpacked_is_named(
    tmp_path: Path, archives: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put(tmp_path, archives)
    name = "train-images-idx3-ubyte.gz"
    for content in (archives[name][:-9], b"no archive", archives[name][:30]):
        (folder / name).write_bytes(content)
        publish(monkeypatch, {**archives, name: content})
        with pytest.raises(DatasetError, match=f"{name} cannot be read"):
            load_mnist(tmp_path)


def test_a_truncated_archive_of_the_published_name_is_refused(tmp_path: Path) -> None:
    folder = put(tmp_path, small_archives())
    with pytest.raises(DatasetError, match="md5 is .*, expected f68b3c2dcbeaaa9fbdd"):
        load_dataset("MNIST", tmp_path)
    assert len(list(folder.iterdir())) == 4


def test_real_mnist_is_what_torchvision_reads(tmp_path: Path) -> None:
    root = require_data("MNIST")
    assert root is not None
    raw = tmp_path / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, _ in MNIST.resources:
        shutil.copy(root / "MNIST" / "raw" / name, raw / name)
    data = load_dataset("MNIST", root)
    assert data.num_classes == 10
    for part, is_train, size in (
        (data.train, True, 60_000),
        (data.test, False, 10_000),
    ):
        expected = MNIST(tmp_path, train=is_train, download=True)
        assert part.inputs.shape == (size, 1, 28, 28)
        assert part.inputs.dtype == np.uint8
        np.testing.assert_array_equal(part.inputs[:, 0], expected.data.numpy())
        np.testing.assert_array_equal(part.targets, expected.targets.numpy())


def test_real_mnist_streams_from_its_beginning_to_its_end() -> None:
    require_data("MNIST")
    env = make_stream("SplitMNIST", batch_size=500)
    env.reset(seed=0)
    labels = []
    over = False
    while not over:
        _, _, over, _, info = env.step(still(env))
        labels.append(info["label"])
    found = np.concatenate(labels)
    assert len(found) == 60_000
    assert (np.diff(found // 2) >= 0).all()
    expected = np.bincount(env.dataset.train.targets)
    assert np.bincount(found).tolist() == expected.tolist()
    assert sum(map(len, env.evaluation_sets)) == 10_000


def test_real_permuted_mnist_has_twenty_tasks() -> None:
    require_data("MNIST")
    env = make_stream("PermutedMNIST", batch_size=6000)
    env.reset(seed=0)
    assert env.num_steps == 200
    assert env.boundaries == list(range(10, 201, 10))
    assert env.dataset is make_stream("SplitMNIST").dataset
