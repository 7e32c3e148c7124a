"""Run kernel files on the emulator with NumPy arrays."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from mini_dnn.device.base import Buffer, LaunchConfig, Scalar
from mini_dnn.device.clusters import ALONE, Sizes
from mini_dnn.device.emulator import EmulatorDevice

FOLDER = Path(__file__).parent / "kernels"


class Kernels:
    """A compiled kernel file. Calls pass arrays as buffers, and the arrays receive what the kernel wrote."""

    def __init__(self, device: EmulatorDevice, source: Path | str, **defines: int | float | str) -> None:
        self.device = device
        self.module = device.compile(FOLDER / source, defines)

    def __call__(
        self,
        kernel: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        *args: np.ndarray | Scalar,
        shared: int = 0,
        cluster: Sizes = ALONE,
    ) -> None:
        with ExitStack() as stack:
            passed: list[Buffer | Scalar] = []
            for i, arg in enumerate(args):
                if isinstance(arg, np.ndarray):
                    buffer = self.device.empty(f"arg{i}", arg.shape, arg.dtype)
                    stack.callback(buffer.free)
                    self.device.copy_in(buffer, arg)
                    passed.append(buffer)
                else:
                    passed.append(arg)
            self.device.launch(self.module, kernel, LaunchConfig(grid, block, shared, cluster), passed)
            for buffer, arg in zip(passed, args, strict=True):
                if isinstance(arg, np.ndarray):
                    self.device.copy_out(buffer, arg)  # type: ignore[arg-type]


def over(n: int) -> tuple[tuple[int], tuple[int]]:
    """The grid and the block for n threads."""
    return (-(-n // 256),), (256,)


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    """Compare numbers of 16 bits. Any NaN matches any NaN."""
    with np.errstate(invalid="ignore"):
        nan = np.isnan(expected)
        np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found[~nan].view(np.uint16), expected[~nan].view(np.uint16))


def line_of(source: str, mark: str) -> int:
    """The number of the first line of a kernel file that contains ``mark``."""
    lines = (FOLDER / source).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if mark in line)
