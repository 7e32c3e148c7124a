"""The process that is profiled: it only runs one variant at some problems on the GPU.

``python -m mini_dnn.profiling.workload FOLDER --shapes 1000,1,86,86,4,7,7``
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from mini_dnn.device import open_device
from mini_dnn.device.base import Buffer, Device
from mini_dnn.device.cuda import CudaDevice
from mini_dnn.device.tools import CRASHED
from mini_dnn.errors import DeviceError, LaunchError, MiniDnnError
from mini_dnn.measuring.measure import pointing_to_check
from mini_dnn.ops import Arrays
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, find

FAILED = 2  # exit status


class UnfilledCudaDevice(CudaDevice):
    """Does not fill new buffers: to initcheck, a fill would be the initialisation that it looks for.

    Buffers that the copy engine may write are still filled, because initcheck does not see those writes.
    """

    mapped: Collection[str] = ()  # see `Planned.mapped`

    def fill(self, buffer: Buffer) -> None:
        """Fill a buffer only if the copy engine may write it."""
        if buffer.name in self.mapped:
            super().fill(buffer)


def solve(variant: Variant, given: Sequence[tuple[Any, Arrays]], device: Device) -> None:
    """Run the variant once on each problem and its arrays.

    Raises
    ------
    DeviceError
        A batch must be split, which would add launches.
    """
    for problem, arrays in given:
        if isinstance(device, UnfilledCudaDevice):
            device.mapped = variant.planned(problem, device.max_shared_bytes).mapped
        with pointing_to_check(variant, problem):
            result = run(variant, problem, arrays, device)
        if result.steps > 1:
            raise DeviceError(
                f"{problem} does not fit the GPU's memory in one part, so more than {variant.name}'s "
                f"launches would be profiled; use a smaller --batch: {problem.batch // result.steps}"
            )


@contextmanager
def profiler_range() -> Iterator[None]:
    """Tell the profiler around this process when to start and stop."""
    import pycuda.driver as driver

    driver.start_profiler()
    try:
        yield
    finally:
        driver.stop_profiler()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the workload. Print the GPU's name, or the error."""
    parser = argparse.ArgumentParser(prog="mini_dnn.profiling.workload")
    parser.add_argument("variant")
    parser.add_argument("--shapes", nargs="+", required=True)
    parser.add_argument("--capture", action="store_true", help="run once more, marked for the profiler")
    parser.add_argument("--unfilled", action="store_true", help="leave fresh buffers uninitialised")
    args = parser.parse_args(argv)
    try:
        variant = find(args.variant)
        problems = [variant.operation.parse(text) for text in args.shapes]
        with closing(UnfilledCudaDevice() if args.unfilled else open_device("cuda")) as device:
            print(device.description, flush=True)
            given = [(problem, variant.operation.inputs(problem, seed=0)) for problem in problems]
            solve(variant, given, device)
            if args.capture:
                with profiler_range():
                    solve(variant, given, device)
    except MiniDnnError as error:
        print(f"error: {error}", file=sys.stderr)
        return CRASHED if isinstance(error, LaunchError) else FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
