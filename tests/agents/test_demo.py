"""The demonstration compares four memories on a balanced and an imbalanced stream."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from agents import demo

IMBALANCES = demo.IMBALANCES  # as they are, before they are made short
PICTURES = {"tasks.png", "memory_classes.png", "memory_images.png"}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the streams short."""
    monkeypatch.setattr(demo, "EPOCHS", 1)
    monkeypatch.setattr(demo, "IMBALANCES", (1, 3))


def test_every_case_gives_an_accuracy_and_pictures_are_drawn(tmp_path: Path) -> None:
    (tmp_path / "rs").mkdir()
    (tmp_path / "rs" / "config.json").write_text("of the last time")
    found = demo.run_all(range(1), pictures=tmp_path)
    assert set(found) == {(policy, r) for policy in demo.POLICIES for r in (1, 3)}
    for accuracies in found.values():
        assert len(accuracies) == 1
        assert 0.1 < accuracies[0] <= 1
    for policy in demo.POLICIES:
        names = {path.name for path in (tmp_path / policy).glob("*.png")}
        assert names == PICTURES
        for name in PICTURES:
            with Image.open(tmp_path / policy / name) as image:
                image.verify()


def test_the_demonstration_is_about_imbalance_1_and_30() -> None:
    assert IMBALANCES == (1, 30)
    assert demo.POLICIES == ("auto", "rs", "cbrs", "infors")
    assert len(demo.SEEDS) > 1


def test_the_table_has_means_and_standard_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {
        ("rs", 1): [0.5, 0.7],
        ("rs", 3): [0.25, 0.25],
        ("infors", 1): [0.8, 0.6],
        ("infors", 3): [0.4, 0.6],
    }
    monkeypatch.setattr(demo, "POLICIES", ("rs", "infors"))
    monkeypatch.setattr(demo, "run_all", lambda: values)
    demo.main()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["policy", "imbalance", "1", "imbalance", "3"] in lines
    assert ["rs", "60.0", "±", "10.0", "25.0", "±", "0.0"] in lines
    assert ["infors", "70.0", "±", "10.0", "50.0", "±", "10.0"] in lines
