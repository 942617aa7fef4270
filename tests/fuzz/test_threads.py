"""Threads that extend, sample, write back and empty one memory at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from .buffers import fuzzed_buffer
from .items import assert_whole, make_items
from .model import Model

#: That each test takes.
SECONDS = 0.5


def run(*tasks: Callable[[int], None]) -> list[BaseException]:
    """Repeat each task in a thread of its own for a while; gives what they raised."""
    errors: list[BaseException] = []
    end = time.monotonic() + SECONDS

    def repeat(task: Callable[[int], None]) -> None:
        turn = 0
        try:
            while time.monotonic() < end and not errors:
                task(turn)
                turn += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "two threads wait for each other"
    return errors


@pytest.mark.parametrize("prefetch", [None, 2], ids=["", "prefetched"])
@pytest.mark.parametrize("empties", [False, True], ids=["kept", "emptied"])
@pytest.mark.parametrize(
    ("policy", "sampler"),
    [
        ("rs", "prioritized"),
        ("cbrs", "without replacement"),
        ("infors", "uniform"),
        ("infors", "prioritized"),
        ("recent-infors", "without replacement"),
        ("fss-clust", "uniform"),
    ],
)
def test_threads_leave_whole_items_and_a_right_posterior(
    policy: str, sampler: str, empties: bool, prefetch: int | None
) -> None:
    buffer = fuzzed_buffer(policy, sampler=sampler, prefetch=prefetch)
    buffer.extend(make_items(range(100)))

    def extend(turn: int, first: int) -> None:
        start = first + 8 * turn
        buffer.extend(make_items(range(start, start + 8)))

    def replay(turn: int) -> None:
        try:
            rows = buffer.sample()
        except RuntimeError as error:
            if "empty" not in str(error):
                raise
            return
        assert_whole(rows)
        rows["feature"] = 0.9 * rows["feature"] + 0.1
        rows["td_error"] = rows["feature"].norm(dim=1)
        buffer.update_tensordict_priority(rows)

    def empty(turn: int) -> None:
        time.sleep(0.01)
        buffer.empty()

    errors = run(
        lambda turn: extend(turn, 10_000),
        lambda turn: extend(turn, 20_000_000),
        replay,
        replay,
        lambda turn: buffer.state_dict(),
        *([empty] if empties else []),
    )
    if errors:
        raise errors[0]
    buffer.extend(make_items(range(200, 300)))
    model = Model(policy, buffer.capacity, offered=buffer.write_count)
    for slot, item in enumerate(buffer[:]):
        model.put(slot, item)
    model.check(buffer)
