"""A saved memory that was damaged or tampered with is refused, or loads as it was.

Nothing is assumed about the files but that one named ``CURRENT`` points to the others.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from info_replay import SelectiveReplayBuffer

from .buffers import assert_same, fuzzed_buffer, image, without_generations
from .items import make_items

POINTER = "CURRENT"
#: Policy, storage and sampler of the memories that are saved.
KINDS = [
    ("infors", "dense", "uniform"),
    ("recent-rs", "memory-mapped", "without replacement"),
    ("rs", "dense", "prioritized"),
]
for_each_kind = pytest.mark.parametrize("kind", KINDS, ids="-".join)
#: Bits that are flipped in a file, all of them if it is small.
FLIPS, SMALL = 24, 16

Kind = tuple[str, str, str]


def make(kind: Kind, first: int) -> SelectiveReplayBuffer:
    """A memory with items from some number on; one that is loaded into has others."""
    buffer = fuzzed_buffer(*kind, prefetch=2 if kind == KINDS[0] else None)
    for batch in make_items(range(first, first + 40)).split(8):
        buffer.extend(batch)
        buffer.sample()
    return buffer


#: Memories that are as :func:`_target` made them.
_unchanged: dict[Kind, tuple[SelectiveReplayBuffer, dict[str, Any]]] = {}


def _target(kind: Kind) -> tuple[SelectiveReplayBuffer, dict[str, Any]]:
    """A memory to load into, and what it is before."""
    if kind in _unchanged:
        return _unchanged.pop(kind)
    buffer = make(kind, 1000)
    return buffer, image(buffer)


class Saved:
    """A saved memory, and copies of its folder to be damaged."""

    def __init__(self, kind: Kind, folder: Path, first: int = 0) -> None:
        self.kind = kind
        self.folder = folder / "saved"
        self.copy = folder / "copy"
        buffer = make(kind, first)
        buffer.dumps(self.folder)
        self.image = without_generations(image(buffer))

    def files(self) -> list[Path]:
        """All files, relative to the folder."""
        return sorted(
            path.relative_to(self.folder)
            for path in self.folder.rglob("*")
            if path.is_file()
        )

    def damaged(self, damage: Callable[[Path], object]) -> None:
        """A damaged copy is refused with one line and no trace, or loads as it was."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.folder, self.copy)
        damage(self.copy)
        buffer, before = _target(self.kind)
        try:
            buffer.loads(self.copy)
        except (ValueError, OSError) as error:
            message = str(error)
        else:
            assert_same(self.image, without_generations(image(buffer)))
            return
        assert str(self.copy) in message or any(
            part in message for path in self.files() for part in path.parts
        ), f"the message does not name the file: {message}"
        assert "\n" not in message.strip(), f"several lines: {message}"
        assert_same(before, image(buffer))
        _unchanged[self.kind] = buffer, before


@pytest.fixture
def saved(kind: Kind, tmp_path: Path) -> Saved:
    return Saved(kind, tmp_path)


def test_an_undamaged_save_loads(tmp_path: Path) -> None:
    for kind in KINDS:
        saved = Saved(kind, tmp_path / kind[0])
        twin = make(kind, 500)
        twin.loads(saved.folder)
        assert_same(saved.image, without_generations(image(twin)))


# -- damage ---------------------------------------------------------------------------


def rewriting(
    file: Path, change: Callable[[bytearray], bytes | bytearray]
) -> Callable[[Path], object]:
    """Replace the content of a file."""

    def damage(folder: Path) -> None:
        content = bytearray((folder / file).read_bytes())
        (folder / file).write_bytes(change(content))

    return damage


