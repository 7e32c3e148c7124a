"""Slurm as an executor, with stand-ins for its commands; `test_work_engines` uses the real ones."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from slurm_stand_ins import PROFILE, install, scripts
from test_work import logged, work
from waiting import wait_until

from mini_dnn.errors import DataError, DeviceError, UsageError
from mini_dnn.paths import ROOT
from mini_dnn.work import Profile, find_engine, read_profile, run_items, slurm
from mini_dnn.work.run import Found


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(slurm, "POLL_S", 0.1)
    monkeypatch.setattr("mini_dnn.work.engine.Engine.grace_s", 0.2)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'benchmarks'}:{Path(__file__).parent}")
    return install(tmp_path / "cluster", monkeypatch)


def run(folder: Path, values: list[int], profile: Profile = PROFILE, executor: str = "slurm") -> Found:
    return run_items(work(folder, values), find_engine(executor, profile), folder / "jobs")


def test_slurm_runs_an_array(tmp_path: Path, cluster: Path) -> None:
    found = run(tmp_path, [7, 8, 9])
    assert [found.results[f"item{at}"].value[0] for at in range(3)] == [7, 8, 9]
    (script,) = scripts(cluster)
    lines = script.splitlines()
    for flag in (
        "--partition=gpu",
        "--account=ece408",
        "--constraint=a40",
        "--gpus-per-node=1",
        "--cpus-per-task=2",
        "--mem=16GB",
        "--time=20",
        "--array=0-2%3",
        "--job-name=mini_dnn",
        "--reservation=class",
    ):
        assert f"#SBATCH {flag}" in lines, flag
    (step,) = [line for line in lines if line.startswith("srun ")]
    assert "--cpus-per-task=2" in step.split()
    assert lines.index("module load cuda/12.4") < next(at for at, line in enumerate(lines) if "srun" in line)
    assert (cluster / "modules").read_text().splitlines() == ["load cuda/12.4"] * 3


@pytest.mark.exhaustive
def test_an_empty_profile_leaves_the_choice_to_the_cluster(tmp_path: Path, cluster: Path) -> None:
    run(tmp_path, [7], Profile())
    (script,) = scripts(cluster)
    for flag in ("--partition", "--account", "--constraint", "--gpus", "--array"):
        assert flag not in script


def test_chunks_are_as_long_as_said(tmp_path: Path, cluster: Path) -> None:
    """An item takes 100 s, and a job may use at most 16 of its 20 minutes."""
    engine = find_engine("sbatch", Profile(minutes=20, jobs_at_once=2, item_seconds=100))
    run_items(work(tmp_path, list(range(24))), engine, tmp_path / "jobs")
    chunks = [json.loads(file.read_text()) for file in (tmp_path / "jobs/chunks").iterdir()]
    assert sorted(len(chunk["items"]) for chunk in chunks) == [2, 4, 4, 4, 4, 6]
    assert {chunk["most_s"] for chunk in chunks} == {960}


@pytest.mark.exhaustive
def test_what_submitit_pickled_is_never_read(
    tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from submitit.core import utils

    monkeypatch.setattr(utils, "pickle_load", lambda path: pytest.fail(f"{path} was unpickled"))
    assert len(run(tmp_path, [7]).results) == 1


@pytest.mark.exhaustive
def test_slurm_jobs_are_not_submitted_twice(tmp_path: Path, cluster: Path) -> None:
    """The run that submitted them is killed. The next run waits for them, and submits only new ones."""
    go, jobs = tmp_path / "go", tmp_path / "jobs"
    starts = (
        "import sys\nfrom pathlib import Path\nfrom test_work import work\n"
        "from mini_dnn.work import Profile, find_engine, run_items, slurm\nslurm.POLL_S = 0.1\n"
        "folder = Path(sys.argv[1])\ntodo = work(folder, [0, 1], common={'wait': str(folder / 'go')})\n"
        "run_items(todo, find_engine('slurm', Profile()), folder / 'jobs')"
    )
    with subprocess.Popen([sys.executable, "-c", starts, tmp_path]) as first:
        wait_until((jobs / "jobs.json").exists)
        first.kill()

    def release() -> None:
        wait_until(lambda: len(scripts(cluster)) == 2)
        go.touch()

    waiting = threading.Thread(target=release)
    waiting.start()
    todo = work(tmp_path, [0, 1, 2], common={"wait": str(go)})
    assert len(run_items(todo, find_engine("slurm", Profile()), jobs).results) == 3
    waiting.join()
    assert logged(tmp_path) == {"0": 1, "1": 1, "2": 1}


def test_a_cancelled_job_is_not_submitted_again_by_itself(tmp_path: Path, cluster: Path) -> None:
    real = (cluster / "sbatch").read_text()
    (cluster / "sbatch").write_text("#!/bin/bash\ncp $1 $CLUSTER/script.$$.sh\necho Submitted batch job $$\n")
    (cluster / "state").write_text("CANCELLED")
    found = run(tmp_path, [7])
    assert "ended: CANCELLED; its output is in" in found.failures["item0"]
    assert len(scripts(cluster)) == 1
    (cluster / "sbatch").write_text(real)
    (cluster / "state").write_text("RUNNING")
    for script in cluster.glob("script.*.sh"):
        script.unlink()  # Slurm has forgotten the job
    assert len(run(tmp_path, [7]).results) == 1, "the same command submits it again"


def test_the_words_of_sbatch_are_passed_on(tmp_path: Path, cluster: Path) -> None:
    (cluster / "sbatch").write_text(
        "#!/bin/bash\necho 'error: invalid partition specified: gpu' >&2\nexit 1\n"
    )
    with pytest.raises(DeviceError, match=r"correct the profile: .*\n*.*invalid partition specified"):
        run(tmp_path, [7])


def test_a_call_that_arrives_while_slurm_refuses_others_fails_too(
    tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the run would wait for it forever."""
    begun, go = threading.Event(), threading.Event()

    def submit_array(calls: list[Any]) -> list[Any]:
        begun.set()
        go.wait()
        raise RuntimeError("invalid account")

    pool = SimpleNamespace(submit_array=submit_array)
    monkeypatch.setattr(slurm, "_submitit_executor", lambda profile, folder: pool)
    executor = slurm.SlurmExecutor(Profile(), tmp_path)
    first = executor.submit(print)
    begun.wait()
    second = executor.submit(print)
    go.set()
    done = wait([first, second], timeout=60).done
    assert {str(future.exception()).rpartition(": ")[2] for future in done} == {"invalid account"}
    assert len(done) == 2
    with pytest.raises(DeviceError, match="invalid account"):
        executor.submit(print)
    executor.shutdown()


