"""YAML that people write: what it says, or one line on what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.sweeps.yaml_file import read_yaml


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a: 1\nb: {a: 2}", {"a": 1, "b": {"a": 2}}),
        ("- {a: 1}\n- {a: 2}", [{"a": 1}, {"a": 2}]),
        # What is merged may be said again.
        (
            "a: &a {x: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b, x: 3}",
            {"a": {"x": 1}, "b": {"x": 2}, "c": {"x": 3}},
        ),
        ("", None),
    ],
)
def test_a_file_is_read(content: str, expected: object, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(content)
    assert read_yaml(tmp_path / "file.yaml") == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: 2\na: 3", "'a' is there twice, again in line 3"),
        (b"m:\n  RS: {}\n  RS: {}", "'RS' is there twice, again in line 3"),
        (b"m: {1: a, 1: b}", "'1' is there twice, again in line 1"),
        (b"a: [1", "file.yaml is not YAML: "),
        (b"{[1]: 2}", "file.yaml is not YAML: .*unhashable"),
        (b"\xff\xfe\xfa", "file.yaml is not YAML: "),
        (b"[" * 5000, "file.yaml is not YAML: "),
        (b"a: 2020-13-45", "file.yaml: month must be in 1..12"),
    ],
)
def test_a_file_that_is_wrong_gets_one_line(
    content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "file.yaml").write_bytes(content)
    with pytest.raises(ValueError, match=message) as raised:
        read_yaml(tmp_path / "file.yaml")
    assert "\n" not in str(raised.value)


def test_what_is_not_a_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^there is no file {tmp_path}/none.yaml$"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(ValueError, match=f"^{tmp_path} is a folder: expected a YAML"):
        read_yaml(tmp_path)
