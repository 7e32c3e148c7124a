"""The parts of a kernel's estimated time: instructions, blocks, and launches of a larger problem."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_dnn.checking.launches import shared_limit
from mini_dnn.device.base import LaunchConfig
from mini_dnn.device.emulator.counted import CountedEmulator
from mini_dnn.device.emulator.counted_build import unrolled
from mini_dnn.profiling.bracket import ALWAYS, ISSUE, bracket, enlarged
from mini_dnn.profiling.counters import Call, Counters
from mini_dnn.profiling.gpus import GPUS
from mini_dnn.profiling.totals import counters
from mini_dnn.variant import find

Count = Callable[[str], Counters]
LOADS = "float a = x[threadIdx.x], b = x[threadIdx.x + 32];"


@pytest.fixture(scope="module")
def device() -> Iterator[CountedEmulator]:
    found = CountedEmulator(threads=1)
    yield found
    found.close()


@pytest.fixture
def count(device: CountedEmulator, tmp_path: Path) -> Count:
    """The counters of a kernel with the given body and one warp; x has 1024 ones, and n is 3."""

    def run(body: str) -> Counters:
        source = tmp_path / f"kernel{len(device.launches)}.cu"
        head = '#include <mma.h>\nusing namespace nvcuda;\nextern "C" __global__ void run'
        source.write_text(f"{head}(const float* x, float* y, int n) {{\n{body}\n}}\n")
        x, y = device.empty("x", (1024,)), device.empty("y", (1024,))
        device.copy_in(x, np.ones(1024, np.float32))
        device.launch(device.compile(source, {}), "run", LaunchConfig((1,), (32,)), (x, y, np.int32(3)))
        (found,) = counters([device.launches[-1]])
        return found

    return run


def others(found: Counters) -> int:
    return found.operations("other_instructions")


@pytest.mark.parametrize(
    ("value", "more"),  # instructions than a product of two numbers
    [("a / b", 9), ("wmma::__float_to_tf32(a)", 3)],
)
def test_one_operation_that_is_several_instructions(count: Count, value: str, more: int) -> None:
    plain = others(count(f"{LOADS} y[threadIdx.x] = a * b;"))
    assert more - 1 <= others(count(f"{LOADS} y[threadIdx.x] = {value};")) - plain <= more + 3


def test_integers_of_64_bits_are_two_instructions(count: Count) -> None:
    body = "{type} k = n; for (int i = 0; i < n; i++) k = (k * (k ^ 5)) | 77; y[threadIdx.x] = float(k);"
    short, long = (others(count(body.format(type=name))) for name in ("int", "long long"))
    assert long - short == 3 * (1 + 1 + 3), "of three iterations; a product is four"


def test_lanes_that_are_off_cost_as_much_as_others(count: Count) -> None:
    body = "if (threadIdx.x < {lanes}) y[threadIdx.x] = x[threadIdx.x] + 1.f;"
    few, many = (count(body.format(lanes=lanes)) for lanes in (2, 31))
    assert few.operations("fadd") == 2
    assert few.operations("instructions") == many.operations("instructions") == 1
    assert others(few) == others(many)


def test_pragmas_for_nvcc_become_those_of_gcc() -> None:
    code = '#pragma unroll\n# 3 "kernel.cu"\n  for (;;) {}\n#pragma unroll 1\nfor (;;) {}\n'
    code += "#pragma unroll (4)\ndo {}"
    assert unrolled(code).splitlines() == [
        "#pragma GCC unroll 64",
        '# 3 "kernel.cu"',
        "  for (;;) {}",
        "#pragma GCC unroll 1",
        "for (;;) {}",
        "",
        "do {}",
    ]
    stray = "#pragma unroll\nint a = 0;\n"
    assert unrolled(stray) == stray, "g++ would refuse it, and nvcc does not"


def test_loops_are_unrolled_as_the_kernel_says(count: Count) -> None:
    loop = "float s = n; for (int i = 0; i < 40; i++) s = s * s + x[i]; y[0] = s;"
    counted = [others(count(loop.replace("for", f"\n#pragma unroll {times}\nfor"))) for times in ("1", "")]
    assert counted[0] > 40 > counted[1]


def test_a_warp_has_instructions_of_its_own(count: Count) -> None:
    found = count("y[threadIdx.x] = x[threadIdx.x];")
    gpu = GPUS["h200"]
    issued = bracket(found, gpu).units[ISSUE] * gpu.clocks_per_second / 1e3 * 4
    assert issued == pytest.approx(2 + others(found) + ALWAYS)


def test_a_block_alone_uses_one_unit_after_the_other(count: Count) -> None:
    body = """__shared__ float t[33 * 32];
      for (int i = 0; i < n; i++) t[threadIdx.x * 32 + i] = x[i]; __syncthreads();
      float s = 0, *own = t + threadIdx.x;
      for (int i = 0; i < 900; i++) s += own[i % 32 * 32] * own[threadIdx.x * 31 + i % 32];
      y[threadIdx.x] = s;"""
    small = replace(count(body), grid=(132 * 8, 1, 1), block=(1024, 1, 1))
    large = replace(small, shared_bytes=200_000)  # one block on a multiprocessor
    two, one = bracket(replace(small, shared_bytes=1000), GPUS["h200"]), bracket(large, GPUS["h200"])
    assert one.units == two.units
    assert one.low_ms == two.low_ms < two.likely_ms < one.likely_ms <= one.high_ms


@pytest.mark.parametrize(
    ("name", "at", "same"),
    [
        ("networks/resnet18/v4_tensor_cores", "fashion-mnist", {"clear", "turn"}),
        ("m3/fp32_split", "conv2", {"prepare"}),  # in each call
        ("m1/direct", "conv2", set()),
    ],
)
def test_weights_are_prepared_once_for_any_batch(name: str, at: str, same: set[str]) -> None:
    variant = find(name)
    problem = variant.operation.course[at]
    few, many = (variant.planned(problem.with_batch(n), shared_limit(90)) for n in (1, 400))
    larger = enlarged(few, many, 400.0)
    assert {kernel for kernel, _, _ in larger.same} == same
    assert sum(map(len, larger.grids.values())) == len(many.launches)
    for (kernel, grid, _), blocks in larger.grids.items():
        assert all(count >= np.prod(grid) for count in blocks), kernel


COLUMN = """
extern "C" __global__ void column(const float* x, float* y, int pitch) {
  y[threadIdx.x] = x[threadIdx.x * pitch];
}
"""


@pytest.mark.parametrize(("pitch", "wavefronts"), [(128, 32), (129, 32), (32 * 9 + 1, 8), (32 * 10 + 1, 16)])
def test_lines_of_one_set_come_one_after_the_other(
    device: CountedEmulator, tmp_path: Path, pitch: int, wavefronts: int
) -> None:
    """The lines of 32 lanes are in one of the cache's four sets, in all of them, or in two."""
    source = tmp_path / "column.cu"
    source.write_text(COLUMN)
    x, y = device.empty("x", (32 * pitch,)), device.empty("y", (32,))
    device.copy_in(x, np.zeros(32 * pitch, np.float32))
    device.launch(device.compile(source, {}), "column", LaunchConfig((1,), (32,)), (x, y, np.int32(pitch)))
    (found,) = counters([device.launches[-1]])
    assert found.sum("wavefronts", "global", "load") == wavefronts


def test_operands_of_wgmma() -> None:
    """Four warps have 64 rows of 16 halves, and 48 columns of 16 halves."""
    call = Call("", 0, "wgmma_m64k16", instructions=4, lanes=128, number=128 * 48)
    assert call.products == 64 * 48 * 16
    assert call.operand_bytes == (64 + 48) * 16 * 2
    assert replace(call, name="wgmma_m64k16, a in registers").operand_bytes == 48 * 16 * 2
    assert replace(call, name="mma_m16n8k16").operand_bytes == 0
