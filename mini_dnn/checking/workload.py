"""The process that Compute Sanitizer watches for ``check``: one run of a variant at each shape.

``python -m mini_dnn.checking.workload FOLDER --shapes 2,1,9,21,3,2,5 --seed 0 --runs FILE``
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mini_dnn.checking.check import inputs
from mini_dnn.checking.launches import CURES, check_launches, static_finding
from mini_dnn.checking.verdicts import Allocation, Run
from mini_dnn.device.base import Buffer, Module
from mini_dnn.device.cuda import CudaBuffer, CudaDevice
from mini_dnn.device.emulator.explain import Array, Finding
from mini_dnn.errors import LaunchError, MiniDnnError, SharedMemoryError
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.running.runner import fitting, run
from mini_dnn.variant import Variant, find

FAILED = 2  # exit status


class WatchedCudaDevice(CudaDevice):
    """Knows where its buffers lie.

    Parameters
    ----------
    unfilled
        Leave fresh buffers as they are: to initcheck, a fill would be the initialisation it looks for.
    """

    def __init__(self, unfilled: bool) -> None:
        super().__init__()
        self.allocations: list[Allocation] = []
        self._unfilled = unfilled

    def empty(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, fill: bool = True
    ) -> CudaBuffer:
        """Allocate a buffer, and note it."""
        buffer = super().empty(name, shape, dtype, fill)
        array = Array(name, "global", shape, buffer.dtype.itemsize)
        self.allocations.append(Allocation(array, int(buffer.memory), buffer.nbytes))
        return buffer

    def fill(self, buffer: Buffer) -> None:
        """Fill a buffer, unless it is to stay as it is."""
        if not self._unfilled:
            super().fill(buffer)

    def static_shared_bytes(self, module: Module) -> Callable[[str], int]:
        """How many bytes of static shared arrays each kernel of a module has."""
        return lambda kernel: int(self._function(module, kernel).shared_size_bytes)


def run_shape(variant: Variant, shape: ConvShape, seed: int, device: WatchedCudaDevice) -> Run:
    """Run a variant; a failure on the GPU is part of the answer."""
    result = Run(shape, device.description, device.arch)
    variant = fitting(variant, shape, device.max_shared_bytes)
    try:
        module = device.compile(variant.source, variant.defines_for(shape))
    except SharedMemoryError as error:
        return replace(result, launch=static_finding(variant, error))
    try:
        static = device.static_shared_bytes(module)
        launch = check_launches(variant, shape, device.arch, static)
    except LaunchError as error:  # of a kernel that can be read in the source, but not be looked up
        launch = Finding("launch", str(error), cure=CURES["name"])
    if launch:
        return replace(result, launch=launch)
    device.allocations.clear()
    try:
        result = replace(result, y=run(*inputs(shape, seed), variant, device).y)
    except LaunchError as error:
        result = replace(result, failure=str(error))
    return replace(result, allocations=tuple(device.allocations))


def main(argv: Sequence[str] | None = None) -> int:
    """Run, and write the `Run` of each shape."""
    parser = argparse.ArgumentParser(prog="mini_dnn.checking.workload")
    parser.add_argument("variant")
    parser.add_argument("--shapes", nargs="+", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--unfilled", action="store_true", help="leave fresh buffers uninitialised")
    args = parser.parse_args(argv)
    shapes = [ConvShape(*map(int, text.split(","))) for text in args.shapes]
    runs = []
    try:
        variant = find(args.variant)
        with closing(WatchedCudaDevice(args.unfilled)) as device:
            for shape in shapes:
                runs.append(run_shape(variant, shape, args.seed, device))
                if runs[-1].failure:  # the context cannot be used any more
                    break
    except MiniDnnError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    args.runs.write_bytes(pickle.dumps(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
