"""Random operations until the time is over or one finds something: ``make fuzz``."""

from __future__ import annotations

import argparse
import itertools
import logging
import secrets
import sys
import time
import warnings

import torch
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from ..buffer.helpers import POLICIES
from .machine import MemoryMachine

#: Of one run of hypothesis; the time is looked at between two of them.
SETTINGS = settings(
    max_examples=20,
    stateful_step_count=100,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=[*HealthCheck],
)


def fuzz(minutes: float, start: int) -> None:
    """Try policy after policy, each with the next seed; raises what is found."""
    operations = itertools.count()
    began = shown = time.monotonic()
    for number in itertools.count(start):
        policy = POLICIES[number % len(POLICIES)]

        @seed(number)
        def machine(policy: str = policy) -> MemoryMachine:
            return MemoryMachine(policy, lambda: next(operations))

        try:
            run_state_machine_as_test(machine, settings=SETTINGS)
        except Exception:
            again = f"python -m tests.fuzz --seed {number}"
            print(f"found with policy {policy!r}; again: {again}", flush=True)
            raise
        now = time.monotonic()
        over = now - began >= 60 * minutes
        if over or now - shown >= 30:
            shown = now
            done = next(operations)
            print(f"{(now - began) / 60:.1f} min: {done:,} operations", flush=True)
        if over:
            return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, help="the first one, by default new")
    options = parser.parse_args()
    first = secrets.randbelow(2**40) if options.seed is None else options.seed
    print(f"seed {first}", flush=True)
    torch.set_num_threads(1)
    logging.getLogger("torchrl").setLevel(logging.WARNING)
    warnings.simplefilter("ignore")
    try:
        fuzz(options.minutes, first)
    except KeyboardInterrupt:
        sys.exit(130)
