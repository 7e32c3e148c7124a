"""Engines by name: how an executor is created, and its properties.

The executors are those of `concurrent.futures`, `distributed`, `mpi4py`, or Slurm through `submitit`.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from mini_dnn.errors import DeviceError, UsageError, reason
from mini_dnn.paths import read_regular
from mini_dnn.work.engine import Engine
from mini_dnn.work.local import Local
from mini_dnn.work.profile import SLURM, Profile
from mini_dnn.work.slurm import Slurm

EXECUTORS = ("local", *SLURM, "dask", "mpi")
CONNECT_S, POLL_S = 30, 0.2
MOST_BYTES = 1 << 20  # of a file with the address of a scheduler


@dataclass
class Dask(Engine):
    """A running Dask cluster."""

    profile: Profile

    def open(self, folder: Path) -> Executor:
        """The cluster's executor. If a worker dies, its nanny starts it again, and the others continue."""
        distributed = _imported("distributed", "dask")
        address = _scheduler(self.profile)
        security = {}
        if self.profile.tls_ca:
            security["security"] = distributed.Security(
                tls_ca_file=self.profile.tls_ca,
                tls_client_cert=self.profile.tls_cert,
                tls_client_key=self.profile.tls_key,
                require_encryption=True,
            )
        try:
            client = distributed.Client(address, **security, timeout=CONNECT_S, set_as_default=False)
            client.wait_for_workers(max(1, self.profile.workers), timeout=CONNECT_S)
        except (OSError, TimeoutError, ValueError) as error:
            raise DeviceError(f"no Dask cluster with workers at {address}: {error}") from error
        self.workers = sum(client.nthreads().values())
        resources = {"resources": dict(self.profile.resources)} if self.profile.resources else {}
        self._client = client
        pool: Executor = client.get_executor(pure=False, **resources)
        return pool

    def close(self, pool: Executor) -> None:
        """Disconnect; the cluster stays."""
        pool.shutdown()
        self._client.close()

    def abandon(self, pool: Executor) -> None:
        """Cancel waiting calls, and disconnect."""
        pool.shutdown(wait=False)
        self._client.close()


def _scheduler(profile: Profile) -> str:
    """The address of Dask's scheduler."""
    address, file = profile.scheduler, profile.scheduler_file
    if not address and not file:
        raise UsageError(
            '--executor dask needs a running cluster: a profile with scheduler = "tcp://HOST:8786", or '
            'scheduler_file = "FILE" as `dask scheduler --scheduler-file` writes it'
        )
    if not address:
        address = _address_in(file)
    if not address.rpartition(":")[2].isdigit():
        raise UsageError(f"the address of the scheduler is '{address}'; expected 'tcp://HOST:8786'")
    return address


def _address_in(file: str) -> str:
    """The address in a file that Dask's scheduler writes when it starts.

    Wait for it, as a script may start both, but not forever as Dask does.
    """
    end = time.monotonic() + CONNECT_S
    while True:
        try:
            return str(json.loads(read_regular(Path(file), MOST_BYTES))["address"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            if time.monotonic() >= end:
                missing = "it does not have the address of a scheduler"
                why = reason(error) if isinstance(error, OSError) else missing
                raise UsageError(
                    f"scheduler_file = '{file}' cannot be used, {CONNECT_S} s after the start: {why}; start "
                    f"the cluster first: dask scheduler --scheduler-file {shlex.quote(file)}"
                ) from error
        time.sleep(POLL_S)


class Mpi(Engine):
    """The ranks of this MPI program; rank 0 distributes the chunks. If a rank dies, MPI ends all of them."""

    shares_fate = keeps = True

    def __init__(self) -> None:
        self._futures = _imported("mpi4py.futures", "mpi")
        self.workers = _imported("mpi4py.MPI", "mpi").COMM_WORLD.Get_size() - 1
        if self.workers < 1 or "mpi4py.futures" not in sys.orig_argv:
            raise UsageError(
                "--executor mpi runs as an MPI program of two ranks or more, of which the first distributes "
                f"the work: mpiexec -n 3 python -m mpi4py.futures {shlex.join(sys.argv)}"
            )

    def open(self, folder: Path) -> Executor:
        """The executor of rank 0."""
        pool: Executor = self._futures.MPIPoolExecutor()
        return pool


def find_engine(name: str, profile: Profile, workers: int = 1) -> Engine:
    """The engine of that name. ``workers`` is the number of processes on this machine.

    Raises
    ------
    UsageError
        There is no such engine.
    """
    made: Engine
    if name == "local":
        made = Local(profile.workers or workers)
    elif name == "dask":
        made = Dask(profile)
    elif name == "mpi":
        made = Mpi()
    elif name in SLURM:
        made = Slurm(profile, submits=name == "slurm")
    else:
        raise UsageError(f"no executor '{name}'; expected one of {', '.join(EXECUTORS)}")
    made.item_s = profile.item_seconds
    return made


def _imported(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            f"--executor {extra} needs {module.partition('.')[0]}, which cannot be imported ({error}): "
            f"pip install -e '.[{extra}]'"
        ) from error
