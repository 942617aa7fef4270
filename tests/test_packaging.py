"""The package brings what it imports, no more, and imports what is heavy late."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
EXTRAS = PROJECT["optional-dependencies"]
PACKAGES = {"info_replay", "continual_envs", "agents"}

#: Distributions that are not called like what is imported from them.
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}


def requirements(*extras: str) -> Iterator[Requirement]:
    """What an installation with these extras requires, of other projects."""
    for text in [*PROJECT["dependencies"], *(r for e in extras for r in EXTRAS[e])]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["name"]:
            yield from requirements(*requirement.extras)
        else:
            yield requirement


def names(*extras: str) -> set[str]:
    return {canonicalize_name(each.name) for each in requirements(*extras)}


def imported_modules(source: str) -> Iterator[str]:
    """What a module imports, at its top or in a function; not from its own package."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def third_parties(package: str) -> set[str]:
    """The distributions that the modules of a package import."""
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths
    modules = {m for path in paths for m in imported_modules(path.read_text())}
    roots = {module.partition(".")[0] for module in modules}
    roots -= {*sys.stdlib_module_names, *PACKAGES}
    return {canonicalize_name(DISTRIBUTIONS.get(root, root)) for root in roots}


def test_the_core_requires_what_the_memory_imports_and_no_more() -> None:
    assert third_parties("info_replay") == names()


@pytest.mark.parametrize(
    ("package", "extra"), [("continual_envs", "streams"), ("agents", "all")]
)
def test_an_extra_brings_what_its_package_imports(package: str, extra: str) -> None:
    assert third_parties(package) - names(extra) == set()


def test_only_engines_and_sweeps_import_ray() -> None:
    for path in (ROOT / "agents").rglob("*.py"):
        if "ray" in {m.partition(".")[0] for m in imported_modules(path.read_text())}:
            assert path.parent.name in ("q_learning", "runs", "sweeps")


def test_all_is_every_extra_of_users() -> None:
    assert names("all") == names("streams", "train", "ray", "tune")


def test_every_requirement_is_pinned_within_its_bounds() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    for requirement in requirements(*EXTRAS):
        assert requirement.specifier.contains(pins[requirement.name]), requirement


def test_the_page_of_versions_has_the_bounds() -> None:
    page = (ROOT / "docs" / "versions.md").read_text()
    for bound in (*PROJECT["dependencies"][:3], PROJECT["requires-python"]):
        assert f"`{bound}`" in page


def test_the_citation_has_the_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall("^version: (.*)$", citation, re.M) == [PROJECT["version"]]


def test_importing_the_memory_imports_no_extra() -> None:
    """Of those that are installed here, torch and TorchRL themselves import two.

    ``torch.hub`` imports tqdm and ``torchrl.data`` Ray, each if there is one.
    """
    code = "import sys, info_replay; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = {module.partition(".")[0] for module in done.stdout.split()}
    assert "info_replay" in loaded
    heavy = "torchvision sklearn matplotlib gymnasium PIL tensorboard datasets pandas"
    assert loaded & {*heavy.split()} == set()
    assert loaded & PACKAGES == {"info_replay"}


def test_the_wheel_has_every_file_of_the_packages() -> None:
    data = SETTINGS["tool"]["setuptools"]["package-data"]
    declared = {
        path
        for package, patterns in data.items()
        for folder in ([*PACKAGES] if package == "*" else [package.replace(".", "/")])
        for pattern in patterns
        for path in (ROOT / folder).glob(pattern)
    }
    there = {
        path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert there == declared
