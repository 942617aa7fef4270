"""Sweeps on Ray: the same table as here, also if a node dies; each with its own Ray.

``make test-ray`` runs these.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

from agents.cli import main
from agents.runs.folder import RunError
from agents.supervised.callbacks import Callback, Run
from agents.sweeps import Job, make_jobs, run_sweep
from agents.sweeps.local_pool import LocalPool
from agents.sweeps.ray_pool import RayPool
from agents.sweeps.ray_task import Refusal, remove_leftovers, run_on_node
from agents.sweeps.results import code_version
from agents.sweeps.worker import Failure
from tests.agents.q_learning.test_ray_faults import (
    _ENVIRONMENT,
    find_processes,
    sessions,
    wait_for,
)

pytestmark = pytest.mark.ray

GRID = {"env": "SplitDigits", "policy": "rs,infors", "epochs": 1, "seed": "0-1"}
_HERE = "tests.agents.sweeps.test_ray_pool"


class Crash(Callback):
    """Kills the process of a run."""

    def on_step(self, experiment: Run, reward: float) -> None:
        print("about to crash", flush=True)
        os._exit(3)


class Hang(Callback):
    """Tells in a file which node it is on, and never ends on one of them.

    On the other one, the first process gets the signal that a node's end brings.
    """

    def on_step(self, experiment: Run, reward: float) -> None:
        folder = Path(os.environ["TEST_SWEEP_NODES"])
        node: str = ray.get_runtime_context().get_node_id()
        (folder / f"{node}-{experiment.config.seed}").touch()
        while (folder / f"{node}-hangs").exists():
            time.sleep(0.1)
        signaled = folder / "signaled"
        if not signaled.exists():
            signaled.touch()
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(autouse=True)
def _quiet_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in _ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ray.shutdown()  # of another module's
    yield
    ray.shutdown()


def jobs(**settings: Any) -> list[Job]:
    return make_jobs({**GRID, **settings})


def table(answers: Iterator[tuple[Job, Any]]) -> dict[str, Any]:
    """Rows by run, without their times."""
    found = {job.key: answer for job, answer in answers}
    assert not [each for each in found.values() if isinstance(each, Failure)]
    return {key: {**row, "seconds": None} for key, row in found.items()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with contextlib.closing(LocalPool(tmp_path_factory.mktemp("local"), 2)) as pool:
        return table(pool.run(jobs()))


def files_of_runs() -> set[Path]:
    return {*Path(tempfile.gettempdir()).glob("info-replay-sweep-*")}


class TestASweepOnRay:
    def test_gives_the_rows_of_one_without_and_leaves_nothing_behind(
        self, tmp_path: Path, expected: dict[str, Any]
    ) -> None:
        before, files = sessions(os.getpid()), files_of_runs()  # of other sweeps
        assert table(RayPool(tmp_path, 2).run(jobs())) == expected
        assert not ray.is_initialized()
        (session,) = sessions(os.getpid()) - before
        # Ray leaves its log open in the process that it was started from.
        wait_for(lambda: find_processes(session) <= {os.getpid()}, 15.0)
        assert files_of_runs() <= files

    def test_without_runs_starts_no_ray(self, tmp_path: Path) -> None:
        before = sessions(os.getpid())
        assert [*RayPool(tmp_path).run([])] == []
        assert sessions(os.getpid()) == before

    def test_cannot_keep_folders_of_runs(self, tmp_path: Path) -> None:
        folder = tmp_path / "sweep"
        with pytest.raises(RunError, match="cannot be kept"):
            run_sweep(jobs(), folder, make_pool=RayPool, keep=True)
        assert not folder.exists()

    def test_names_the_cluster_that_does_not_answer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
        with pytest.raises(RunError, match=r"Ray.*127\.0\.0\.1:1") as caught:
            [*RayPool(tmp_path).run(jobs())]
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        "command",
        [
            "sweep --engine ray --env SplitDigits --policy rs",
            "sweep --engine ray --env SplitDigits --policy rs --keep",
            "tune --engine ray --env SplitDigits --policy rs --grid mnist",
        ],
    )
    def test_that_cannot_begin_leaves_no_folder_and_shows_no_bar(
        self,
        command: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
        out = tmp_path / "out"
        assert main([*command.split(), "--out", str(out)]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert [line for line in lines if "folder: " not in line] == lines[-1:]
        assert re.search(r"127\.0\.0\.1:1|--keep", lines[-1])
        assert not out.exists()


class TestARunThatFails:
    def test_is_reported_with_its_log_and_the_others_finish(
        self, tmp_path: Path, expected: dict[str, Any]
    ) -> None:
        files = files_of_runs()
        good, crashing, wrong, *_ = jobs()
        crashing = dataclasses.replace(
            crashing,
            config=dataclasses.replace(crashing.config, callback=f"{_HERE}:Crash"),
        )
        wrong = dataclasses.replace(
            wrong,
            config=dataclasses.replace(wrong.config, callback=f"{_HERE}:Missing"),
        )
        found = {
            job.key: answer
            for job, answer in RayPool(tmp_path).run([crashing, wrong, good])
        }
        assert len(found) == 3
        died, failed = found[crashing.key], found[wrong.key]
        assert isinstance(died, Failure)
        assert "exit code 3" in died.reason
        assert "about to crash" in died.log
        assert isinstance(failed, Failure)
        assert "Missing" in failed.reason
        assert "Traceback" in failed.log
        assert files_of_runs() <= files  # of other sweeps
        row = found[good.key]
        assert {**row, "seconds": None} == expected[good.key]


class TestTwoNodes:
    def test_give_the_same_rows_if_one_dies_in_the_middle(
        self,
        tmp_path: Path,
        expected: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setenv("TEST_SWEEP_NODES", str(tmp_path))  # nodes inherit it
        cluster = Cluster()
        try:
            cluster.add_node(num_cpus=1, include_dashboard=False)
            victim = cluster.add_node(num_cpus=1)
            (tmp_path / f"{victim.node_id}-hangs").touch()
            ray.init(address=cluster.address, log_to_driver=False)
            cluster.wait_for_nodes()

            def kill() -> None:
                wait_for(lambda: [*tmp_path.glob(f"{victim.node_id}-[01]")])
                cluster.remove_node(victim, allow_graceful=False)

            killer = threading.Thread(target=kill)
            killer.start()
            answers = RayPool(tmp_path).run(jobs(callback=f"{_HERE}:Hang"))
            assert table(answers) == expected
            killer.join()
            # The new one may have been sent to the dead node before Ray knew of that.
            assert caplog.text.count("a node of Ray has ended") >= 2
            assert ray.is_initialized()  # it is not the sweep's
        finally:
            ray.shutdown()
            cluster.shutdown()
            remove_leftovers()


def test_a_node_with_another_version_is_refused() -> None:
    version = code_version()
    other = {**version, "versions": {**version["versions"], "torch": "0.1"}}
    answer = run_on_node(jobs()[0], other, os.getcwd(), contained=False)
    assert isinstance(answer, Refusal)
    assert "the sweep has 0.1" in answer.reason
