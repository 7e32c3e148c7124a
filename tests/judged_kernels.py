"""Short kernels, treated as by the grader: compiled for checked mode, judged, and run."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

from mini_dnn.device.base import LaunchConfig
from mini_dnn.device.emulator.build import build_kernels
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.runtime_build import build_runtime
from mini_dnn.grading.confined import imports

KERNEL = """
extern "C" __global__ void k(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) USE;
}
"""
ALONE = "__attribute__((noipa))"  # the emulator ignores noinline
RETURNS = "struct P { float a[24]; };\n" + ALONE + " __device__ P f(float s) { return {{s, s, s, s, s, s}}; }"
needs_x86_64 = pytest.mark.skipif(
    platform.machine() != "x86_64" or find_compiler().is_clang, reason="machine code of x86-64, by g++"
)


def judged(before: str, use: str, folder: Path) -> None:
    """Compile a kernel file as the grader does, and judge it."""
    source, compiler = folder / "kernel.cu", find_compiler()
    source.write_text(before + KERNEL.replace("if (i < n) USE;", "if (i < n) { " + use + "; }"))
    imports.check_source(source, {}, compiler)
    library = build_kernels(source, {}, compiler, build_runtime(compiler, False, True), True)
    imports.check_library(library, True)


def launched(folder: Path, n: int = 3) -> np.ndarray:
    """Return x, which held zeros, after one thread of a judged kernel has run.

    Raises
    ------
    KernelError
        If checked mode finds a mistake; the message describes it.
    """
    device = CheckedEmulator()
    try:
        x = device.empty("x", (4096,), np.float32)
        device.copy_in(x, np.zeros(4096, np.float32))
        module = device.compile(folder / "kernel.cu", {})
        device.launch(module, "k", LaunchConfig((1, 1), (1,)), [x, np.int32(n)])
        out = np.empty(4096, np.float32)
        device.copy_out(x, out)
        return out
    finally:
        device.close()
