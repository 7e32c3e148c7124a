"""Commands as jobs, on a Slurm cluster or as processes of this machine, through submitit.

A job's exit status comes back as a number in a text file. What submitit pickles after a job is never read:
a submission may have written it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mini_dnn.errors import DataError, DeviceError, UsageError
from mini_dnn.grading.cluster import Profile
from mini_dnn.grading.locks import is_free, locked
from mini_dnn.paths import write_atomically

if TYPE_CHECKING:
    from submitit import AutoExecutor, Job

EXECUTORS = ("local", "slurm")
NAME = "mini_dnn-grade"  # of the jobs, in squeue
ARRAY = 1000  # jobs at most that are queued at a time: Slurm takes 1,001 in an array unless told otherwise
POLL_S = 1.0
GRACE_S = 5.0  # for a status that a network file system shows later than the end of its job
STOP_S = 0.5  # for a command to end by itself

Progress = Callable[[int], None]  # jobs done so far


def run_on(
    executor: str,
    profile: Profile,
    commands: Sequence[Sequence[str]],
    folder: Path,
    progress: Progress | None = None,
) -> list[int | None]:
    """Run each command as a job of its own, and wait for all.

    Parameters
    ----------
    executor
        ``"slurm"``: one array of jobs, of which ``profile.jobs_at_once`` run at a time. They outlive this
        process; if it is called again with the same commands, it waits for those that are still queued or
        running, and submits the others. ``"local"``: as many processes at a time, which end with this one.
    profile
        What each job gets; on this machine, of it only the GPUs, the minutes and the jobs at a time.
    commands
        All different. They start in the current folder.
    folder
        For logs (``ID_0_log.out``, ``ID_0_log.err``) and job files; every node must see it, and no
        submission. Made if need be.

    Returns
    -------
    Exit status of each command, negative for a signal; None for a job that ended without one, by its time
    limit, by ``scancel``, or as its node failed.

    Raises
    ------
    UsageError
        submitit is not installed, this is no Slurm cluster, or the folder is in use by another run.
    DeviceError
        Slurm refuses the jobs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keys = {_key(command): list(command) for command in commands}
    with locked(folder / "lock", f"another run is using {folder}; wait for it, or end it"):
        pool = _pool(executor, profile, folder)
        with _owner(folder, executor) as owner:
            jobs = _still_there(executor, folder, keys)
            codes = _run(pool, jobs, keys, folder, owner, profile, progress or (lambda done: None))
    return [codes[key] for key in (_key(command) for command in commands)]


def logs(command: Sequence[str], folder: Path) -> str:
    """Where the last job of a command wrote what it printed: a pattern of file names, for people."""
    job = _known(folder).get(_key(command), "*")
    return f"{folder}/{job}_0_log.*"


