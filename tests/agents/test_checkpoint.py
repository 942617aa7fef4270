"""A checkpoint is written whole or not at all, and reading one runs no code."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.checkpoint import CheckpointError, load_checkpoint, save_checkpoint

OLD = {"step": 1, "weights": torch.arange(3.0)}
NEW = {"step": 2, "weights": torch.ones(3)}


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half_way(state: Any, file: Any, *_: Any) -> None:
    """What torch.save does on a disk that fills up."""
    file.write(b"half of it")
    full()


def broken(*_: Any, **__: Any) -> None:
    raise RuntimeError("unexpected pos 64 vs 0")


def interrupted(state: Any, file: Any, *_: Any) -> None:
    file.write(b"half of it")
    raise KeyboardInterrupt


FAILURES: dict[str, tuple[Any, str, Callable[..., None]]] = {
    "while writing": (torch, "save", half_way),
    "in torch": (torch, "save", broken),
    "while syncing": (os, "fsync", full),
    "while renaming": (os, "replace", full),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint.pt"


def test_what_is_written_is_read(path: Path) -> None:
    save_checkpoint(path, OLD)
    save_checkpoint(path, NEW)
    found = load_checkpoint(path)
    assert found["step"] == 2
    assert torch.equal(found["weights"], NEW["weights"])
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_keeps_the_last_one_and_leaves_no_rubbish(
    path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    save_checkpoint(path, OLD)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(*FAILURES[failure])
        with pytest.raises(CheckpointError, match="cannot write a checkpoint") as told:
            save_checkpoint(path, NEW)
    assert f"{path}, is kept" in str(told.value)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_an_interrupt_keeps_the_last_one_and_leaves_no_rubbish(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(path, OLD)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(path, NEW)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "save", half_way)
    with pytest.raises(CheckpointError, match="No space left on device") as told:
        save_checkpoint(path, NEW)
    assert "is kept" not in str(told.value)
    assert list(path.parent.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device here")
def test_a_disk_that_is_really_full_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(path, OLD)

    def opened(handle: int, mode: str) -> Any:
        os.close(handle)
        return open("/dev/full", mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", opened)
        with pytest.raises(CheckpointError, match="cannot write a checkpoint"):
            save_checkpoint(path, NEW)
    assert load_checkpoint(path)["step"] == 1
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_is_gone_is_an_error_of_the_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No such file or directory"):
        save_checkpoint(tmp_path / "gone" / "checkpoint.pt", NEW)


def test_the_new_file_is_on_the_disk_before_the_old_one_goes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda f: (calls.append("sync"), sync(f))[1])
    monkeypatch.setattr(
        os, "replace", lambda a, b: (calls.append("replace"), replace(a, b))[1]
    )
    save_checkpoint(path, NEW)
    assert calls[:2] == ["sync", "replace"]


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    place = content.index(b"weights")
    return content[: place - 20] + b"\xff" * 40 + content[place + 20 :]


@pytest.mark.parametrize("damage", [cut, flipped, lambda _: b"", lambda _: b"{}"])
def test_a_damaged_file_says_what_to_do_and_is_kept(
    path: Path, damage: Callable[[bytes], bytes]
) -> None:
    save_checkpoint(path, OLD)
    content = damage(path.read_bytes())
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is damaged") as told:
        load_checkpoint(path)
    assert str(path) in str(told.value)
    assert "Delete it to start the run anew" in str(told.value)
    assert "\n" not in str(told.value)
    assert path.read_bytes() == content


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"there is no checkpoint {path}"):
        load_checkpoint(path)


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


def pickled(state: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(state, protocol=2))


@pytest.mark.parametrize("way", [torch.save, pickled])
def test_code_in_a_file_is_not_run(
    tmp_path: Path, path: Path, way: Callable[[Any, Path], Any]
) -> None:
    mark = tmp_path / "run"
    way({"step": Trap(mark)}, path)
    with pytest.raises(CheckpointError, match="is damaged"):
        load_checkpoint(path)
    assert not mark.exists()


def test_one_flipped_bit_in_a_tensor_is_noticed(path: Path) -> None:
    save_checkpoint(path, {"weights": torch.arange(100_000.0)})
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)
    torch.load(path, weights_only=True)  # torch itself does not see it
    with pytest.raises(
        CheckpointError, match=r"is damaged \(the check sum of .* is wro"
    ):
        load_checkpoint(path)


def test_what_torch_advises_against_safety_is_not_passed_on(path: Path) -> None:
    torch.save({"step": Path("x")}, path)
    with pytest.raises(CheckpointError, match="plain values and tensors") as told:
        load_checkpoint(path)
    assert "weights_only" not in str(told.value)
