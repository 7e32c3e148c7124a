"""The process that Compute Sanitizer watches for ``check``: it runs a variant at each problem once.

``python -m mini_dnn.checking.workload FOLDER --shapes 2,1,9,21,3,2,5 --seed 0 --runs FILE``
"""

from __future__ import annotations

import argparse
import pickle
import signal
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mini_dnn.checking.check import LARGE, RUNS_AT_FIRST
from mini_dnn.checking.launches import CURES, check_launches, static_finding
from mini_dnn.checking.repeat import Examples, wrong_again
from mini_dnn.checking.verdicts import Allocation, Run
from mini_dnn.device.base import Buffer, Module
from mini_dnn.device.cuda import CudaBuffer, CudaDevice
from mini_dnn.device.cuda_module import CudaModule
from mini_dnn.device.finding import Finding, Target
from mini_dnn.errors import LaunchError, MiniDnnError, SharedMemoryError
from mini_dnn.running.runner import run_plans
from mini_dnn.variant import Planned, Variant, find

FAILED = 2  # exit status


class WatchedCudaDevice(CudaDevice):
    """A GPU that records where its buffers are.

    Parameters
    ----------
    unfilled
        Do not fill new buffers, because to initcheck a fill would be the initialisation that it looks for.
        Buffers that the copy engine may write are still filled, because initcheck does not see those writes.
    """

    def __init__(self, unfilled: bool) -> None:
        super().__init__()
        self.allocations: list[Allocation] = []
        self.axes: Mapping[str, str] = {}  # letters for each buffer's axes, for messages
        self.mapped: Collection[str] = ()  # see `Planned.mapped`
        self._unfilled = unfilled

    def empty(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, fill: bool = True
    ) -> CudaBuffer:
        """Allocate a buffer and record it."""
        buffer = super().empty(name, shape, dtype, fill)
        array = Target(name, "global", shape, buffer.dtype.itemsize, self.axes.get(name, ""))
        self.allocations.append(Allocation(array, int(buffer.memory), buffer.nbytes))
        return buffer

    def fill(self, buffer: Buffer) -> None:
        """Fill a buffer, unless it must stay unfilled."""
        if not self._unfilled or buffer.name in self.mapped:
            super().fill(buffer)

    def static_shared_bytes(self, module: Module) -> Callable[[str], int]:
        """Return a function for the bytes of static shared arrays in each kernel of a module."""
        assert isinstance(module, CudaModule), "it is this device's"
        return lambda kernel: module.kernel(kernel).static_shared_bytes


def run_problem(
    variant: Variant, problem: Any, seed: int, device: WatchedCudaDevice, kernels_s: float
) -> Run:
    """Run a variant. A failure on the GPU is part of the result.

    SIGALRM ends this process if the kernels take more than ``kernels_s`` seconds; 0 means no limit.
    """
    result = Run(problem, device.description, device.arch)

    def plan(n: int) -> Planned:
        return variant.planned(problem.with_batch(n), device.max_shared_bytes)

    planned = plan(problem.batch)
    device.axes = {name: array.axes for name, array in planned.arrays.items()}
    device.mapped = planned.mapped
    result = replace(result, mapped=planned.mapped)
    try:
        module = device.compile(planned.source, planned.defines)
    except SharedMemoryError as error:
        return replace(result, launch=static_finding(planned.source, error))
    try:
        launch = check_launches(plan, problem.batch, device.arch, device.static_shared_bytes(module))
    except LaunchError as error:  # for a kernel that can be read in the source but not looked up
        launch = Finding("launch", str(error), cure=CURES["name"])
    if launch:
        return replace(result, launch=launch)
    device.allocations.clear()
    arrays = variant.operation.inputs(problem, seed)
    signal.setitimer(signal.ITIMER_REAL, kernels_s)
    try:
        result = replace(result, outputs=run_plans(plan, problem, arrays, device).outputs)
        if kernels_s and planned.nbytes <= LARGE:  # without a checker
            given = Examples(variant.operation, planned, arrays, seed).of(RUNS_AT_FIRST)
            result = replace(result, again=wrong_again(planned, device, given))
    except LaunchError as error:
        result = replace(result, failure=str(error))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return replace(result, allocations=tuple(device.allocations))


def main(argv: Sequence[str] | None = None) -> int:
    """Run each problem and write its `Run`."""
    parser = argparse.ArgumentParser(prog="mini_dnn.checking.workload")
    parser.add_argument("variant")
    parser.add_argument("--shapes", nargs="+", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--unfilled", action="store_true", help="leave fresh buffers uninitialised")
    parser.add_argument("--kernels-s", type=float, default=0.0, help="most seconds at a problem")
    args = parser.parse_args(argv)
    runs = []
    try:
        variant = find(args.variant)
        problems = [variant.operation.parse(text) for text in args.shapes]
        with closing(WatchedCudaDevice(args.unfilled)) as device:
            for problem in problems:
                runs.append(run_problem(variant, problem, args.seed, device, args.kernels_s))
                if runs[-1].failure:  # the context is unusable
                    break
    except MiniDnnError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    args.runs.write_bytes(pickle.dumps(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
