"""An .npz file is data; a damaged or dangerous one is refused without running it."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from continual_envs import DatasetError, make_dataset, make_stream

X = np.random.default_rng(0).normal(size=(60, 4))
Y = np.arange(60) % 3


def save(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_arrays_of_a_file_are_those_that_were_saved(tmp_path: Path) -> None:
    path = save(tmp_path / "mine.npz", X=X, y=Y)
    for data in (path, str(path)):
        found = make_dataset(data)
        assert found.name == "mine"
        assert found.fingerprint == make_dataset((X, Y)).fingerprint


def test_test_data_and_tasks_come_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    save(path, X=X, y=Y, X_test=X[:9], y_test=Y[:9], task=Y, task_test=Y[:9])
    found = make_dataset(path)
    assert (len(found.train), len(found.test)) == (60, 9)
    env = make_stream(path, batch_size=10)
    env.reset(seed=0)
    assert env.boundaries == [2, 4, 6]
    assert found.fingerprint == env.dataset.fingerprint


class Bomb:
    """Leaves a trace when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


def test_a_file_that_would_run_code_is_refused_unopened(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    bomb = np.empty(60, dtype=object)
    bomb[:] = [Bomb(trace)] * 60
    objects = save(tmp_path / "objects.npz", X=X, y=bomb)
    with pytest.raises(DatasetError, match="y in .*is a pickle and could run code"):
        make_dataset(objects)
    plain = tmp_path / "plain.npz"
    plain.write_bytes(pickle.dumps(Bomb(trace)))
    with pytest.raises(DatasetError, match="plain.npz is damaged or no .npz file"):
        make_dataset(plain)
    assert not trace.exists()
    pickle.loads(plain.read_bytes())  # it does run if it is loaded
    assert trace.exists()


@pytest.mark.parametrize("keep", [0, 10, 200, 1000])
def test_a_truncated_file_is_named(tmp_path: Path, keep: int) -> None:
    path = save(tmp_path / "mine.npz", X=X, y=Y)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DatasetError, match="mine.npz is damaged") as caught:
        make_dataset(path)
    assert "\n" not in str(caught.value)


def test_a_flipped_byte_is_found(tmp_path: Path) -> None:
    path = save(tmp_path / "mine.npz", X=X, y=Y)
    content = bytearray(path.read_bytes())
    content[600] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DatasetError, match="mine.npz is damaged"):
        make_dataset(path)


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"X": X}, "has no array y, only X: save X and y"),
        ({"images": X, "labels": Y}, "has no array X, only images, labels"),
        ({"X": X, "y": Y, "X_test": X}, "only one of X_test and y_test"),
    ],
)
def test_a_file_without_the_arrays_is_refused(
    tmp_path: Path, arrays: dict[str, Any], told: str
) -> None:
    with pytest.raises(DatasetError, match=told):
        make_dataset(save(tmp_path / "mine.npz", **arrays))


def test_a_single_array_is_no_data(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", X)
    with pytest.raises(DatasetError, match="mine.npy is no .npz file"):
        make_dataset(tmp_path / "mine.npy")


def test_a_path_that_does_not_exist_is_named(tmp_path: Path) -> None:
    for make in (make_dataset, make_stream):
        with pytest.raises(DatasetError, match=r"nothing.npz' does not exist"):
            make(tmp_path / "nothing.npz")
        with pytest.raises(DatasetError, match="does not exist; names .*MNIST"):
            make(str(tmp_path / "nothing.npz"))


def test_wrong_values_in_a_file_are_told_like_those_of_arrays(tmp_path: Path) -> None:
    path = save(tmp_path / "mine.npz", X=X, y=Y.astype(str))
    with pytest.raises(ValueError, match=r"np.unique\(y, return_inverse=True\)"):
        make_dataset(path)


def test_a_file_with_test_data_takes_no_others(tmp_path: Path) -> None:
    path = save(tmp_path / "mine.npz", X=X, y=Y, X_test=X, y_test=Y)
    with pytest.raises(ValueError, match="mine has test data of its own"):
        make_dataset(path, test=(X, Y))
