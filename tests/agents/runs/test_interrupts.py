"""Ctrl-C and SIGTERM wait for a good moment; a second one does not."""

from __future__ import annotations

import signal
import threading

import pytest

from agents.runs.interrupts import Interrupted, deferred_interrupt

both_signals = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@both_signals
def test_a_signal_is_told_when_asked_for(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with deferred_interrupt() as interrupted:
        assert interrupted() == 0
        signal.raise_signal(number)
        assert interrupted() == number
    after = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    assert after == before


@both_signals
def test_a_second_signal_strikes_at_once(number: signal.Signals) -> None:
    with deferred_interrupt():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Interrupted) as struck:
            signal.raise_signal(number)
    assert struck.value.number == number
    assert str(struck.value) == number.name  # in the middle of a step: not saved


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
