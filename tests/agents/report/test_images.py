"""A page has what memories held along their runs, each item once and within limits."""

from __future__ import annotations

import base64
import io
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from agents.report import images as module
from agents.report.images import memory_images
from agents.report.payload import quantities, to_json
from agents.report.runs import Run, read_runs
from agents.report.sheets import make_sheet
from agents.supervised.snapshots import read_snapshots


def tiles_of(sheet: dict[str, Any]) -> list[NDArray[np.uint8]]:
    """The images of a sheet, cut apart."""
    content = base64.b64decode(sheet["sheet"].partition(",")[2])
    whole = np.asarray(Image.open(io.BytesIO(content)))
    height, width = sheet["height"], sheet["width"]
    assert whole.shape[:2] == (sheet["rows"] * height, sheet["columns"] * width)
    places = [divmod(n, sheet["columns"]) for n in range(len(sheet["labels"]))]
    return [
        whole[y * height : (y + 1) * height, x * width : (x + 1) * width]
        for y, x in places
    ]


def sheet_of(snapshots: Any, *amount: int) -> dict[str, Any]:
    found = make_sheet(snapshots, *amount)
    assert found is not None
    return found


def memory_of(
    numbers: list[int] | range, side: int = 8, channels: int = 1
) -> dict[str, NDArray[Any]]:
    """Different images of bytes, by number; the class is the last digit."""
    shape = (channels, side, side)
    images = [
        np.random.default_rng(n).integers(256, size=shape, dtype=np.uint8)
        for n in numbers
    ]
    return {
        "observation": np.stack(images),
        "target": np.array([number % 10 for number in numbers]),
    }


def test_each_snapshot_of_a_sweep_is_there(sweep: Path) -> None:
    runs = read_runs(sweep)
    found = memory_images(sweep, runs)
    assert {*found} == {run.key for run in runs}
    for run in runs:
        known = quantities(run)
        counts = dict(zip(known["steps"], known["counts"], strict=True))
        sheet = found[run.key]
        steps = [each["step"] for each in sheet["snapshots"]]
        assert steps == known["steps"][1:]  # the memory is empty before the first step
        for each in sheet["snapshots"]:
            labels = [sheet["labels"][item] for item in each["items"]]
            assert labels == sorted(labels)
            assert [labels.count(n) for n in range(10)] == counts[each["step"]]
            assert each["total"] == len(each["items"])


@given(st.lists(st.lists(st.integers(0, 40), min_size=1), min_size=1, max_size=5))
def test_the_sheet_has_each_item_once(memories: list[list[int]]) -> None:
    sheet = sheet_of({n: memory_of(numbers) for n, numbers in enumerate(memories)})
    distinct = {number for numbers in memories for number in numbers}
    tiles = [tile.tobytes() for tile in tiles_of(sheet)]
    expected = memory_of([*distinct])["observation"]
    assert sorted(tiles) == sorted(image.tobytes() for image in expected)
    for numbers, each in zip(memories, sheet["snapshots"], strict=True):
        held = memory_of(numbers)
        wanted = zip(held["observation"], held["target"].tolist(), strict=True)
        shown = [(tiles[n], sheet["labels"][n]) for n in each["items"]]
        assert Counter(shown) == Counter((x.tobytes(), y) for x, y in wanted)


def test_the_same_image_with_another_label_is_another_item() -> None:
    images = np.zeros((2, 1, 8, 8), dtype=np.uint8)
    sheet = sheet_of({1: {"observation": images, "target": np.array([3, 1])}})
    assert sorted(sheet["labels"]) == [1, 3]


@pytest.mark.parametrize("most", [20, 200])
def test_new_items_were_not_in_the_memory_before(most: int) -> None:
    memories = [range(100), range(10, 110), range(10, 110), range(60, 160)]
    steps = {n: memory_of(numbers) for n, numbers in enumerate(memories)}
    sheet = sheet_of(steps, 8, most)
    known = {memory_of([n])["observation"].tobytes(): n for n in range(160)}
    names = [known[tile.tobytes()] for tile in tiles_of(sheet)]
    first, *others = sheet["snapshots"]
    assert first["new"] == []
    for before, each in zip(memories, others, strict=False):
        shown = {names[item] for item in each["items"]}
        assert {names[item] for item in each["new"]} == shown - {*before}
    # What stays in memory is still shown.
    assert others[0]["items"] == others[1]["items"]


