"""The job for a profiler: a variant at some problems, in a separate process."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mini_dnn.checking.launches import shared_limit
from mini_dnn.device.tools import CRASHED, run
from mini_dnn.errors import MiniDnnError
from mini_dnn.variant import Variant
from mini_dnn.variant.plan import Gemm, Launch


@dataclass(frozen=True)
class Job:
    """What to profile, and the folder for all results."""

    variant: Variant
    problems: Mapping[str, Any]  # by name
    folder: Path

    def command(self, *flags: str, only: str = "") -> list[str]:
        """The command line of the workload, for all problems or for one."""
        words = [sys.executable, "-m", "mini_dnn.profiling.workload", str(self.variant.folder)]
        chosen = [self.problems[only]] if only else self.problems.values()
        return [*words, "--shapes", *(problem.text for problem in chosen), *flags]

    def mapped(self) -> list[str]:
        """The arrays that the copy engine may write at any of the problems: see `Planned.mapped`."""
        planned = [self.variant.planned(problem, shared_limit(0)) for problem in self.problems.values()]
        return list(dict.fromkeys(name for one in planned for name in one.mapped))

    def kernels(self) -> list[str] | None:
        """The names of the variant's kernels.

        The result is None if its plan also calls a library, whose kernels have unknown names.
        """
        steps = [
            step
            for problem in self.problems.values()
            for step in self.variant.planned(problem, shared_limit(0)).steps
        ]
        if any(isinstance(step, Gemm) for step in steps):
            return None
        return list(dict.fromkeys(step.kernel for step in steps if isinstance(step, Launch)))


def rehearse(job: Job, may_crash: bool = False) -> str:
    """Run the workload without a tool, so that its own errors are shown plainly, and return the GPU's name.

    It also leaves the compiled kernels in the cache, so that no compiler runs under the tool.

    Parameters
    ----------
    may_crash
        Whether the tool's purpose is to find kernels that fail.

    Raises
    ------
    MiniDnnError
        The run failed: there is no GPU, a kernel does not compile, or memory is exhausted.
    """
    done = run(job.command())
    if done.status and not (may_crash and done.status == CRASHED):
        message = done.output.partition("error: ")[2] or done.output
        raise MiniDnnError(
            f"{job.variant.name} does not run here, so nothing was profiled: {message.strip()}"
        )
    return (done.output.splitlines() or ["unknown GPU"])[0]
