"""Arrays on the GPU, the comparison and the clock of a kernel that CuPy launches."""

from collections.abc import Callable
from pathlib import Path

import cupy
import numpy as np
from cupyx.profiler import benchmark

ANSWER = np.dtype([("at", "<u8"), ("expected", "<f8"), ("bound", "<f8")])
PART = 1 << 22  # elements that are drawn at a time


def draw(sequence: int, shape: tuple[int, ...], dtype: str, low: float, high: float) -> cupy.ndarray:
    """Random values from ``low`` on and below ``high``, from a hash of the sequence and each element's index.

    mini_dnn has drawn the same numbers, bit for bit, for the answers.
    """
    size = int(np.prod(shape))
    values = np.empty(size, dtype)
    for start in range(0, size, PART):
        end = min(start + PART, size)
        hashed = np.arange(start, end, dtype=np.uint64) + np.uint64(sequence << 40)
        for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
            hashed *= np.uint64(factor)
            hashed ^= hashed >> np.uint64(32)
        uniform = (hashed >> np.uint64(40)) * 2.0**-24
        values[start:end] = (uniform * (high - low) + low).astype(np.float32).astype(dtype)
    return cupy.asarray(values.reshape(shape))


def fresh(shape: tuple[int, ...], dtype: str) -> cupy.ndarray:
    """An array whose bytes are 0xFF, which is NaN, so that an element that nobody writes is found."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return cupy.asarray(np.full(size, 0xFF, np.uint8).view(dtype).reshape(shape))


def agrees(name: str, array: cupy.ndarray) -> bool:
    """Compare some elements of an output with float64, and look for NaN in all of them."""
    found = cupy.asnumpy(array).ravel()
    answers = np.fromfile(Path(__file__).with_name(f"expected-{name}.bin"), ANSWER)
    error = np.abs(found[answers["at"]].astype(np.float64) - answers["expected"])
    wrong = int((~(error <= answers["bound"])).sum())  # NaN is wrong
    missing = int(np.isnan(found.astype(np.float64)).sum())
    print(f"{name}: {len(answers):,} elements compared with float64, {wrong:,} wrong; {missing:,} are NaN")
    return not wrong and not missing


def time(steps: Callable[[], None], flops: float, moved: float) -> None:
    """Print the median of 50 runs. What the kernel reads may still be in the L2 cache from the run before."""
    seconds = float(np.median(benchmark(steps, n_repeat=50, n_warmup=5).gpu_times))
    print(f"{seconds * 1e3:.3f} ms, {flops / seconds / 1e12:.2f} TFLOP/s, {moved / seconds / 1e9:.0f} GB/s")
