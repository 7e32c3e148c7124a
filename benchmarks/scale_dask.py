"""A real Dask cluster on the loopback interface: a scheduler and two workers, which end with the block."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from scale_slurm import wait_until

MARK = "MINI_DNN_TEST_CLUSTER"


@dataclass
class Dask:
    """A running cluster."""

    folder: Path

    @property
    def profile(self) -> Path:
        """A profile for ``--executor dask``."""
        file = self.folder / "dask.toml"
        file.write_text(f'scheduler_file = "{self.folder / "scheduler.json"}"\nworkers = 2\n')
        return file

    def left(self) -> list[int]:
        """The processes that this cluster has started."""
        mark, found = f"{MARK}={self.folder}\0".encode(), []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (process / "environ").read_bytes():
                    found.append(int(process.name))
        return found

    def workers(self) -> list[int]:
        """The worker processes, which nannies have started."""
        lines = {pid: Path(f"/proc/{pid}/cmdline") for pid in self.left()}
        return [pid for pid, line in lines.items() if line.exists() and b"spawn_main" in line.read_bytes()]


@contextmanager
def running(folder: Path, workers: int = 2) -> Iterator[Dask]:
    """Start a cluster, whose workers use this process's ``PYTHONPATH``."""
    folder.mkdir(parents=True, exist_ok=True)
    file, environment = folder / "scheduler.json", os.environ | {MARK: str(folder)}
    common = ["--scheduler-file", str(file), "--no-dashboard", "--host", "127.0.0.1"]
    scheduler = ["distributed.cli.dask_scheduler", *common, "--port", "0"]
    nannies = ["distributed.cli.dask_worker", *common, "--nworkers", str(workers), "--nthreads", "1"]
    nannies += ["--local-directory", str(folder)]
    processes = []
    cluster = Dask(folder)
    try:
        with (folder / "log").open("ab") as log:
            for words in (scheduler, nannies):
                command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", *words]
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
                wait_until(file.exists, (folder / "log").read_text)
        yield cluster
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
        for pid in cluster.left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not cluster.left())
