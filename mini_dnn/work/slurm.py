"""Slurm as an executor: submitit submits arrays of jobs, and `squeue` says which of them still exist.

The files that submitit pickles after a job are never read, because a submission may have written them.
`squeue` does not need accounting. While the controller restarts and does not answer, nothing is concluded
from that.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mini_dnn.errors import DataError, DeviceError, UsageError
from mini_dnn.paths import write_atomically
from mini_dnn.work.engine import Engine
from mini_dnn.work.profile import Profile
from mini_dnn.work.slurm_script import NAME, write_script

if TYPE_CHECKING:
    from submitit import AutoExecutor

ARRAY = 1000  # the most queued jobs: by default, Slurm accepts 1,001 in an array
POLL_S = 2.0
SILENCE_S = 3600.0  # how long a controller may fail to answer
UNREACHABLE = ("Unable to contact slurm controller", "Connection refused", "Socket timed out", "Zero Bytes")
COMPLETED = "COMPLETED"
ENDED = ("FAILED", "TIMEOUT", "CANCELLED", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE")
OVER = (COMPLETED, *ENDED, "NODE_FAIL", "BOOT_FAIL")
LEAST_S, MOST_S = 600.0, 3600.0  # for a chunk
LIMIT_PART = 0.8  # of the time limit: after it, a job begins no further item


class JobError(Exception):
    """A job that did not complete."""


@dataclass
class Slurm(Engine):
    """A Slurm cluster: each chunk is a job of an array. Jobs outlive this process; the next one adopts them.

    Parameters
    ----------
    submits
        Whether to submit jobs. Otherwise, scripts are written that the user submits with ``sbatch``.
    """

    profile: Profile
    submits: bool = True

    def __post_init__(self) -> None:
        self.workers = self.profile.jobs_at_once
        self.most_s = min(MOST_S, LIMIT_PART * 60 * self.profile.minutes)
        self.least_s = min(LEAST_S, self.most_s / 2)
        self.poll_s, self.by_hand = POLL_S, not self.submits
        self._pool: SlurmExecutor | None = None

    @property
    def window(self) -> int:
        """The largest number of jobs in an array."""
        return ARRAY

    def open(self, folder: Path) -> Executor:
        """Return an executor that submits through submitit."""
        self._pool = SlurmExecutor(self.profile, folder)
        return self._pool

    def write(self, folder: Path, chunks: Sequence[str]) -> Path:
        """Write a script for ``sbatch``."""
        return write_script(self.profile, folder, chunks)

    def adopted(self) -> dict[str, Future[None]]:
        """Return jobs that are still queued or running, by their chunk."""
        assert self._pool is not None, "it is open"
        return {str(args[-1]): future for args, future in self._pool.adopt()}

    def is_final(self, words: str) -> bool:
        """Whether somebody cancelled the job."""
        return "CANCELLED" in words

    def abandon(self, pool: Executor) -> None:
        """Do nothing: the jobs continue, and the next run collects their results."""
        pool.shutdown(wait=False)


class SlurmExecutor(Executor):
    """Submits calls that arrive within a moment as one array of jobs.

    A future's result is None, because functions leave their results in files.
    """

    def __init__(self, profile: Profile, folder: Path) -> None:
        self._folder, self._file = folder, folder / "jobs.json"
        self._pool = _submitit_executor(profile, folder / "logs")
        self._new: list[tuple[Callable[..., None], tuple[Any, ...], Future[None]]] = []
        self._jobs: dict[str, Future[None]] = {}
        self._args: dict[str, list[Any]] = _known(self._file)
        self._heard = time.monotonic()
        self._wake = threading.Condition()
        self._closed = False
        self._failed: Exception | None = None
        self._thread: threading.Thread | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **words: Any) -> Future[Any]:
        """Queue a call. The arguments are plain values."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._wake:
            if self._failed:
                raise self._failed
            self._new.append((functools.partial(function, **words), args, future))
        self._start()
        return future

    def adopt(self) -> list[tuple[list[Any], Future[None]]]:
        """Return the arguments of calls that an earlier executor submitted and that Slurm still has."""
        if not self._args:
            return []
        states = _states()
        if states is None:
            raise DeviceError(
                "squeue does not answer, and jobs of an earlier run may be queued; try again later"
            )
        alive = [job for job in self._args if states.get(job, COMPLETED) not in OVER]
        self._args = {job: self._args[job] for job in alive}
        self._jobs = {job: Future() for job in alive}
        if alive:
            self._start()
        return [(self._args[job], future) for job, future in self._jobs.items()]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop monitoring. Jobs continue."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        while True:
            with self._wake:
                count = -1
                while not self._closed and count != len(self._new):  # more calls may follow
                    count = len(self._new)
                    self._wake.wait_for(lambda: self._closed, POLL_S / 4)
                if self._closed:
                    return
                new, self._new = self._new, []
            try:
                if new and not self._submit(new):
                    with self._wake:
                        self._new = new + self._new
                self._look()
            except Exception as error:  # each caller receives it, and nothing more can be submitted
                with self._wake:
                    self._failed, new = error, new + self._new  # more calls may have arrived in the meantime
                for future in [*self._jobs.values(), *(future for _, _, future in new)]:
                    if not future.done():
                        future.set_exception(error)
                return
            time.sleep(POLL_S / 2)

    def _submit(self, new: list[tuple[Callable[..., None], tuple[Any, ...], Future[None]]]) -> bool:
        """Submit an array. Return false if the controller does not answer."""
        calls = [functools.partial(_in_job, function, *args) for function, args, _ in new]
        try:
            jobs = self._pool.submit_array(calls)
        except RuntimeError as error:  # submitit's error, with the message of sbatch
            if any(words in str(error) for words in UNREACHABLE):
                self._refuse_silence()
                return False
            raise DeviceError(
                f"Slurm refuses the jobs; start this on a login node, or correct the profile: {error}"
            ) from error
        for job, (_, args, future) in zip(jobs, new, strict=True):
            self._jobs[job.job_id] = future
            self._args[job.job_id] = list(args)
        write_atomically(self._file, (json.dumps(self._args, indent=1) + "\n").encode())
        return True

    def _look(self) -> None:
        states = _states()
        if states is None:
            self._refuse_silence()
            return
        self._heard = time.monotonic()
        for job, future in list(self._jobs.items()):
            state = states.get(job, "gone")
            if state not in OVER and state != "gone":
                continue
            del self._jobs[job]
            if state == COMPLETED:
                future.set_result(None)
            else:
                logs = f"{self._folder}/logs/{job}_0_log.*"
                future.set_exception(JobError(f"its job {job} ended: {state}; its output is in {logs}"))

    def _refuse_silence(self) -> None:
        if time.monotonic() - self._heard > SILENCE_S:
            raise DeviceError(
                "Slurm's controller has not answered for an hour. Jobs may continue; the same command "
                "collects their results, and waits for those that are still queued"
            )


