"""Find NVIDIA's command-line tools, run them around the workload, and explain how they fail."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.errors import DeviceError, MiniDnnError
from mini_dnn.ops.course import layer_shape
from mini_dnn.paths import ROOT
from mini_dnn.variant import Variant
from mini_dnn.variant.plan import Gemm, Launch

HOMES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
USUAL_PLACES = (  # below /
    "usr/local/cuda/bin",
    "opt/nvidia/nsight-compute/*",
    "opt/nvidia/nsight-systems/*/bin",
    "opt/nvidia/nsight-systems-cli/*/bin",
)
INSTALL = {
    "ncu": "Nsight Compute: it is part of the CUDA toolkit (package nsight-compute)",
    "nsys": "Nsight Systems: NVIDIA's package nsight-systems-cli, or the CUDA toolkit's full installer",
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
        "the program compute-sanitizer lies apart from its libraries; install the CUDA toolkit's package "
        "cuda-sanitizer-api, and put the toolkit's bin folder on PATH, not a copy of the program",
    ),
    (
        "Device not supported",
        "this tool does not know this GPU, or a virtual GPU keeps it from the hardware; "
        "install the tool that belongs to the driver's CUDA version, or use another machine",
    ),
)
CRASHED = 3  # exit status of the workload: a kernel failed while it ran
SHOWN_LINES = 15  # of a tool's output, in an error


@dataclass(frozen=True)
class Job:
    """What to watch, and the folder for all that comes of it."""

    variant: Variant
    batch: int
    layers: tuple[str, ...]
    folder: Path

    def command(self, *flags: str, layers: Sequence[str] = ()) -> list[str]:
        """The command line of the workload."""
        words = [sys.executable, "-m", "mini_dnn.profiling.workload", str(self.variant.folder)]
        return [*words, "--batch", str(self.batch), "--layers", *(layers or self.layers), *flags]

    def kernels(self) -> list[str] | None:
        """Names of the variant's kernels; None if its plan also calls a library, whose names nobody knows."""
        assert self.variant.plan is not None, "a variant that runs on the host has nothing to profile"
        steps = [step for layer in self.layers for step in self.variant.plan(layer_shape(layer, self.batch))]
        if any(isinstance(step, Gemm) for step in steps):
            return None
        return list(dict.fromkeys(step.kernel for step in steps if isinstance(step, Launch)))


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    command: tuple[str, ...]
    status: int
    output: str  # stdout and stderr together
    timed_out: bool = False


def find_tool(name: str) -> Path:
    """The tool's program: on the path, in the CUDA toolkit, or where NVIDIA's packages put it.

    Raises
    ------
    DeviceError
        It is not installed.
    """
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    candidates = [Path(os.environ[home], "bin", name) for home in HOMES if os.environ.get(home)]
    for place in USUAL_PLACES:
        candidates += sorted(Path("/").glob(f"{place}/{name}"), reverse=True)  # the newest version first
    found = next((path for path in candidates if path.is_file()), None)
    if found is not None:
        return found
    raise DeviceError(
        f"{name} was not found on PATH, in CUDA_HOME or in /opt/nvidia. Install {INSTALL[name]}, "
        "or put its folder on PATH"
    )


def run(command: Sequence[str], log: Path | None = None, limit_s: float | None = None) -> Done:
    """Run a command to its end; its output also goes to ``log``, and it itself to a list beside that.

    Parameters
    ----------
    limit_s
        End it, and all that it started, after so many seconds.
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
            start_new_session=True,  # a tool starts the program that it watches: they end together
        )
    except OSError as error:
        raise MiniDnnError(
            f"{command[0]} cannot be started: {error}; look whether it may be executed, or install it anew"
        ) from error
    timed_out = False
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        timed_out = True
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    except BaseException:  # Ctrl-C, which reaches this session alone
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if log is not None:
        log.write_text(output)
        with (log.parent / "commands.txt").open("a") as commands:
            commands.write(f"{shlex.join(command)}\n")
    return Done(tuple(command), process.returncode, output, timed_out)


def rehearse(job: Job, may_crash: bool = False) -> str:
    """Run the workload without a tool, so that its own errors are seen plainly; the GPU's name.

    It also leaves the compiled kernels in the cache: no compiler then runs under the tool.

    Parameters
    ----------
    may_crash
        Whether a kernel that fails while it runs is what the tool is for.

    Raises
    ------
    MiniDnnError
        It fails: no GPU, a kernel that does not compile, no memory.
    """
    done = run(job.command())
    if done.status and not (may_crash and done.status == CRASHED):
        message = done.output.partition("error: ")[2] or done.output
        raise MiniDnnError(
            f"{job.variant.name} does not run here, so nothing was profiled: {message.strip()}"
        )
    return (done.output.splitlines() or ["unknown GPU"])[0]


def failure(tool: str, done: Done, log: Path) -> MiniDnnError:
    """An error that explains why a tool has ended without its report."""
    for words, meaning in KNOWN_FAILURES:
        if words in done.output:
            return MiniDnnError(f"{tool} failed ({words}): {meaning}. Its whole output: {log}")
    last = "\n".join(f"  {line}" for line in done.output.strip().splitlines()[-SHOWN_LINES:])
    return MiniDnnError(
        f"{tool} ended with exit status {done.status} and no report. The end of its output (whole: {log}):\n"
        f"{last}\nThe command, to try it by hand:\n  {shlex.join(done.command)}"
    )
