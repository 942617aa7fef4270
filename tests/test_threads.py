"""While a memory thinks, NumPy and SciPy leave the other cores to torch."""

from __future__ import annotations

import threading

import pytest
import threadpoolctl
import torch

from info_replay import SelectiveReplayBuffer
from info_replay.threads import ONE_BLAS_THREAD
from info_replay.writers.info_reservoir import InfoReservoirWriter
from tests.buffer.helpers import make_buffer, make_stream


def blas_threads() -> set[int]:
    controller = threadpoolctl.ThreadpoolController().select(user_api="blas")
    return {library.num_threads for library in controller.lib_controllers}


@pytest.fixture(autouse=True)
def _two_threads() -> object:
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        assert blas_threads() == {2}
        yield


def test_one_thread_while_it_is_entered() -> None:
    before = torch.get_num_threads()
    with ONE_BLAS_THREAD:
        assert blas_threads() == {1}
        with ONE_BLAS_THREAD:
            assert blas_threads() == {1}
        assert blas_threads() == {1}
        assert torch.get_num_threads() == before
    assert blas_threads() == {2}


def test_all_come_back_whoever_leaves_first() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with ONE_BLAS_THREAD:
            entered.set()
            leave.wait(10)

    for main_first in (True, False):
        entered.clear()
        leave.clear()
        thread = threading.Thread(target=other)
        with ONE_BLAS_THREAD:
            thread.start()
            assert entered.wait(10)
            if not main_first:
                leave.set()
                thread.join()
        leave.set()
        thread.join()
        assert blas_threads() == {2}


def watch(monkeypatch: pytest.MonkeyPatch, *, fails: bool = False) -> list[set[int]]:
    """Note the threads with which items are selected."""
    seen: list[set[int]] = []
    select = InfoReservoirWriter._select

    def watched(*args: object) -> object:
        seen.append(blas_threads())
        if fails:
            raise RuntimeError("no")
        return select(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(InfoReservoirWriter, "_select", watched)
    return seen


def full_memory(width: int) -> SelectiveReplayBuffer:
    buffer = make_buffer("infors", 20)
    buffer.extend(make_stream(20, width=width))
    return buffer


def test_items_are_selected_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = full_memory(6)
    seen = watch(monkeypatch)
    buffer.extend(make_stream(10, seed=1, width=6))
    assert seen == [{1}]
    assert blas_threads() == {2}


def test_wide_features_are_worth_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = full_memory(1025)
    seen = watch(monkeypatch)
    buffer.extend(make_stream(10, seed=1, width=1025))
    assert seen == [{2}]


def test_threads_come_back_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = full_memory(6)
    watch(monkeypatch, fails=True)
    with pytest.raises(RuntimeError, match="no"):
        buffer.extend(make_stream(10, seed=1, width=6))
    assert blas_threads() == {2}
