"""A real Slurm on the loopback interface: munged, a controller and a node, which end with the block."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

CONFIGURATION = """
ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=1
JobRequeue=1
NodeName=localhost NodeAddr=127.0.0.1 CPUs=8 RealMemory=65536
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "setpriv")
SBIN = "/usr/sbin:/sbin"
END_S = 2.0
PATIENCE_S = 300.0


def wait_until(what: Callable[[], object], told: Callable[[], object] = lambda: "") -> None:
    """Wait until ``what`` returns true. On a time-out, fail with the answer of ``told``."""
    end = time.monotonic() + PATIENCE_S
    while not what():
        if time.monotonic() > end:
            raise TimeoutError(told())
        time.sleep(0.05)


def why_not() -> str:
    """Return why no Slurm can be started here, or an empty string."""
    path = f"{os.environ['PATH']}:{SBIN}"
    missing = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    if missing:
        return f"{', '.join(missing)} not found: apt-get install slurm-wlm munge"
    return "" if os.getuid() == 0 else "slurmd starts jobs as root alone"


@dataclass
class Slurm:
    """A running cluster of one node."""

    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, *words: str) -> None:
        """Start a daemon that ends with this process, even if this process is killed."""
        log = (self.folder / f"{name}.out").open("ab")
        with log:
            self.processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", name, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, name: str) -> None:
        """End a daemon."""
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start_controller(self) -> None:
        """Start the controller, and wait until the node has reported to it."""
        self.start("slurmctld", "-D", "-i")
        wait_until(lambda: self.node() in ("IDLE", "MIXED", "ALLOCATED"), self.told)

    def node(self) -> str:
        """The state of the node."""
        told = self.command("sinfo", "--noheader", "--format=%T", check=False)
        return told.strip().upper().rstrip("*~#")

    def jobs(self) -> list[tuple[str, str]]:
        """Ids and states of all remaining jobs."""
        told = self.command("squeue", "--noheader", "--array", "--format=%i %T")
        return [(job, state) for job, _, state in (line.partition(" ") for line in told.splitlines())]

    def command(self, *words: str, check: bool = True) -> str:
        """Run a command of Slurm and return its output."""
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert not check or done.returncode == 0, (words, done.stdout, done.stderr, self.told())
        return done.stdout

    def told(self) -> str:
        """The ends of all logs."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("*.out")]
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in logs)

    def end(self) -> None:
        """End jobs and daemons, and the remaining processes."""
        with suppress(subprocess.SubprocessError):
            subprocess.run(["scancel", "--full", f"--user={os.getuid()}"], timeout=END_S, check=False)
        for name in reversed(self.processes.copy()):
            self.stop(name)
        end = time.monotonic() + PATIENCE_S
        # One of them may start another before it ends
        while (left := self.left()) and time.monotonic() < end:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def left(self) -> list[int]:
        """The processes that this cluster has started, which have its configuration in their environment."""
        mark, found = os.fsencode(self.folder / "slurm.conf"), []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (process / "environ").read_bytes() and int(process.name) != os.getpid():
                    found.append(int(process.name))
        return found


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def running(folder: Path) -> Iterator[Slurm]:
    """Start a cluster. Commands of Slurm find it through the environment."""
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    text = CONFIGURATION.format(ports=_free_ports(2), user=user, folder=folder)
    (folder / "slurm.conf").write_text(text)
    before = {name: os.environ.get(name) for name in ("PATH", "SLURM_CONF")}
    os.environ["PATH"] += f":{SBIN}"
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    cluster = Slurm(folder)
    try:
        files = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid"}
        files |= {"seed-file": "munge.seed", "log-file": "munge.log"}
        words = [f"--{name}={folder / file}" for name, file in files.items()]
        cluster.start("munged", "--foreground", "--force", "--num-threads=2", *words)
        wait_until((folder / "munge.socket").exists, cluster.told)
        cluster.start("slurmd", "-D", "-N", "localhost")
        cluster.start_controller()
        yield cluster
    finally:
        cluster.end()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
