"""Engine "ray" when the learner, the head node or a whole node dies.

Each test has a Ray of its own. ``make test-ray`` runs these.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from ray.cluster_utils import Cluster

from agents.q_learning import load_dqn_run
from agents.q_learning.experiment import DQNExperiment
from agents.q_learning.ray_engine import RayEngine
from agents.runs.errors import EngineError
from agents.runs.folder import RunFolder
from tests.agents.q_learning.test_ray_parts import small

pytestmark = pytest.mark.ray

REPOSITORY = Path(__file__).parents[3]
_LONGEST = 90.0
_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "OMP_NUM_THREADS": "1",
}
_OPTIONS = (
    "dqn --engine ray --lengths 400,400 --recent 0 --capacity 60 --num-envs 2 "
    "--frames-per-batch 16 --width 16 --threads 1 --device cpu --learning-starts 100 "
    "--evaluations 4 --episodes 1 --checkpoint-every 0.3 --frames 1000000"
).split()


@pytest.fixture(autouse=True)
def _quiet_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in _ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ray.shutdown()  # of another module's
    yield
    ray.shutdown()


def wait_for(what: Callable[[], object], seconds: float = _LONGEST) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def sessions(starter: int) -> set[str]:
    """Folders of the Rays that a process has started on this machine."""
    return {str(path) for path in Path("/tmp/ray").glob(f"session_2*_{starter}")}


def find_processes(session: str) -> set[int]:
    """Processes that write to files in the folder of a Ray: all of its logs are there.

    Not how the watchdog finds them.
    """
    found = set()
    for file in glob.iglob("/proc/[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # gone
            is_open_to_write = os.lstat(file).st_mode & stat.S_IWUSR
            if is_open_to_write and os.readlink(file).startswith(f"{session}/"):
                found.add(int(file.split("/")[2]))
    return found


def find_program(session: str, name: str) -> list[int]:
    """Processes of a Ray by the end of their program's path."""
    found = []
    for number in find_processes(session):
        with contextlib.suppress(OSError):  # gone
            words = Path(f"/proc/{number}/cmdline").read_text().split("\0")
            if any(word.endswith(name) for word in words if word[:1] != "-"):
                found.append(number)
    return found


