"""Grading jobs: on this machine, and on a cluster whose commands are stand-ins."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from slurm_stand_ins import install, scripts
from waiting import wait_until

from mini_dnn.errors import DataError, DeviceError, UsageError
from mini_dnn.grading import executors
from mini_dnn.grading.cluster import Profile, read_profile
from mini_dnn.grading.executors import run_on
from mini_dnn.paths import ROOT

PROFILE = Profile(
    partition="gpu",
    account="ece408",
    constraint="a40",
    gpus_per_node=1,
    cpus=2,
    memory_gb=16,
    minutes=20,
    jobs_at_once=3,
    setup=("module load cuda/12.4",),
    sbatch={"reservation": "class"},
)

WAITS = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return install(tmp_path / "cluster", monkeypatch)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "POLL_S", 0.1)
    monkeypatch.setattr(executors, "GRACE_S", 0.2)
    monkeypatch.chdir(ROOT)  # jobs import mini_dnn from there


def python(code: str, *words: str | Path) -> list[str]:
    return [sys.executable, "-c", code, *map(str, words)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_local_statuses_come_back_in_order(tmp_path: Path) -> None:
    ends = ("import sys; sys.exit(3)", "pass", "import os; os.kill(os.getpid(), 9)")
    done: list[int] = []
    codes = run_on("local", Profile(jobs_at_once=2), [python(end) for end in ends], tmp_path, done.append)
    assert codes == [3, 0, -9]
    assert done == [1, 2, 3]


def test_local_runs_no_more_than_it_may(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "import pathlib, sys, time\nlog = pathlib.Path(sys.argv[1]).open('a')\n"
        "log.write('+'); log.flush(); time.sleep(0.3); log.write('-'); log.flush()"
    )
    commands = [python(code, log, str(at)) for at in range(5)]
    assert run_on("local", Profile(jobs_at_once=2), commands, tmp_path / "jobs") == [0] * 5
    running = [log.read_text()[:at].count("+") - log.read_text()[:at].count("-") for at in range(11)]
    assert max(running) <= 2
    assert log.read_text().count("-") == 5


def test_logs_are_kept(tmp_path: Path) -> None:
    run_on("local", Profile(), [python("print('said')")], tmp_path)
    (log,) = tmp_path.glob("*_0_log.out")
    assert "said" in log.read_text()


def test_a_job_that_dies_has_no_status(tmp_path: Path) -> None:
    kills_its_job = "import os; os.kill(os.getppid(), 9)"
    assert run_on("local", Profile(), [python(kills_its_job), python("pass")], tmp_path) == [None, 0]


def test_a_program_that_is_not_there_has_no_status(tmp_path: Path) -> None:
    assert run_on("local", Profile(), [["/no/such/program"]], tmp_path) == [None]


def test_what_a_job_pickles_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from submitit.core import utils

    monkeypatch.setattr(utils, "pickle_load", lambda path: pytest.fail(f"{path} was unpickled"))
    assert run_on("local", Profile(), [python("pass")], tmp_path) == [0]


def test_a_status_that_is_no_number_is_none(tmp_path: Path) -> None:
    command = python("pass")
    (tmp_path / f"{executors._key(command)}.status").write_text("__import__('os')")
    assert executors._status(tmp_path, executors._key(command)) is None


def test_local_jobs_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    command = python(
        "import os, pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\n"
        "time.sleep(300)",
        pid_file,
    )
    starts = (
        "import sys, json, pathlib\nfrom mini_dnn.grading.cluster import Profile\n"
        "from mini_dnn.grading.executors import run_on\n"
        "run_on('local', Profile(), [json.loads(sys.argv[1])], pathlib.Path(sys.argv[2]))"
    )
    with subprocess.Popen(python(starts, json.dumps(command), tmp_path / "jobs")) as owner:
        wait_until(lambda: pid_file.exists() and pid_file.read_text() != "")
        pid = int(pid_file.read_text())
        assert is_alive(pid)
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), lambda: "the command outlives the run")
    assert run_on("local", Profile(), [python("pass")], tmp_path / "jobs") == [0], "and the folder is free"


def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = (
        "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(300)"
    )
    process = subprocess.Popen(python(code), stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
    executors._stop(process)
    assert process.poll() == -9


def test_a_folder_serves_one_run_at_a_time(tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = threading.Thread(target=run_on, args=("local", Profile(), [python(WAITS, go)], tmp_path / "jobs"))
    first.start()
    try:
        wait_until((tmp_path / "jobs/jobs.json").exists)
        with pytest.raises(UsageError, match="another run is using"):
            run_on("local", Profile(), [python("pass")], tmp_path / "jobs")
    finally:
        go.touch()
        first.join()


def test_slurm_runs_an_array(tmp_path: Path, cluster: Path) -> None:
    commands = [python("import sys; sys.exit(int(sys.argv[1]))", str(at)) for at in (0, 5, 1)]
    assert run_on("slurm", PROFILE, commands, tmp_path / "jobs") == [0, 5, 1]
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
        "--job-name=mini_dnn-grade",
        "--reservation=class",
    ):
        assert f"#SBATCH {flag}" in lines, flag
    (step,) = [line for line in lines if line.startswith("srun ")]
    assert "--cpus-per-task=2" in step.split()
    assert lines.index("module load cuda/12.4") < next(at for at, line in enumerate(lines) if "srun" in line)
    assert (cluster / "modules").read_text().splitlines() == ["load cuda/12.4"] * 3
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_one_slurm_job_is_no_array(tmp_path: Path, cluster: Path) -> None:
    assert run_on("slurm", PROFILE, [python("pass")], tmp_path / "jobs") == [0]
    (script,) = scripts(cluster)
    assert "--array" not in script


def test_an_empty_profile_leaves_the_choice_to_the_cluster(tmp_path: Path, cluster: Path) -> None:
    run_on("slurm", Profile(gpus_per_node=0), [python("pass")], tmp_path / "jobs")
    (script,) = scripts(cluster)
    for flag in ("--partition", "--account", "--constraint", "--gpus"):
        assert flag not in script


def test_slurm_jobs_are_not_submitted_twice(tmp_path: Path, cluster: Path) -> None:
    """The run that submitted them is killed; the next one waits for them, and submits only what is new."""
    go, jobs = tmp_path / "go", tmp_path / "jobs"
    commands = [python(WAITS, go, str(at)) for at in range(2)]
    starts = (
        "import sys, json, pathlib\nfrom mini_dnn.grading.cluster import Profile\n"
        "from mini_dnn.grading.executors import run_on\n"
        "run_on('slurm', Profile(), json.loads(sys.argv[1]), pathlib.Path(sys.argv[2]))"
    )
    with subprocess.Popen(python(starts, json.dumps(commands), jobs)) as first:
        wait_until((jobs / "jobs.json").exists)
        first.kill()

    def release() -> None:
        wait_until(lambda: len(scripts(cluster)) == 2)
        go.touch()

    waiting = threading.Thread(target=release)
    waiting.start()
    assert run_on("slurm", PROFILE, [*commands, python("pass")], jobs) == [0, 0, 0]
    waiting.join()
    assert sorted("--array=0-1" in script for script in scripts(cluster)) == [False, True]


def test_slurm_jobs_that_ended_are_submitted_again_when_asked(tmp_path: Path, cluster: Path) -> None:
    count = tmp_path / "count"
    command = python("import sys; open(sys.argv[1], 'a').write('x')", count)
    for _ in range(2):
        assert run_on("slurm", PROFILE, [command], tmp_path / "jobs") == [0]
    assert count.read_text() == "xx"


def test_a_slurm_job_that_is_cancelled_has_no_status(tmp_path: Path, cluster: Path) -> None:
    (cluster / "sbatch").write_text("#!/bin/bash\ncp $1 $CLUSTER/script.$$.sh\necho Submitted batch job $$\n")
    (cluster / "state").write_text("CANCELLED")
    assert run_on("slurm", PROFILE, [python("pass")], tmp_path / "jobs") == [None]


def test_the_words_of_sbatch_are_passed_on(tmp_path: Path, cluster: Path) -> None:
    (cluster / "sbatch").write_text(
        "#!/bin/bash\necho 'error: invalid partition specified: gpu' >&2\nexit 1\n"
    )
    with pytest.raises(DeviceError, match=r"cluster profile right: .*\n*.*invalid partition specified"):
        run_on("slurm", PROFILE, [python("pass")], tmp_path / "jobs")


def test_without_slurm_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="use --executor local"):
        run_on("slurm", PROFILE, [["true"]], tmp_path / "jobs")


def test_damaged_job_ids_are_explained(tmp_path: Path, cluster: Path) -> None:
    (tmp_path / "jobs.json").write_text("[")
    with pytest.raises(DataError, match=r"jobs\.json should hold the ids"):
        run_on("slurm", PROFILE, [python("pass")], tmp_path)


def test_submitit_is_asked_for_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UsageError, match=r"pip install -e '\.\[cluster\]'"):
        run_on("local", Profile(), [["true"]], tmp_path)


def test_a_profile_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(
        'partition = "gpu"\naccount = "ece408"\nconstraint = "a40"\ngpus_per_node = 1\ncpus = 2\n'
        'memory_gb = 16\nminutes = 20\njobs_at_once = 3\nsetup = ["module load cuda/12.4"]\n'
        '[sbatch]\nreservation = "class"\n'
    )
    assert read_profile(file) == PROFILE
    file.write_text("")
    assert read_profile(file) == Profile()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partition = 1", "'partition' is 1; expected a string"),
        ("partitoin = 'gpu'", "unknown key 'partitoin'; known are account, "),
        ("minutes = 1", "'minutes' is 1; expected 3 or more"),
        ("setup = 'module load cuda'", "'setup' is 'module load cuda'; expected a list of shell commands"),
        ("sbatch = {gres = []}", r"\[sbatch\] is {'gres': \[\]}; expected flags"),
        ("= 1", "is no TOML"),
    ],
)
def test_a_wrong_profile_is_explained(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message) as error:
        read_profile(file)
    assert "cluster.toml" in str(error.value)


def test_a_profile_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no cluster profile"):
        read_profile(tmp_path / "cluster.toml")
