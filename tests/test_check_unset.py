"""Uninitialised variables that no instruction of the processor reveals: whole numbers, halves, copies."""

from pathlib import Path

import pytest
from check_plans import direct

from mini_dnn.checking.check import check
from mini_dnn.cli.check import describe
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import Variant

SHAPE = ConvShape(2, 2, 9, 21, 3, 2, 5)
KERNEL = """\
#include <cuda_fp16.h>
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M,
                                int R, int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y, n = blockIdx.z;
  if (pixel >= P * Q) return;
  const int p = pixel / Q, q = pixel % Q;
  BEFORE
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++) {
        const float product = x[((n * C + c) * H + p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
        LOOP
      }
  y[((n * M + m) * P + p) * Q + q] = RESULT;
}
"""
STORE = "y[((n * M + m)"
CASES = {  # a declaration, the body of the loop, the stored value; the line that is reported
    "double": ("double acc;", "acc += product;", "acc", STORE),
    "half": ("__half acc;", "acc = acc + __float2half(product);", "__half2float(acc)", STORE),
    "halves": (
        "__half acc[2];",
        "acc[c % 2] = acc[c % 2] + __float2half(product);",
        "__half2float(acc[0] + acc[1])",
        "",
    ),
    "counter": (
        "float acc = 0.0f; int count;",
        "count++, acc += product;",
        "(count == C * R * S ? acc : 0.0f)",
        STORE,
    ),
    "none": (
        "float acc, more; if (p >= 0) acc = 0.0f; if (n > 5) more = 1.0f;",
        "acc += product;",
        "acc",
        None,
    ),
    "none that matters": (
        "float acc = 0.0f; int count;",
        "count += s, acc += product;",
        "count == 3 ? acc : acc + 0.0f",
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_uninitialised_variables(name: str, tmp_path: Path) -> None:
    before, loop, result, at = CASES[name]
    text = KERNEL.replace("BEFORE", before).replace("LOOP", loop).replace("RESULT", result)
    (tmp_path / "kernel.cu").write_text(text)
    variant = Variant("conv2d", "", direct(), precision="fp16_sum", folder=tmp_path, name=name)
    report = check(variant, [SHAPE], schedules=["forward"])
    told = "\n".join(describe(report))
    if at is None:
        assert report.clean, told
        return
    (finding,) = report.findings
    assert finding.kind == "uninitialised", told
    if not at:
        assert finding.place is None, told
    else:  # g++ 13 names the declaration of some variables, g++ 12 the use
        assert finding.place, told
        assert any(part in finding.place.code for part in (at, before)), told
    assert "it also causes: wrong result" in told
    assert "the results depend on" in finding.what
