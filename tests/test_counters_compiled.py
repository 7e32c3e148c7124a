"""The emulator counts what nvcc would have compiled, where g++ compiles something else."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mini_dnn.device.base import LaunchConfig
from mini_dnn.device.emulator.counted import CountedEmulator
from mini_dnn.profiling.totals import counters


@pytest.fixture(scope="module")
def device() -> Iterator[CountedEmulator]:
    found = CountedEmulator(threads=1, blocks=[1])
    yield found
    found.close()


WIDTHS = """
extern "C" __global__ void sides(float* y, int n) {
  __shared__ float t[8][32];
  for (int i = 0; i < 8; i++) t[i][threadIdx.x] = i;
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < n; k++)
    for (int i = 0; i < 8; i++) sum += t[threadIdx.x % 8][i] * t[i][threadIdx.x];
  y[threadIdx.x] = sum;
}
struct Four { float f[4]; };
struct Many { float4 f[16]; };
extern "C" __global__ void structs(float3* three, Four* four, Many* many, float* bytes) {
  const int t = threadIdx.x;
  three[32 + t] = three[t];
  four[32 + t] = four[t];
  many[32 + t] = many[t];
  memcpy(bytes + 32 + t, bytes + t, 4);
}
"""


def test_accesses_are_as_wide_as_those_of_nvcc(device: CountedEmulator, tmp_path: Path) -> None:
    """Loads that lie side by side are merged, and a struct is copied in pieces of its alignment."""
    (tmp_path / "kernel.cu").write_text(WIDTHS)
    module = device.compile(tmp_path / "kernel.cu", {})
    device.launch(module, "sides", LaunchConfig((1,), (32,)), (device.empty("y", (32,)), np.int32(1)))
    (found,) = counters([device.launches[-1]])
    assert found.sum("instructions", "shared", "load") == 16
    assert found.sum("merged", "shared", "load") == 6, "two of 16 bytes for eight of 4, along a row"
    arrays = [device.empty(name, (64 * floats,)) for name, floats in zip("tfmb", (3, 4, 64, 1), strict=True)]
    device.launch(module, "structs", LaunchConfig((1,), (32,)), arrays)
    (found,) = counters([device.launches[-1]])
    loads = {a.array: (a.bytes, a.instructions) for a in found.accesses if a.operation == "load"}
    assert loads == {"t": (4, 3), "f": (4, 4), "m": (16, 16), "b": (1, 4)}


OTHER = """
extern "C" __global__ void sum(const float* x, float* y, int n) {
  float all = 0;
  for (int k = 0; k < n; k++)
    for (int i = 0; i < 4; i++) all += x[threadIdx.x * 4 + i];
  y[threadIdx.x] = all;
}
"""


def test_offsets_of_an_unrolled_loop_are_no_instructions(device: CountedEmulator, tmp_path: Path) -> None:
    work = {}
    for many in (4, 16):
        (tmp_path / f"{many}.cu").write_text(OTHER.replace("4", str(many)))
        module = device.compile(tmp_path / f"{many}.cu", {})
        given = (device.empty("x", (32 * many,)), device.empty("y", (32,)), np.int32(1))
        device.copy_in(given[0], np.zeros(32 * many, np.float32))
        device.launch(module, "sum", LaunchConfig((1,), (32,)), given)
        (found,) = counters([device.launches[-1]])
        assert found.operations("fadd") >= 32 * (many - 1)
        work[many] = found.operations("other") / 32
    assert work[16] <= work[4] + 1
