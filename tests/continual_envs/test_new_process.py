"""In a new process: an id that names the package, and a stream that goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from continual_envs import make_stream
from tests.continual_envs.helpers import digest, rest, still

REPOSITORY = Path(__file__).parents[2]

#: Benchmark, options, seed and steps before it is saved.
CASES: list[tuple[str, dict[str, Any], int | None, int]] = [
    ("SplitDigits", {"batch_size": 64, "imbalance": 3, "validation": True}, 3, 10),
    ("SplitDigits", {"epochs": 2, "expose_task_id": True}, None, 777),
    ("PermutedDigits", {"batch_size": 333}, 5, 40),
    ("DriftDigits", {"batch_size": 100, "width": 0.2, "imbalanced_task": 4}, 6, 0),
    ("SplitDiabetes", {"batch_size": 16, "imbalance": 2}, 2**31 - 1, 5),
]

_CODE = """
import json, sys
import gymnasium
assert "continual_envs" not in sys.modules
made = gymnasium.make("continual_envs:continual_envs/SplitDigits-v0", batch_size=5)
observation, _ = made.reset(seed=2)
answers = {"first": observation.tobytes().hex(), "rest": []}
from continual_envs import make_stream
from tests.continual_envs.helpers import digest, rest
for name, options, state in json.load(sys.stdin):
    env = make_stream(name, **options)
    seen = env.load_state_dict(state)
    answers["rest"].append([digest(seen), rest(env, *seen)])
json.dump(answers, sys.stdout)
"""


@pytest.fixture(scope="module")
def expected_and_found() -> tuple[list[Any], dict[str, Any]]:
    """What is to come here, and what a new process answers."""
    questions, expected = [], []
    for name, options, seed, steps in CASES:
        env = make_stream(name, **options)
        observation, info = env.reset(seed=seed)
        for _ in range(steps):
            observation, _, _, _, info = env.step(still(env))
        questions.append((name, options, env.state_dict()))
        expected.append([digest((observation, info)), rest(env, observation, info)])
    found = subprocess.run(
        [sys.executable, "-c", _CODE],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    return expected, json.loads(found.stdout)


def test_no_import_is_needed_if_the_id_names_the_package(
    expected_and_found: tuple[list[Any], dict[str, Any]],
) -> None:
    _, found = expected_and_found
    observation, _ = make_stream("SplitDigits", batch_size=5).reset(seed=2)
    assert found["first"] == observation.tobytes().hex()


@pytest.mark.parametrize("case", range(len(CASES)), ids=[case[0] for case in CASES])
def test_a_saved_stream_goes_on_bit_identically(
    expected_and_found: tuple[list[Any], dict[str, Any]], case: int
) -> None:
    expected, found = expected_and_found
    assert found["rest"][case] == expected[case]