def run_command(command: Sequence[str], status: Path, owner: Path | None) -> None:
    """A job: run a command and write its exit status; stop it if the owner's process ends first."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = None
        while code is None:
            if owner is not None and is_free(owner):
                return
            try:
                code = process.wait(POLL_S)
            except subprocess.TimeoutExpired:
                continue
        write_atomically(status, f"{code}\n".encode())
    finally:  # also by the exception with which submitit tells that time is up
        _stop(process)


def _run(
    pool: AutoExecutor,
    jobs: dict[str, Job[None]],
    keys: dict[str, list[str]],
    folder: Path,
    owner: Path | None,
    profile: Profile,
    progress: Progress,
) -> dict[str, int | None]:
    waiting = [key for key in keys if key not in jobs]
    at_once = profile.jobs_at_once if pool.cluster == "local" else ARRAY
    codes: dict[str, int | None] = {}
    ended: dict[str, float] = {}  # when a job was first seen to have ended
    while waiting or jobs:
        room = at_once - len(jobs)
        if waiting and room > 0:
            jobs |= _submit(pool, {key: keys[key] for key in waiting[:room]}, folder, owner)
            waiting = waiting[room:]
            _remember(folder, jobs)
        time.sleep(POLL_S)
        for key, job in list(jobs.items()):
            if not job.done():
                continue
            code = _status(folder, key)
            if code is not None or time.monotonic() - ended.setdefault(key, time.monotonic()) > GRACE_S:
                codes[key] = code
                del jobs[key]
                progress(len(codes))
    return codes


def _pool(executor: str, profile: Profile, folder: Path) -> AutoExecutor:
    submitit = _submitit()
    try:
        pool: AutoExecutor = submitit.AutoExecutor(folder, cluster=executor)
    except RuntimeError as error:
        raise UsageError(
            f"--executor {executor}: {error} Run it on a node that can submit jobs, or use --executor local"
        ) from error
    pool.update_parameters(
        name=NAME,
        timeout_min=profile.minutes,
        mem_gb=profile.memory_gb,
        cpus_per_task=profile.cpus,
        gpus_per_node=profile.gpus_per_node or None,
        slurm_partition=profile.partition or None,
        slurm_account=profile.account or None,
        slurm_constraint=profile.constraint or None,
        slurm_array_parallelism=profile.jobs_at_once,
        slurm_srun_args=[f"--cpus-per-task={profile.cpus}"],  # Slurm 22.05 no longer tells srun
        slurm_setup=list(profile.setup) or None,
        slurm_additional_parameters=dict(profile.sbatch) or None,
    )
    return pool


def _submit(
    pool: AutoExecutor, commands: dict[str, list[str]], folder: Path, owner: Path | None
) -> dict[str, Job[None]]:
    for key in commands:
        _status_file(folder, key).unlink(missing_ok=True)
    functions = [
        functools.partial(run_command, command, _status_file(folder, key).resolve(), owner)
        for key, command in commands.items()
    ]
    try:
        return dict(zip(commands, pool.submit_array(functions), strict=True))
    except RuntimeError as error:  # of submitit, with sbatch's words
        raise DeviceError(f"Slurm refuses the jobs; put the cluster profile right: {error}") from error


def _still_there(executor: str, folder: Path, keys: dict[str, list[str]]) -> dict[str, Job[None]]:
    """Jobs of an earlier run, for the same commands, that Slurm still has queued or running."""
    if executor != "slurm":
        return {}
    known = _known(folder)
    found = {key: _submitit().SlurmJob(folder, known[key]) for key in keys if key in known}
    return {key: job for key, job in found.items() if not job.done() and job.state != "UNKNOWN"}


def _known(folder: Path) -> dict[str, str]:
    """Id of the last job of each command."""
    file = folder / "jobs.json"
    try:
        ids = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return {str(key): str(job) for key, job in ids.items()}
    except (ValueError, AttributeError) as error:
        raise DataError(
            f"{file} should hold the ids of jobs, as JSON; delete it to submit all anew"
        ) from error


def _remember(folder: Path, jobs: dict[str, Job[None]]) -> None:
    ids = _known(folder) | {key: job.job_id for key, job in jobs.items()}
    write_atomically(folder / "jobs.json", (json.dumps(ids, indent=1) + "\n").encode())


def _key(command: Sequence[str]) -> str:
    """A file name for a command."""
    return hashlib.sha256(json.dumps(list(command)).encode()).hexdigest()[:16]


def _status_file(folder: Path, key: str) -> Path:
    return folder / f"{key}.status"


def _status(folder: Path, key: str) -> int | None:
    try:
        return int(_status_file(folder, key).read_text())
    except (OSError, ValueError):
        return None


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a command, with all of its process group."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        os.killpg(process.pid, kind)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            continue


@contextmanager
def _owner(folder: Path, executor: str) -> Iterator[Path | None]:
    """For jobs of this machine, a file of this run that is locked as long as it lives."""
    if executor == "slurm":
        yield None
        return
    path = (folder / f".owner-{os.getpid()}-{time.monotonic_ns()}").resolve()
    with locked(path, f"{path} is in use"):
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


def _submitit() -> Any:
    try:
        import submitit
    except ImportError as error:
        raise UsageError(
            "jobs are submitted through submitit, which is not installed: pip install -e '.[cluster]'"
        ) from error
    return submitit