def _in_job(function: Callable[..., None], *args: Any) -> None:
    """Run a function in a job. Slurm ends it at its limit, so submitit need not interrupt an item earlier."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    function(*args)


def _states() -> Mapping[str, str] | None:
    """Return the state of each of this user's jobs by id, or None if the controller does not answer."""
    words = ["squeue", "--noheader", "--array", "--states=all", "--all", f"--user={os.getuid()}"]
    try:
        done = subprocess.run([*words, "--format=%i|%T"], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise DeviceError("squeue was not found; run the same command on a login node") from error
    if done.returncode:
        return None
    rows = (line.strip().partition("|") for line in done.stdout.splitlines() if line.strip())
    return {job: state for job, _, state in rows}


def _known(file: Path) -> dict[str, list[Any]]:
    """Return what earlier executors submitted, by job."""
    try:
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        return {str(job): list(args) for job, args in found.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{file} should hold the ids of jobs, as JSON; delete it to submit all jobs again"
        ) from error


def _submitit_executor(profile: Profile, folder: Path) -> AutoExecutor:
    try:
        import submitit
    except ImportError as error:
        raise UsageError(
            "--executor slurm needs submitit, which is not installed: pip install -e '.[slurm]'. Without it, "
            "--executor sbatch writes scripts for sbatch"
        ) from error
    try:
        pool = submitit.AutoExecutor(folder, cluster="slurm")
    except RuntimeError as error:
        raise UsageError(
            f"--executor slurm: {error} Run it on a node that can submit jobs, or use --executor local"
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
        slurm_srun_args=[f"--cpus-per-task={profile.cpus}"],  # since Slurm 22.05, srun does not inherit it
        slurm_setup=list(profile.setup) or None,
        slurm_additional_parameters=dict(profile.sbatch) or None,
    )
    return pool
