"""Find NVIDIA's command-line tools, run a program under them, and explain their errors."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.errors import DeviceError, MiniDnnError
from mini_dnn.paths import ROOT

HOMES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
USUAL_PLACES = (  # relative to /
    "usr/local/cuda/bin",
    "opt/nvidia/nsight-compute/*",
    "opt/nvidia/nsight-systems/*/bin",
    "opt/nvidia/nsight-systems-cli/*/bin",
)
INSTALL = {
    "ncu": "Nsight Compute: it is part of the CUDA toolkit (package nsight-compute)",
    "nsys": "Nsight Systems: NVIDIA's package nsight-systems-cli, or the CUDA toolkit's full installer",
    "nvdisasm": "it with the CUDA toolkit, or by 'pip install nvidia-cuda-nvdisasm'",
    "compute-sanitizer": "Compute Sanitizer: it is part of the CUDA toolkit (package cuda-sanitizer-api)",
}
KNOWN_FAILURES = (
    (
        "ERR_NVGPUCTRPERM",
        "the driver keeps the GPU's performance counters for administrators. Whoever administers this "
        "machine can allow them for all users with the line 'options nvidia "
        "NVreg_RestrictProfilingToAdminUsers=0' in /etc/modprobe.d/nvidia-profiler.conf and a reboot; a "
        "container needs --cap-add SYS_ADMIN besides. As root, or with sudo, it works at once. --tool nsys "
        "and --tool sanitizer need no counters",
    ),
    (
        "driver resource was unavailable",
        "another program uses the GPU's performance counters, often the monitor DCGM; an administrator "
        "can pause it with 'dcgmi profile --pause', or wait until the other profiler has ended",
    ),
    (
        "LibraryNotLoaded",
        "the profiler cannot reach the driver here, as in some containers and on some virtual GPUs; "
        "run on a machine whose driver is NVIDIA's own, not a proxy",
    ),
    (
        "Unable to find injection library",
        "the program compute-sanitizer is not beside its libraries; install the CUDA toolkit's package "
        "cuda-sanitizer-api, and put the toolkit's bin folder on PATH, not a copy of the program",
    ),
    (
        "Device not supported",
        "this tool does not know this GPU, or a virtual GPU keeps it from the hardware; "
        "install the tool that belongs to the driver's CUDA version, or use another machine",
    ),
)
CRASHED = 3  # exit status of the workload: a kernel failed while running
SHOWN_LINES = 15  # of a tool's output in an error message


@dataclass(frozen=True)
class Done:
    """A completed command."""

    command: tuple[str, ...]
    status: int
    output: str  # stdout and stderr together
    timed_out: bool = False


def search(name: str) -> Path | None:
    """Find a program of the CUDA toolkit: in the folder that one of `HOMES` names, on the path, or elsewhere.

    Programs of one toolkit belong together: an older nvdisasm cannot read what a newer nvcc writes.
    """
    return next((path for path in _candidates(name) if path.is_file()), None)


def _candidates(name: str) -> Iterator[Path]:
    homes = [os.environ.get(home) for home in HOMES]
    yield from (Path(home, "bin", name) for home in homes if home)
    if on_path := shutil.which(name):
        yield Path(on_path)
    for place in USUAL_PLACES:
        yield from sorted(Path("/").glob(f"{place}/{name}"), reverse=True)  # newest version first


def find_tool(name: str) -> Path:
    """Find a tool as `search` does, or in the folders of NVIDIA's packages for Python.

    Raises
    ------
    DeviceError
        The tool is not installed.
    """
    packages = sorted(Path(sys.prefix).glob(f"lib/python*/site-packages/nvidia/*/bin/{name}"))
    found = search(name) or next((path for path in packages if path.is_file()), None)
    if found is not None:
        return found
    raise DeviceError(
        f"{name} was not found on PATH, in CUDA_HOME or in /opt/nvidia. Install {INSTALL[name]}, "
        "or put its folder on PATH"
    )


def run(command: Sequence[str], log: Path | None = None, limit_s: float | None = None) -> Done:
    """Run a command to its end. Its output is also written to ``log``, and the command to a list next to it.

    Parameters
    ----------
    limit_s
        The time in seconds after which the command, and all that it started, is ended.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "LC_ALL": "C"}
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,  # a tool starts the program that it profiles: both must end together
        )
    except OSError as error:
        raise MiniDnnError(
            f"{command[0]} cannot be started: {error}; check whether it is executable, or install it again"
        ) from error
    timed_out = False
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    except BaseException:  # such as Ctrl-C, which only this session receives
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if log is not None:
        log.write_text(output)
        with (log.parent / "commands.txt").open("a") as commands:
            commands.write(f"{shlex.join(command)}\n")
    return Done(tuple(command), process.returncode, output, timed_out)


def failure(tool: str, done: Done, log: Path) -> MiniDnnError:
    """Return an error that explains why a tool ended without its report."""
    for words, meaning in KNOWN_FAILURES:
        if words in done.output:
            return MiniDnnError(f"{tool} failed ({words}): {meaning}. Its whole output: {log}")
    last = "\n".join(f"  {line}" for line in done.output.strip().splitlines()[-SHOWN_LINES:])
    return MiniDnnError(
        f"{tool} ended with exit status {done.status} and no report. The end of its output (whole: {log}):\n"
        f"{last}\nThe command, to try it by hand:\n  {shlex.join(done.command)}"
    )
