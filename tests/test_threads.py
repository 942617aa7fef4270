"""While a memory computes, NumPy and SciPy leave the other cores to torch."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import threadpoolctl
import torch
from tensordict import TensorDict
from torch import Tensor

from info_replay import Criterion, SelectiveReplayBuffer, make_replay_buffer
from info_replay.threads import ONE_BLAS_THREAD


def blas_threads() -> set[int]:
    controller = threadpoolctl.ThreadpoolController().select(user_api="blas")
    return {library.num_threads for library in controller.lib_controllers}


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
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


class Watching(Criterion):
    """Notes the threads with which items are scored, and fails if it is told to."""

    def __init__(self) -> None:
        self.seen: list[set[int]] = []
        self.fails = False

    def __call__(self, leverage: Tensor, squared_error: Tensor, **_: object) -> Tensor:
        if self.fails:
            raise RuntimeError("no")
        self.seen.append(blas_threads())
        return leverage


def full_memory(width: int) -> tuple[SelectiveReplayBuffer, Watching]:
    criterion = Watching()
    buffer = make_replay_buffer("infors", 20, criterion=criterion, recent=2)
    buffer.extend(items(30, width))
    criterion.seen.clear()
    return buffer, criterion


def items(count: int, width: int) -> TensorDict:
    entries = {"feature": torch.randn(count, width), "target": torch.randn(count)}
    return TensorDict(entries, batch_size=[count])


@pytest.mark.parametrize(("width", "threads"), [(6, 1), (1025, 2)])
def test_wide_features_are_worth_all_threads_and_others_one(
    width: int, threads: int
) -> None:
    buffer, criterion = full_memory(width)
    buffer.extend(items(10, width))
    assert set.union(*criterion.seen) == {threads}
    assert blas_threads() == {2}


def test_threads_come_back_after_a_failure() -> None:
    buffer, criterion = full_memory(6)
    criterion.fails = True
    with pytest.raises(RuntimeError, match="no"):
        buffer.extend(items(10, 6))
    assert blas_threads() == {2}