def flipping(bit: int) -> Callable[[bytearray], bytearray]:
    def flip(content: bytearray) -> bytearray:
        content[bit // 8] ^= 1 << bit % 8
        return content

    return flip


def bits_of(size: int, chance: random.Random) -> Iterator[int]:
    """The first and the last bits of a file and some between, or all of a few."""
    bits = range(8 * size)
    if size <= SMALL:
        yield from bits
    else:
        yield from {*bits[:3], *bits[-3:], *chance.sample(bits, FLIPS - 6)}


@for_each_kind
def test_a_flipped_bit_is_noticed(saved: Saved) -> None:
    chance = random.Random(0)
    for file in saved.files():
        for bit in bits_of((saved.folder / file).stat().st_size, chance):
            saved.damaged(rewriting(file, flipping(bit)))


DAMAGES: dict[str, Callable[[bytearray], bytes | bytearray]] = {
    "emptied": lambda content: b"",
    "cut by a byte": lambda content: content[:-1],
    "cut by half": lambda content: content[: len(content) // 2],
    "a byte longer": lambda content: content + b"\0",
    "twice as long": lambda content: content + content,
    "zeros": lambda content: bytes(len(content)),
    "garbled": lambda content: random.Random(1).randbytes(len(content)),
    "other text": lambda content: b"null",
    "other JSON": lambda content: b'{"a": [1, 2, 3]}',
    "a long number": lambda content: b"9" * 5000,
    "nested without end": lambda content: b"[" * 100_000,
}


@pytest.mark.parametrize("how", DAMAGES)
@for_each_kind
def test_a_rewritten_file_is_noticed(saved: Saved, how: str) -> None:
    for file in saved.files():
        saved.damaged(rewriting(file, DAMAGES[how]))


@for_each_kind
def test_a_missing_file_is_noticed(saved: Saved) -> None:
    for file in saved.files():
        saved.damaged(lambda folder, file=file: (folder / file).unlink())
    for each in saved.folder.iterdir():
        if each.is_dir():
            saved.damaged(lambda folder, name=each.name: shutil.rmtree(folder / name))


@for_each_kind
def test_a_folder_in_place_of_a_file_is_noticed(saved: Saved) -> None:
    for file in saved.files():

        def damage(folder: Path, file: Path = file) -> None:
            (folder / file).unlink()
            (folder / file).mkdir()

        saved.damaged(damage)


@for_each_kind
def test_files_of_two_saves_are_not_mixed(saved: Saved, tmp_path: Path) -> None:
    other = Saved(saved.kind, tmp_path / "other", first=70)
    for mine, theirs in zip(saved.files(), other.files(), strict=True):
        content = (other.folder / theirs).read_bytes()
        saved.damaged(rewriting(mine, lambda _, content=content: content))


# -- tampering ------------------------------------------------------------------------


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.sentinel,)


#: Names that pickles have had in saves of TorchRL's and ours.
PICKLES = (
    "prefetch.pkl",
    "prefetch_state.pkl",
    "writer.pt",
    "writer/writer.pt",
    "sampler.pt",
    "sampler/sampler.pkl",
    "storage.pkl",
    "storage/storage.pkl",
    "storage/other.pickle",
    "transform.t",
    "transforms.pkl",
    "state.pt",
)


@pytest.mark.parametrize("protocol", ["pickle", "torch"])
@for_each_kind
def test_no_code_in_a_save_is_run(saved: Saved, protocol: str, tmp_path: Path) -> None:
    sentinel = tmp_path / "ran"
    trap = tmp_path / "trap"
    if protocol == "pickle":
        trap.write_bytes(pickle.dumps(Trap(sentinel)))
    else:
        torch.save(Trap(sentinel), trap)
    folders = {path.parent for path in saved.files()} - {Path()} | {Path()}
    planted = {folder / name for folder in folders for name in PICKLES}

    def plant(folder: Path, name: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(trap, folder / name)

    for name in sorted(planted | {*saved.files()}):
        saved.damaged(lambda folder, name=name: plant(folder, name))
        assert not sentinel.exists(), f"{name} was run"


@for_each_kind
def test_links_are_not_followed_out_of_a_save(saved: Saved, tmp_path: Path) -> None:
    other = Saved(saved.kind, tmp_path / "other", first=70)
    for mine, theirs in zip(saved.files(), other.files(), strict=True):

        def damage(folder: Path, mine: Path = mine, theirs: Path = theirs) -> None:
            (folder / mine).unlink()
            (folder / mine).symlink_to(other.folder / theirs)

        saved.damaged(damage)


@pytest.mark.parametrize(
    "path",
    [
        "{outside}",
        "../other/saved/{name}",
        ".",
        "..",
        "",
        "/",
        "a\0b",
        "\n",
        "x" * 5000,
    ],
)
@for_each_kind
def test_the_pointer_stays_in_its_folder(
    saved: Saved, path: str, tmp_path: Path
) -> None:
    """A whole save elsewhere is not loaded: it need not be of whom one trusts."""
    other = tmp_path / "other" / "saved"
    buffer = make(saved.kind, 70)
    buffer.dumps(other)
    name = next(each.name for each in other.iterdir() if each.is_dir())
    text = path.format(outside=other / name, name=name)
    saved.damaged(rewriting(Path(POINTER), lambda _: os.fsencode(text)))