def test_without_slurm_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="use --executor local"):
        run(tmp_path, [7])


def test_damaged_job_ids_are_explained(tmp_path: Path, cluster: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/jobs.json").write_text("[")
    with pytest.raises(DataError, match=r"jobs\.json should hold the ids"):
        run(tmp_path, [7])


@pytest.mark.parametrize(
    ("executor", "module"), [("slurm", "submitit"), ("dask", "distributed"), ("mpi", "mpi4py.futures")]
)
def test_what_is_missing_is_named(
    executor: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"pip install -e '\.\[{executor}\]'"):
        run(tmp_path, [7], executor=executor)


def test_a_script_for_sbatch_by_hand(tmp_path: Path, cluster: Path) -> None:
    """The script is written but not run. After the user has run it, the same command collects the results."""
    found = run(tmp_path, [7, 8, 9], executor="sbatch")
    assert not found.results
    (script,) = (tmp_path / "jobs").glob("*.sh")
    assert f"`sbatch {script}`" in found.reasons
    assert run(tmp_path, [7, 8, 9], executor="sbatch").reasons == found.reasons, "nothing else is to be done"
    assert list((tmp_path / "jobs").glob("*.sh")) == [script]
    text = script.read_text()
    for line in ("#SBATCH --array=0-2%3", "#SBATCH --reservation=class", "#SBATCH --mem=16384M"):
        assert line in text.splitlines()
    assert "submitit" not in text
    assert not scripts(cluster)
    subprocess.run(["sbatch", script], check=True)
    wait_until(lambda: len(list((tmp_path / "results").glob("item*.json"))) == 3)
    assert len(run(tmp_path, [7, 8, 9], executor="sbatch").results) == 3


def test_what_failed_in_a_job_by_hand_is_reported_once(tmp_path: Path, cluster: Path) -> None:
    todo = work(tmp_path, ["one", "raises", "raises"], "moody")

    def again() -> Found:
        return run_items(todo, find_engine("sbatch", PROFILE), tmp_path / "jobs")

    waits = again().reasons
    (script,) = (tmp_path / "jobs").glob("*.sh")
    subprocess.run(["sbatch", script], check=True)
    wait_until(lambda: len(list((tmp_path / "jobs/chunks").glob("*.ended"))) == 3)
    found = again()
    assert (list(found.results), list(found.failures)) == (["item0"], ["item1", "item2"])
    assert found.reasons == "ValueError: so it goes"
    assert not list((tmp_path / "jobs/chunks").iterdir()), "what described chunks is removed"
    assert again().reasons != waits, "a script for the two items that are left"


def test_an_array_has_as_many_jobs_as_slurm_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "ARRAY", 4)
    profile = replace(PROFILE, item_seconds=1e4)  # longer than a job may take
    run(tmp_path, list(range(10)), profile, "sbatch")
    (listed,) = (tmp_path / "jobs").glob("mini_dnn-*.txt")
    assert len(listed.read_text().split()) == 4


def test_flags_of_a_profile_are_the_same_in_both_ways(tmp_path: Path, cluster: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(
        '[sbatch]\nnice = 0\nexclusive = true\nrequeue = false\nmail_type = "END"\ncomment = ""\n'
    )
    expected = ["#SBATCH --comment=''", "#SBATCH --exclusive", "#SBATCH --mail-type=END", "#SBATCH --nice=0"]
    for executor in ("slurm", "sbatch"):
        run(tmp_path / executor, [7], read_profile(file, executor), executor)
    (submitted,) = scripts(cluster)
    (by_hand,) = (tmp_path / "sbatch" / "jobs").glob("*.sh")
    for script in (submitted, by_hand.read_text()):
        flags = [line for line in script.splitlines() if line.startswith("#SBATCH")]
        assert set(expected) <= set(flags)
        assert not any("requeue" in flag for flag in flags)


def test_a_script_in_a_folder_with_a_space(tmp_path: Path) -> None:
    run(tmp_path / "a folder", [7], executor="sbatch")
    (script,) = (tmp_path / "a folder" / "jobs").glob("*.sh")
    (line,) = [line for line in script.read_text().splitlines() if "--output" in line]
    assert shlex.split(line) == ["#SBATCH", f"--output={script.parent.resolve()}/logs/%A_%a.out"]
