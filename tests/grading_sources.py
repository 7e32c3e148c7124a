"""Small, honest submissions as text, which tests then change."""

POOL_PLAN = """
from mini_dnn.variant import ConvPoolShape, Launch, Variant, ceil_div


def plan(s: ConvPoolShape) -> list[Launch]:
    _, M, rows, columns = s.y
    grid = (ceil_div(rows * columns, 64), M, s.N)
    return [Launch("pooled", grid, (64,), ("x", "w", "y", s.C, s.H, s.W, s.M, s.R, s.S, s.pool))]


VARIANT = Variant(op="conv2d_relu_pool", plan=plan, idea="a thread for each output")
"""
POOL_KERNEL = """
extern "C" __global__ void pooled(const float* x, const float* w, float* y, int C, int H, int W, int M, int R,
                                  int S, int pool) {
  const int P = H - R + 1, Q = W - S + 1, rows = (P + pool - 1) / pool, columns = (Q + pool - 1) / pool;
  const int at = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (at >= rows * columns) return;
  float most = 0;
  for (int p = at / columns * pool; p < min(P, at / columns * pool + pool); p++)
    for (int q = at % columns * pool; q < min(Q, at % columns * pool + pool); q++) {
      float acc = 0;
      for (int c = 0; c < C; c++)
        for (int r = 0; r < R; r++)
          for (int s = 0; s < S; s++)
            acc += x[((n * C + c) * H + p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
      most = fmaxf(most, acc);
    }
  y[(n * M + m) * rows * columns + at] = most;
}
"""
SCRATCH_PLAN = """
from mini_dnn.ops.softmax import Rows
from mini_dnn.variant import Array, Launch, Variant, ceil_div


def scratch(p: Rows) -> dict[str, Array]:
    return {"ones": Array((p.N, p.L), "float16"), "flags": Array((p.N,), "uint8")}


def plan(p: Rows) -> list[Launch]:
    grid = (ceil_div(p.N, 32),)
    return [
        Launch("prepare", grid, (32,), ("ones", "flags", p.N, p.L)),
        Launch("softmax", grid, (32,), ("x", "ones", "flags", "y", p.N, p.L)),
    ]


VARIANT = Variant(op="softmax", plan=plan, scratch=scratch, idea="with buffers of small types")
"""
SCRATCH_KERNEL = """
#include <cuda_fp16.h>

extern "C" __global__ void prepare(__half* ones, unsigned char* flags, int N, int L) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= N) return;
  for (int l = 0; l < L; l++) ones[n * L + l] = __float2half(1.0f);
  flags[n] = 1;
}

extern "C" __global__ void softmax(const float* x, const __half* ones, const unsigned char* flags, float* y,
                                   int N, int L) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= N) return;
  float top = x[n * L], sum = 0;
  for (int l = 1; l < L; l++) top = fmaxf(top, x[n * L + l]);
  for (int l = 0; l < L; l++) sum += expf(x[n * L + l] - top) * __half2float(ones[n * L + l]);
  for (int l = 0; l < L; l++) y[n * L + l] = flags[n] * expf(x[n * L + l] - top) / sum;
}
"""
HOST = """
import numpy as np

from mini_dnn.variant import Variant


def host(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


VARIANT = Variant(op="softmax", host=host, idea="NumPy")
"""
