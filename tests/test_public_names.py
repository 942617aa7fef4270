"""Every public name is documented with an example; the doctests run the examples."""

import inspect

import pytest

import info_replay


@pytest.mark.parametrize("name", info_replay.__all__)
def test_a_public_name_has_an_example(name: str) -> None:
    documentation = inspect.getdoc(getattr(info_replay, name))
    assert documentation is not None
    assert ">>>" in documentation


def test_the_memory_imports_neither_streams_nor_agents() -> None:
    modules = [
        module
        for _, module in inspect.getmembers(info_replay, inspect.ismodule)
        if module.__name__.startswith("info_replay")
    ]
    assert modules
    for module in modules:
        source = inspect.getsource(module)
        assert "continual_envs" not in source
        assert "agents" not in source
