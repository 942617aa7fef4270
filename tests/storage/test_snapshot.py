"""A save is the old one or the new one, never a mix, and nothing in it can run."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from info_replay.storage import snapshot
from info_replay.storage.snapshot import load_snapshot, save_snapshot


def make_state(number: int = 0) -> dict[str, Any]:
    return {
        "text": "é",
        "none": None,
        "numbers": [1, 2.5, True, (3,), float("inf")],
        2: {"x": torch.arange(12).reshape(3, 4) + number},
        "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "empty": torch.zeros(0, 3),
        "flags": torch.tensor([True, False, True])[::2],
    }


def assert_same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert [*left] == [*right]
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, list | tuple):
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    else:
        assert left == right


def snapshots(folder: Path) -> list[Path]:
    return [*folder.glob("snapshot-*")]


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    save_snapshot(tmp_path / "new" / "folder", make_state())
    assert_same(load_snapshot(tmp_path / "new" / "folder"), make_state())


def test_what_is_not_plain_is_refused_and_the_save_before_stays(tmp_path: Path) -> None:
    save_snapshot(tmp_path, make_state())
    with pytest.raises(TypeError, match="tensors only, got a PosixPath"):
        save_snapshot(tmp_path, {**make_state(1), "path": Path()})
    assert_same(load_snapshot(tmp_path), make_state())
    assert len(snapshots(tmp_path)) == 1


def test_a_save_clears_away_the_one_before_it_and_what_killed_ones_left(
    tmp_path: Path,
) -> None:
    save_snapshot(tmp_path, make_state())
    (tmp_path / f"snapshot-{'0' * 32}").mkdir()
    (tmp_path / f".CURRENT-{'0' * 32}").write_text("")
    save_snapshot(tmp_path, make_state(1))
    assert_same(load_snapshot(tmp_path), make_state(1))
    assert len(snapshots(tmp_path)) == 1
    assert not [*tmp_path.glob(".CURRENT-*")]


def test_a_save_deletes_only_what_a_save_wrote(tmp_path: Path) -> None:
    (tmp_path / "snapshot-of-mine").mkdir()
    save_snapshot(tmp_path, make_state())
    assert (tmp_path / "snapshot-of-mine").exists()


def test_who_may_read_a_save_is_for_the_umask_to_say(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save_snapshot(tmp_path, make_state())
    finally:
        os.umask(before)
    (saved,) = snapshots(tmp_path)
    assert saved.stat().st_mode & 0o777 == 0o750
    assert {file.stat().st_mode & 0o777 for file in saved.iterdir()} == {0o640}


def test_loading_needs_a_save(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="no replay buffer was saved in"):
            load_snapshot(folder)


def test_a_save_of_an_earlier_version_is_refused_with_a_sentence(
    tmp_path: Path,
) -> None:
    (tmp_path / f"snapshot-{'a' * 32}").mkdir()
    (tmp_path / "CURRENT").write_text(f"snapshot-{'a' * 32}")
    with pytest.raises(ValueError, match="earlier version of info-replay"):
        load_snapshot(tmp_path)


def fill_the_disk(folder: Path, answer: Any) -> None:
    """Save where files may have 200 kB, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    try:
        save_snapshot(folder, {"x": torch.zeros(100_000)})
    except OSError as error:
        answer.put((error.errno, str(error)))
    else:
        answer.put(None)


def test_a_full_disk_is_one_error_and_the_save_before_stays(tmp_path: Path) -> None:
    save_snapshot(tmp_path, make_state())
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    child = context.Process(target=fill_the_disk, args=(tmp_path, answer))
    child.start()
    number, text = answer.get(timeout=60)
    child.join()
    assert (child.exitcode, number) == (0, errno.EFBIG)
    assert f"cannot save to {tmp_path}" in text
    assert "what was saved there before is kept" in text
    assert_same(load_snapshot(tmp_path), make_state())
    assert len(snapshots(tmp_path)) == 1


SAVE_TWICE = """
import sys, torch
from tensordict import TensorDict
from info_replay import make_replay_buffer
items = lambda n: TensorDict({"x": torch.full((200, 2000), float(n))}, [200])
buffer = make_replay_buffer("rs", 200)
buffer.extend(items(1))
buffer.dumps(sys.argv[1])
buffer[:] = items(2)
try:
    buffer.dumps(sys.argv[1])
except OSError as error:
    print(error)
twin = make_replay_buffer("rs", 200)
twin.loads(sys.argv[1])
print("kept" if bool((twin[:]["x"] == 1).all()) else "lost")
"""


