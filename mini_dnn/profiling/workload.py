"""The process that profilers watch: it runs one variant's convolutions on the GPU, and nothing else.

``python -m mini_dnn.profiling.workload FOLDER --batch 1000 --layers conv1 conv2``
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import numpy as np

from mini_dnn.checking.check import inputs
from mini_dnn.device import open_device
from mini_dnn.device.base import Buffer, Device
from mini_dnn.device.cuda import CudaDevice
from mini_dnn.errors import DeviceError, LaunchError, MiniDnnError
from mini_dnn.ops.course import LAYERS, layer_shape
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.profiling.tools import CRASHED
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, find

FAILED = 2  # exit status


class UnfilledCudaDevice(CudaDevice):
    """Leaves fresh buffers as they are: to initcheck, a fill would be the initialisation it looks for."""

    def fill(self, buffer: Buffer) -> None:
        """Do nothing."""


def convolve(variant: Variant, arrays: Sequence[tuple[np.ndarray, np.ndarray]], device: Device) -> None:
    """Run the variant once on each pair of images and filters.

    Raises
    ------
    DeviceError
        A batch that has to be split, whose launches would be more than the variant's.
    """
    for x, w in arrays:
        result = run(x, w, variant, device)
        if result.steps > 1:
            raise DeviceError(
                f"{ConvShape.of(x, w)} does not fit the GPU's memory in one part, so more than "
                f"{variant.name}'s launches would be seen; take a smaller --batch: {len(x) // result.steps}"
            )


@contextmanager
def profiler_range() -> Iterator[None]:
    """Tell the profiler around this process when to start and when to stop."""
    import pycuda.driver as driver

    driver.start_profiler()
    try:
        yield
    finally:
        driver.stop_profiler()


def main(argv: Sequence[str] | None = None) -> int:
    """Run; prints the GPU's name, or what went wrong."""
    parser = argparse.ArgumentParser(prog="mini_dnn.profiling.workload")
    parser.add_argument("variant")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--layers", nargs="+", default=list(LAYERS))
    parser.add_argument("--capture", action="store_true", help="run once more, marked for the profiler")
    parser.add_argument("--unfilled", action="store_true", help="leave fresh buffers uninitialised")
    args = parser.parse_args(argv)
    try:
        shapes = [layer_shape(layer, args.batch) for layer in args.layers]
        variant = find(args.variant)
        with closing(UnfilledCudaDevice() if args.unfilled else open_device("cuda")) as device:
            print(device.description, flush=True)
            arrays = [inputs(shape, seed=0) for shape in shapes]
            convolve(variant, arrays, device)
            if args.capture:
                with profiler_range():
                    convolve(variant, arrays, device)
    except MiniDnnError as error:
        print(f"error: {error}", file=sys.stderr)
        return CRASHED if isinstance(error, LaunchError) else FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
