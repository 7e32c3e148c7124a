"""Real engines on the loopback interface: Slurm, Dask and MPI. Everything that is started is stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import scale_dask
import scale_slurm
from scale_kills import program
from test_bench_elsewhere import untimed
from test_work import logged, work
from waiting import PATIENCE_S, wait_until

from mini_dnn.cli import main
from mini_dnn.paths import ROOT
from mini_dnn.work import Profile, Work, find_engine, read_profile, run_items, slurm
from mini_dnn.work.run import Found

pytestmark = [pytest.mark.engines, pytest.mark.exhaustive]
ONE_EACH = Profile(jobs_at_once=4, cpus=1, memory_gb=1, item_seconds=3600)  # one job per item
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "self,vader"}


@pytest.fixture(autouse=True, scope="module")
def workers_find_the_samples() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT / "benchmarks"))
        patch.setattr(slurm, "POLL_S", 0.4)
        patch.setattr("mini_dnn.work.engine.Engine.grace_s", 0.5)
        yield


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[scale_slurm.Slurm]:
    if reason := scale_slurm.why_not():
        pytest.skip(f"no Slurm: {reason}")
    with scale_slurm.running(tmp_path_factory.mktemp("slurm")) as started:
        yield started
    assert not started.left()


class Background:
    """A run in a background thread."""

    def __init__(self, todo: Work, folder: Path, profile: Profile = ONE_EACH) -> None:
        self.found: list[Found] = []
        engine = find_engine("slurm", profile)
        run: Callable[[], Any] = lambda: self.found.append(run_items(todo, engine, folder / "jobs"))  # noqa: E731
        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def finish(self) -> Found:
        self._thread.join(PATIENCE_S)
        assert self.found, "the run has not ended"
        return self.found[0]


def waiting(folder: Path, values: list[int]) -> Work:
    """Items that end as soon as a file ``go`` exists."""
    return work(folder, values, common={"wait": str(folder / "go")})


def begun(folder: Path) -> int:
    return len(list((folder / "jobs/chunks").glob("*.began")))


def jobs_of(folder: Path, item: str) -> set[str]:
    """Jobs that have or had an item, as far as the run has recorded them.

    A job may begin before its id is recorded, and after its end a new chunk may replace its chunk.
    """
    try:
        chunks = {file.stem for file in (folder / "jobs/chunks").glob("*.json") if item in file.read_text()}
        jobs = json.loads((folder / "jobs/jobs.json").read_text())
    except FileNotFoundError:
        return set()
    return {job for job, (_, chunk) in jobs.items() if chunk in chunks}


def one_job_of(cluster: scale_slurm.Slurm, folder: Path, item: str) -> str:
    """The job that has an item, once both items are being computed."""
    wait_until(lambda: begun(folder) == 2 and len(jobs_of(folder, item)) == 1, cluster.told)
    return jobs_of(folder, item).pop()


def test_slurm_out_of_time_and_its_controller_restarts(cluster: scale_slurm.Slurm, tmp_path: Path) -> None:
    run = Background(waiting(tmp_path, [0, 1]), tmp_path)
    late = one_job_of(cluster, tmp_path, "item0")
    cluster.command("scontrol", "update", f"jobid={late}", "EndTime=now+1")
    wait_until(lambda: begun(tmp_path) == 2 and jobs_of(tmp_path, "item0") - {late}, cluster.told)
    assert f"{late}|TIMEOUT" in cluster.command(
        "squeue", "--states=all", "--noheader", "--array", "--format=%i|%T"
    )
    cluster.stop("slurmctld")
    (tmp_path / "go").touch()  # both end while nobody answers
    wait_until(lambda: len(logged(tmp_path)) == 2)
    cluster.start_controller()
    found = run.finish()
    assert sorted(found.results) == ["item0", "item1"]
    assert logged(tmp_path) == {"0": 1, "1": 1}
    assert run_items(waiting(tmp_path, [0, 1]), find_engine("slurm", ONE_EACH), tmp_path / "jobs").results
    assert logged(tmp_path) == {"0": 1, "1": 1}


def test_slurm_cancelled_drained_and_given_again(cluster: scale_slurm.Slurm, tmp_path: Path) -> None:
    cluster.command("scontrol", "update", "nodename=localhost", "state=drain", "reason=test")
    run = Background(waiting(tmp_path, [0, 1]), tmp_path)
    wait_until(lambda: [state for _, state in cluster.jobs()] == ["PENDING"] * 2, cluster.told)
    cluster.command("scontrol", "update", "nodename=localhost", "state=resume")
    cancelled = one_job_of(cluster, tmp_path, "item1")
    cluster.command("scontrol", "update", "nodename=localhost", "state=drain", "reason=test")
    cluster.command("scancel", cancelled)
    wait_until(lambda: cancelled not in dict(cluster.jobs()), cluster.told)
    (tmp_path / "go").touch()
    found = run.finish()
    assert list(found.results) == ["item0"], "what ran on the node was finished"
    assert "CANCELLED" in found.failures["item1"], "and what somebody cancelled is not begun again"
    cluster.command("scontrol", "update", "nodename=localhost", "state=resume")
    again = run_items(waiting(tmp_path, [0, 1]), find_engine("slurm", ONE_EACH), tmp_path / "jobs")
    assert sorted(again.results) == ["item0", "item1"]
    assert logged(tmp_path) == {"0": 1, "1": 1}


def test_slurm_by_hand(cluster: scale_slurm.Slurm, tmp_path: Path) -> None:
    todo, engine = work(tmp_path, [0, 1]), find_engine("sbatch", ONE_EACH)
    assert len(run_items(todo, engine, tmp_path / "jobs").failures) == 2
    (script,) = (tmp_path / "jobs").glob("*.sh")
    cluster.command("sbatch", "--wait", str(script))
    assert sorted(run_items(todo, engine, tmp_path / "jobs").results) == ["item0", "item1"]
    assert logged(tmp_path) == {"0": 1, "1": 1}


def test_dask_loses_a_worker(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with scale_dask.running(tmp_path / "dask") as cluster:
        todo = work(tmp_path, list(range(60)), common={"seconds": 0.02})
        engine = find_engine("dask", read_profile(cluster.profile, "dask"))
        killed: list[int] = []

        def heard(*result: object) -> None:
            if not killed:
                killed.append(cluster.workers()[0])
                os.kill(killed[0], signal.SIGKILL)

        found = run_items(todo, engine, tmp_path / "jobs", heard)
        assert (len(killed), len(found.results), found.failures) == (1, 60, {})
        assert sum(logged(tmp_path).values()) <= 61, "but for the one that was under way"
    assert not cluster.left()


def mpi(*words: str) -> subprocess.CompletedProcess[str]:
    command = ["mpiexec", "--oversubscribe", "-n", "3", *words]
    return subprocess.run(
        command, env=os.environ | MPI, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def test_mpi_loses_a_rank_and_goes_on_with_the_same_command(tmp_path: Path) -> None:
    if shutil.which("mpiexec") is None:
        pytest.skip("no mpiexec: apt-get install openmpi-bin")
    words = program(tmp_path, 40, 0.02, "mpi")
    told = mpi(*words)
    # Otherwise they would do the work three times
    assert "python -m mpi4py.futures" in told.stderr, told.stdout
    words[1:1] = ["-m", "mpi4py.futures"]
    threading.Thread(target=kill_a_rank, args=(tmp_path,), daemon=True).start()
    assert mpi(*words).returncode != 0
    before = sum(logged(tmp_path).values())
    assert 0 < before < 40
    done = mpi(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "40 {}" in done.stdout
    assert sorted(map(int, logged(tmp_path))) == list(range(40))
    assert sum(logged(tmp_path).values()) <= 40 + 2, "but for what the ranks were at"


def test_mpi_measures_as_one_process_does(tmp_path: Path) -> None:
    if shutil.which("mpiexec") is None:
        pytest.skip("no mpiexec: apt-get install openmpi-bin")
    words = ["bench", "softmax", "--shapes", "3,5", "2,40", "--device", "emulator"]
    assert main([*words, "--out", str(tmp_path / "one.json")]) == 0
    program = [sys.executable, "-m", "mpi4py.futures", str(ROOT / "run.py")]
    done = mpi(*program, *words, "--executor", "mpi", "--out", str(tmp_path / "many.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert untimed(tmp_path / "many.json") == untimed(tmp_path / "one.json")


def kill_a_rank(folder: Path) -> None:
    wait_until(lambda: len(logged(folder)) > 3)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            if b"OMPI_COMM_WORLD_RANK=2" in environment and str(folder) in (process / "cmdline").read_text():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue
