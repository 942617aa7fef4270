"""Every public name is documented with an example; the doctests run the examples."""

import ast
import inspect
from pathlib import Path

import pytest

import info_replay

MODULES = sorted(Path(info_replay.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("name", info_replay.__all__)
def test_a_public_name_has_an_example(name: str) -> None:
    documentation = inspect.getdoc(getattr(info_replay, name))
    assert documentation is not None
    assert ">>>" in documentation


def imports(path: Path) -> set[str]:
    """All that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_the_memory_imports_neither_streams_nor_agents() -> None:
    assert len(MODULES) > 20
    roots = {name.split(".")[0] for path in MODULES for name in imports(path)}
    assert not roots & {"continual_envs", "agents", "benchmarks", "tests"}


def test_the_model_knows_nothing_of_torchrl() -> None:
    model = [path for path in MODULES if path.parent.name in ("model", "coreset")]
    names = {name for path in model for name in imports(path)}
    assert model
    assert not {name for name in names if name.startswith(("torchrl", "tensordict"))}
    assert not {name for name in names if name.startswith("info_replay.storage")}