def test_a_disk_that_is_really_full_does_not_end_the_process(tmp_path: Path) -> None:
    """A limit on the size of files does not do: a memory map fails at once there."""
    mount = f"mount -t tmpfs -o size=3m tmpfs {tmp_path}"
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if sys.platform != "linux" or subprocess.run([*inside, mount]).returncode:
        pytest.skip("needs a file system of its own")
    script = f'{mount} && exec "$0" -c "$1" "$2"'
    done = subprocess.run(
        [*inside, script, sys.executable, SAVE_TWICE, str(tmp_path / "saved")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout
    assert done.stdout.split()[-1] == "kept"


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, OSError])
def test_an_interrupt_right_after_the_new_save_is_named_loses_neither(
    interrupt: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_snapshot(tmp_path, make_state(0))

    def fail(folder: Path) -> None:
        if folder == tmp_path:
            raise interrupt

    monkeypatch.setattr(snapshot, "_to_disk", fail)
    with pytest.raises(interrupt):
        save_snapshot(tmp_path, make_state(1))
    assert_same(load_snapshot(tmp_path), make_state(1))


# -- damage ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["CURRENT", "manifest.json", "tensors.bin"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "delete", "link", "pipe"])
def test_damage_is_noticed(name: str, damage: str, tmp_path: Path) -> None:
    save_snapshot(tmp_path, make_state())
    (file,) = tmp_path.rglob(name)
    content = file.read_bytes()
    if damage == "flip":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage in ("cut", "empty"):
        file.write_bytes(content[:-1] if damage == "cut" else b"")
    else:
        file.unlink()
        if damage == "link":  # the same bytes, from outside
            (tmp_path.parent / f"{tmp_path.name}-{name}").write_bytes(content)
            file.symlink_to(tmp_path.parent / f"{tmp_path.name}-{name}")
        if damage == "pipe":
            os.mkfifo(file)
    gone = name == "CURRENT" and damage == "delete"
    with pytest.raises(
        FileNotFoundError if gone else ValueError,
        match="no replay buffer" if gone else f"saved in {tmp_path} is damaged",
    ):
        load_snapshot(tmp_path)


@pytest.mark.parametrize("place", ["/", "..", "snapshot-", "../{name}", "{name}/../x"])
def test_a_pointer_out_of_the_folder_is_not_followed(
    place: str, tmp_path: Path
) -> None:
    folder = tmp_path / "saved"
    save_snapshot(folder, make_state())
    name, digest = (folder / "CURRENT").read_text().split()
    (folder / name).rename(tmp_path / name)
    (folder / "CURRENT").write_text(f"{place.format(name=name)} {digest}\n")
    with pytest.raises(ValueError, match="must name a snapshot and its check sum"):
        load_snapshot(folder)


def test_nothing_that_is_saved_can_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "trapped"),)

    folder = tmp_path / "saved"
    save_snapshot(folder, make_state())
    for name in ("prefetch.pkl", "writer.pt", "manifest.json", "tensors.bin"):
        for place in (folder, *snapshots(folder)):
            (place / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="damaged"):
        load_snapshot(folder)
    assert not (tmp_path / "trapped").exists()


@pytest.mark.parametrize(
    "text",
    [
        ["tensor", "float32", [10**12], 0],
        ["tensor", "float32", [-1], 0],
        ["tensor", "float32", [1], -4],
        ["tensor", "Tensor", [1], 0],
        ["object", "os.system"],
        {"a": 1},
        ["dict", [[1]]],
        ["dict", [[["list", []], 1]]],
    ],
)
def test_a_state_with_right_check_sums_can_still_be_wrong(
    text: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "info_replay.storage.snapshot.encode", lambda state, write: text
    )
    save_snapshot(tmp_path, None)
    manifest = next(tmp_path.rglob("manifest.json")).read_text()
    assert json.loads(manifest)["state"] == text
    with pytest.raises(ValueError, match="damaged"):
        load_snapshot(tmp_path)


# -- several at once ------------------------------------------------------------------


def save_often(folder: Path, number: int) -> None:
    for _ in range(40):
        save_snapshot(folder, {"x": torch.full((1000,), number), "number": number})


def test_savers_of_one_folder_do_not_lose_each_others_saves(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    save_often(tmp_path, 0)
    children = [
        context.Process(target=save_often, args=(tmp_path, number)) for number in (1, 2)
    ]
    for child in children:
        child.start()
    while any(child.is_alive() for child in children):
        state = load_snapshot(tmp_path)
        assert bool((state["x"] == state["number"]).all())
    assert [child.exitcode for child in children] == [0, 0]
    assert len(snapshots(tmp_path)) == 1


def test_temporary_files_do_not_follow_planted_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if their names could be guessed."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "saved"
    folder.mkdir()
    monkeypatch.setattr("uuid.uuid4", lambda: type("Known", (), {"hex": "a" * 32}))
    (folder / f".CURRENT-{'a' * 32}").symlink_to(victim)
    save_snapshot(folder, make_state())  # it is cleared away
    (folder / f"snapshot-{'a' * 32}").rename(folder / "elsewhere")
    (folder / f"snapshot-{'a' * 32}").symlink_to(tmp_path)
    with pytest.raises(OSError, match="cannot save"):
        save_snapshot(folder, make_state())
    assert victim.read_text() == "mine"
