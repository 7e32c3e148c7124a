"""Arrays on the GPU, the comparison and the clock of a kernel that CuPy launches."""

from collections.abc import Callable
from pathlib import Path

import cupy
import numpy as np
from cupyx.profiler import benchmark
from values import ANSWER, values


def draw(sequence: int, shape: tuple[int, ...], dtype: str, low: float, high: float) -> cupy.ndarray:
    """Generate an input, see `values`."""
    return cupy.asarray(values(sequence, shape, low, high).astype(dtype))


def fresh(shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
    """Return an array whose bytes are 0xFF, which is NaN, so that unwritten elements are found."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return cupy.asarray(np.full(size, 0xFF, np.uint8).view(dtype).reshape(shape))


def agrees(name: str, array: cupy.ndarray) -> bool:
    """Compare some elements of an output with float64, and look for NaN in all elements."""
    found = cupy.asnumpy(array).ravel()
    answers = np.fromfile(Path(__file__).with_name(f"expected-{name}.bin"), ANSWER)
    error = np.abs(found[answers["at"]].astype(np.float64) - answers["expected"])
    wrong = int((~(error <= answers["bound"])).sum())  # NaN is wrong
    missing = int(np.isnan(found.astype(np.float64)).sum())
    print(f"{name}: {len(answers):,} elements compared with float64, {wrong:,} wrong; {missing:,} are NaN")
    return not wrong and not missing and len(answers) > 0


def time(steps: Callable[[], None], flops: float, moved: float) -> None:
    """Print the median of 50 runs. The inputs may still be in the L2 cache from the previous run."""
    seconds = float(np.median(benchmark(steps, n_repeat=50, n_warmup=5).gpu_times))
    print(f"{seconds * 1e3:.3f} ms, {flops / seconds / 1e12:.2f} TFLOP/s, {moved / seconds / 1e9:.0f} GB/s")
