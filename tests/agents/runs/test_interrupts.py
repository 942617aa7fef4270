"""Ctrl-C waits for a good moment; a second one does not."""

from __future__ import annotations

import signal
import threading

import pytest

from agents.runs.interrupts import deferred_interrupt


def test_ctrl_c_is_told_when_asked_for() -> None:
    with deferred_interrupt() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_second_ctrl_c_strikes_at_once() -> None:
    with deferred_interrupt():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_nothing_changes_in_another_thread() -> None:
    before = signal.getsignal(signal.SIGINT)
    found: list[object] = []

    def work() -> None:
        with deferred_interrupt() as interrupted:
            found.extend([interrupted(), signal.getsignal(signal.SIGINT)])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False, before]