def start(words: list[str], **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "agents.cli", *words],
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Driver:
    """``info-replay dqn --engine ray`` in a process of its own, with its Ray."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.folder = folder
        self.process = start(words)
        self.checkpoint = folder / "checkpoint.pt"
        wait_for(lambda: self.saved_frame >= 200 or self.is_over)
        (self.session,) = sessions(self.process.pid)

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    @property
    def saved_frame(self) -> int:
        if not self.checkpoint.exists():
            return -1
        frame: int = torch.load(self.checkpoint, weights_only=True)["frame"]
        return frame

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    folder = tmp_path / "run"
    driver = Driver(folder, [*_OPTIONS, "--out", str(folder)])
    yield driver
    driver.close()
    wait_for(lambda: not find_processes(driver.session))


class TestAKilledLearner:
    def test_leaves_nothing_running_and_goes_on_from_its_checkpoint(
        self, driver: Driver
    ) -> None:
        assert len(find_processes(driver.session)) > 5
        driver.process.send_signal(signal.SIGKILL)
        _, error = driver.process.communicate(timeout=_LONGEST)
        assert f"to go on: info-replay dqn --resume {driver.folder}\n" in error
        wait_for(lambda: not find_processes(driver.session), 15.0)
        saved = torch.load(driver.checkpoint, weights_only=True)
        frame, weights = saved["frame"], saved["engine"]["agent"]["loss"]
        assert frame > 0

        folder = RunFolder(driver.folder)
        settings = folder.read("config.json")
        end = frame + 64
        folder.write("config.json", {**settings, "frames": end})
        config = folder.config(type(small()))
        experiment = DQNExperiment(config, folder, resume=True)
        assert experiment.frame == frame
        loaded = experiment.agent.loss.state_dict()
        assert all(torch.equal(weights[name], loaded[name]) for name in weights)
        engine = experiment.engine
        assert isinstance(engine, RayEngine)
        assert sum(place.frames for place in engine.places) == frame
        seen: list[int] = []

        def progress(frames: int, *_: object) -> None:
            seen.append(engine.ask_memory(lambda memory: int(memory.write_count)))

        before = saved["engine"]["memory"]["_writer"]["counts"]["write_count"]
        result = experiment.run(progress)
        assert seen[0] >= before >= frame  # nothing of the memory is lost
        assert result["frames"] >= end
        assert [place.lives for place in engine.places] == [2, 2]
        run = load_dqn_run(driver.folder)
        assert run.memory is not None
        assert len(run.memory) == 60
        assert run.memory.write_count == result["evaluations"][-1]["write_count"]

    def test_that_is_asked_to_end_saves_and_says_how_to_go_on(
        self, driver: Driver
    ) -> None:
        driver.process.send_signal(signal.SIGTERM)
        _, error = driver.process.communicate(timeout=_LONGEST)
        assert driver.process.returncode == 128 + signal.SIGTERM
        frame = driver.saved_frame
        assert (
            f"interrupted at frame {frame}; to go on: info-replay dqn --resume "
            f"{driver.folder}\n"
        ) in error
        wait_for(lambda: not find_processes(driver.session), 15.0)


def test_a_driver_killed_while_ray_starts_leaves_nothing_running(
    tmp_path: Path,
) -> None:
    process = start([*_OPTIONS, "--out", str(tmp_path / "run")])

    def has_agents() -> bool:  # the raylet starts them, and they stay without it
        return any(
            find_program(session, "runtime_env/agent/main.py")
            for session in sessions(process.pid)
        )

    try:
        wait_for(has_agents)
    finally:
        process.kill()
        process.communicate()
    (session,) = sessions(process.pid)
    wait_for(lambda: not find_processes(session), 15.0)


def test_a_killed_driver_lets_a_cluster_alone_that_it_joined(tmp_path: Path) -> None:
    before = sessions(os.getpid())
    cluster = Cluster()
    try:
        cluster.add_node(num_cpus=4, include_dashboard=False)
        (session,) = sessions(os.getpid()) - before
        processes = find_processes(session)
        folder = tmp_path / "run"
        words = [*_OPTIONS, "--out", str(folder)]
        process = start(words, RAY_ADDRESS=cluster.address)
        try:
            wait_for((folder / "checkpoint.pt").exists)
        finally:
            process.kill()
            _, error = process.communicate(timeout=_LONGEST)  # of the watchdog, too
        assert "the learner's process has ended" in error
        assert not sessions(process.pid)
        assert processes <= find_processes(session)
    finally:
        cluster.shutdown()


class TestADeadHeadNode:
    @pytest.mark.parametrize(
        ("part", "words"),
        [("raylet", "node of the learner"), ("gcs_server", "head node")],
    )
    def test_ends_the_run_with_what_was_saved_and_how_to_go_on(
        self, driver: Driver, part: str, words: str
    ) -> None:
        (victim,) = find_program(driver.session, part)
        os.kill(victim, signal.SIGKILL)
        _, error = driver.process.communicate(timeout=_LONGEST)
        # Ray ends the process itself if that waits for an object at this moment.
        assert driver.process.returncode in (1, 2)
        (line,) = [line for line in error.splitlines() if "info-replay:" in line]
        assert f"Ray's {words}, " in line or "the learner's process has ended" in line
        assert re.search(
            rf"Frame {driver.saved_frame} was saved; to go on: info-replay dqn "
            rf"--resume {driver.folder}$",
            line,
        )
        assert "Traceback" not in error
        wait_for(lambda: not find_processes(driver.session), 15.0)


class TestADeadRayAtTheStart:
    def test_is_noticed_while_collectors_start(self, tmp_path: Path) -> None:
        """They cannot start here at all: there is no CPU for them."""
        cluster = Cluster()
        try:
            head = cluster.add_node(num_cpus=0, include_dashboard=False)
            ray.init(address=cluster.address, log_to_driver=False)
            experiment = DQNExperiment(small(frames=500), RunFolder(tmp_path / "run"))

            def progress(*_: object) -> None:
                head.kill_raylet(check_alive=False)

            start = time.monotonic()
            with pytest.raises(
                EngineError, match=r"does not answer.*Nothing was saved"
            ):
                experiment.run(progress)
            assert time.monotonic() - start < 60
        finally:
            ray.shutdown()
            cluster.shutdown()


class TestThreeNodes:
    def test_share_the_collectors_and_one_may_die(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        cluster = Cluster()
        try:
            # No room for a collector on the head node, where the learner is.
            head = cluster.add_node(num_cpus=0, include_dashboard=False)
            # Either of the others could take both; Ray would not spread them by itself.
            nodes = [cluster.add_node(num_cpus=4) for _ in range(2)]
            ray.init(address=cluster.address, log_to_driver=False)
            cluster.wait_for_nodes()
            self._run(cluster, head, nodes, RunFolder(tmp_path / "run"), caplog)
        finally:
            ray.shutdown()
            cluster.shutdown()

    def _run(
        self,
        cluster: Cluster,
        head: Any,
        nodes: list[Any],
        folder: RunFolder,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        config = small(lengths=None, frames=1200, learning_starts=100, evaluations=2)
        experiment = DQNExperiment(config, folder)
        engine = experiment.engine
        assert isinstance(engine, RayEngine)
        places = engine.places
        first: list[str] = []

        def progress(frames: int, *_: object) -> None:
            if frames >= 300 and not first:
                first.extend(node_of(place.actor) for place in places)
                assert set(first) == {node.node_id for node in nodes}
                assert node_of(engine.memory.actor) == head.node_id
                lost = nodes[[node.node_id for node in nodes].index(first[0])]
                cluster.remove_node(lost, allow_graceful=False)
            if first and places[0].lives == 1:
                time.sleep(0.3)  # the other one must not be done before the news come

        with caplog.at_level(logging.WARNING):
            result = experiment.run(progress)
        assert result["frames"] == 1200
        # The new one may have been sent to the dead node before Ray knew of that.
        assert places[0].lives in (2, 3)
        assert places[1].lives == 1
        assert "collector 0 died" in caplog.text
        assert places[0].frames + places[1].frames == 1200
        assert (folder.path / "memory.pt").exists()


def node_of(actor: Any) -> str:
    """The node that an actor is on."""

    def tell(_: Any) -> str:
        node: str = ray.get_runtime_context().get_node_id()
        return node

    found: str = ray.get(actor.__ray_call__.remote(tell))
    return found
