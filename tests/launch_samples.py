"""A kernel, and a variant whose launch can have any grid, block, arguments, shared memory and cluster."""

from pathlib import Path

KERNEL = """// scale(int) is the kernel's first form
extern "C" __global__ void __launch_bounds__(256) scale(const float* __restrict__ x, float* y,
                                                        long long n, float factor) {
  __shared__ float tile[4096];
  extern __shared__ float more[];
  tile[threadIdx.x] = more[threadIdx.x] = 0.0f;
  __syncthreads();
  if (threadIdx.x < n) y[threadIdx.x] = factor * x[threadIdx.x] + tile[threadIdx.x + 1];
}
"""
VARIANT = """import numpy as np

from mini_dnn.variant import Launch, Variant

NAME, GRID, BLOCK, SHARED = "scale", (1,), (64,), 0


def plan(s):
    return [
        Launch(
            "scale",
            {grid},
            {block},
            {args},
            shared_bytes={shared},
            cluster={cluster},
        )
    ]


VARIANT = Variant(op="conv2d", idea="", plan=plan)
"""
ARGS = '("x", "y", np.int64(4), 2.0)'
DEFAULTS = {"grid": "(1,)", "block": "(64,)", "args": ARGS, "shared": "256", "cluster": "1"}


def student(folder: Path, kernel: str = KERNEL, **changed: str) -> Path:
    """A variant's folder with the given launch."""
    (folder / "kernel.cu").write_text(kernel)
    (folder / "variant.py").write_text(VARIANT.format(**{**DEFAULTS, **changed}))
    return folder