@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 60))
def test_limits_hold(steps: int, most_snapshots: int, most_items: int) -> None:
    held = memory_of([*range(0, 500, 10), *range(1, 100, 10), 2])
    sheet = sheet_of(dict.fromkeys(range(steps), held), most_snapshots, most_items)
    shown = [each["step"] for each in sheet["snapshots"]]
    assert len(shown) == min(steps, most_snapshots)
    assert shown == sorted(set(shown))
    assert shown[-1] == steps - 1
    gaps = np.diff(shown)
    assert not len(gaps) or gaps.max() - gaps.min() <= 1
    for each in sheet["snapshots"]:
        labels = Counter(sheet["labels"][item] for item in each["items"])
        assert labels.total() == min(61, most_items)
        assert each["total"] == 61
        # Each class has its share.
        for label, count in ((0, 50), (1, 10), (2, 1)):
            assert abs(labels[label] - count * labels.total() / 61) <= 1.5


def test_large_images_are_thinned_and_colors_stay() -> None:
    sheet = sheet_of({1: memory_of(range(30), side=84, channels=3)})
    assert (sheet["width"], sheet["height"]) == (42, 42)
    assert sheet["sheet"].startswith("data:image/jpeg;base64,")
    assert tiles_of(sheet)[0].shape == (42, 42, 3)


def test_targets_that_are_no_classes_have_no_labels() -> None:
    held = {**memory_of(range(30)), "target": np.linspace(0, 1, 30)}
    sheet = sheet_of({1: held}, 8, 10)
    assert sheet["labels"] is None
    assert len(sheet["snapshots"][0]["items"]) == 10


def test_vectors_are_not_shown() -> None:
    held = {"observation": np.zeros((5, 3)), "target": np.zeros(5)}
    assert make_sheet({1: held}) is None
    assert make_sheet({}) is None


def test_without_snapshots_the_memory_at_the_end_is_shown(
    sweep: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(sweep, tmp_path / "sweep")
    runs = read_runs(folder)
    along = memory_images(folder, runs)
    for run in runs:
        shutil.rmtree(folder / "runs" / run.key / "memories")
    at_the_end = memory_images(folder, runs)
    for run in runs:
        (shown,) = at_the_end[run.key]["snapshots"]
        last = along[run.key]["snapshots"][-1]
        assert shown["step"] == last["step"] == run.result["steps_done"]
        assert shown["total"] == last["total"]
        labels = [
            [each["labels"][n] for n in of_step["items"]]
            for each, of_step in ((at_the_end[run.key], shown), (along[run.key], last))
        ]
        assert labels[0] == labels[1]


def cells(runs: list[Run]) -> set[tuple[str, int]]:
    return {(run.method, run.imbalance) for run in runs}


@pytest.mark.parametrize("share", [0.9, 0.5, 0.3])
def test_all_methods_and_imbalances_come_before_more_seeds(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    runs = read_runs(sweep)
    limit = share * len(to_json(memory_images(sweep, runs)))
    monkeypatch.setattr(module, "_MOST_BYTES", limit)
    found = memory_images(sweep, runs)
    assert sum(len(to_json(each)) for each in found.values()) <= limit
    shown = [run for run in runs if run.key in found]
    assert cells(shown) == cells(runs)
    assert cells([run for run in shown if run.seed == 0]) == cells(runs)


def test_a_page_without_room_shows_all_methods_of_the_first_imbalance(
    sweep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = read_runs(sweep)
    smallest = ((2, 10),)
    monkeypatch.setattr(module, "_AMOUNTS", smallest)
    whole = memory_images(sweep, runs)
    wanted = {run.key for run in runs if run.seed == 0 and run.imbalance == 1}
    limit = sum(len(to_json(whole[key])) for key in wanted)
    monkeypatch.setattr(module, "_MOST_BYTES", limit)
    assert {*memory_images(sweep, runs)} == wanted


def test_snapshots_are_those_of_the_files(sweep: Path) -> None:
    run = read_runs(sweep)[0]
    files = read_snapshots(sweep / "runs" / run.key)
    sheet = memory_images(sweep, [run])[run.key]
    assert [each["step"] for each in sheet["snapshots"]] == [*files]
    before: set[bytes] = set()
    for each, held in zip(sheet["snapshots"], files.values(), strict=True):
        now = {image.tobytes() for image in held["observation"]}
        assert len(each["new"]) == (len(now - before) if before else 0)
        before = now
