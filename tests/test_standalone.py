"""``show --standalone``: the text of the program."""

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from take_home_helpers import GEMM, files_of, small

from mini_dnn.checking.launches import shared_limit
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.ops import Array
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import Variant, find, names
from mini_dnn.variant.export import scalar
from mini_dnn.variant.joined import joined
from mini_dnn.variant.plan import CopyToSymbol, Images, Launch
from mini_dnn.variant.tensor_map import TensorMap

Output = pytest.CaptureFixture[str]
NOT_ALONE = ("m3/cublas", "gemm/cublas")  # these need a library
# These need the host
NOT_ALONE += tuple(f"networks/resnet18/{rung}" for rung in ("v0_transfers", "v1_conv_bn"))

MAIN = """\
// gemm/v5_mma_async for a test: (130,67) @ (67,129) fp16 -> fp32
// Idea: cp.async fills two stages while mma.sync multiplies a third; ldmatrix reads swizzled tiles.
//
//   make && ./main
//
// kernel.cu       the kernel with all that it includes and its definitions for this problem
// harness.cuh     buffers, streams, the comparison, the clock
// expected-c.bin  16,770 elements of c in float64, and how far off each may be
//
// From mini_dnn, commit 0123456789. MIT licence: see LICENSE.
#include "harness.cuh"
#include "kernel.cu"

int main() {
  harness::introduce("gemm/v5_mma_async", "(130,67) @ (67,129) fp16 -> fp32");
  harness::Streams stream(1);

  // Arrays in C order.
  harness::Buffer<half> d_a({1, 130, 67});
  harness::Buffer<half> d_b({1, 67, 129});
  harness::Buffer<float> d_c({1, 130, 129});

  // Random values, uniformly distributed between the two numbers.
  d_a.draw(1, -1.72f, 1.72f).upload();
  d_b.draw(2, -1.74f, 1.74f).upload();

  // By default, a block may have only 48 KB of shared memory.
  CUDA_CHECK(cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, 98304));

  auto steps = [&] {
    gemm<<<4, 128, 98304, stream[0]>>>(d_a, d_b, d_c, d_c, 130, 129, 67, 67, 129, 129, 1.0f, 0.0f);
    CUDA_CHECK(cudaGetLastError());
  };

  steps();
  CUDA_CHECK(cudaDeviceSynchronize());
  d_c.download();
  bool right = true;
  right &= harness::agrees("c", d_c);

  const double flops = 2247180.0, bytes = 101786.0;  // each array once
  harness::time("kernels", steps, stream[0], flops, bytes);
  return right ? 0 : 1;
}
"""


def main_of(variant: Variant, problem: Any) -> list[str]:
    return [line.strip() for line in files_of(variant, problem)["main.cu"].decode().splitlines()]


class TestText:
    def test_reads_well(self) -> None:
        files = files_of(find("gemm/v5"), GEMM.parse("130,129,67,fp16,fp32"))
        assert files["main.cu"].decode() == MAIN
        assert list(files) == ["main.cu", "kernel.cu", "harness.cuh", "LICENSE", "expected-c.bin", "Makefile"]
        assert b"ARCH ?= 90a\n" in files["Makefile"]
        assert b"-arch=sm_90a -cubin" in files["kernel.cu"]
        assert b"#define TILE 128\n" in files["kernel.cu"]

    @pytest.mark.parametrize("name", [name for name in names() if find(name).plan and name not in NOT_ALONE])
    def test_of_every_variant(self, name: str) -> None:
        variant = find(name)
        problem = small(variant)
        planned = joined(variant.solver(problem).planned(problem, shared_limit(90)))
        text = "\n".join(main_of(variant, problem))
        launched = re.findall(r"^(?:harness::launch\()?([a-z]\w+)(?:<<<|, {)", text, re.MULTILINE)
        assert launched == [launch.kernel for launch in planned.launches]
        assert text.count("harness::Buffer<") == len(planned.arrays)
        assert max(map(len, text.splitlines())) <= 120

    def test_of_all_kinds_of_steps(self, tmp_path: Path) -> None:
        (tmp_path / "kernel.cu").write_text("")
        many = ("x", Images("y", 1, 3), 7, np.int64(8), 0.5, np.bool_(True), *["scratch"] * 5)
        steps = [CopyToSymbol("w_const", "w", 1), Launch("k", (25, 49), (256, 1), many, 1024, 1)]
        variant = Variant(
            "conv2d",
            "an idea",
            plan=lambda s: steps,
            setup=lambda s: [Launch("once", (1,), (32,), ("w",), 49153)],
            scratch=lambda s: {"scratch": Array((2, 3), "float16")},
            folder=tmp_path,
            name="mine",
        )
        lines = main_of(variant, ConvShape(3, 1, 2, 2, 1, 1, 1))
        assert "harness::Streams stream(2);" in lines
        assert "harness::Buffer<half> d_scratch({2, 3});" in lines
        asked = "CUDA_CHECK(cudaFuncSetAttribute(once, cudaFuncAttributeMaxDynamicSharedMemorySize, 49153));"
        once = lines.index("once<<<1, 32, 49153, stream[0]>>>(d_w);")
        assert lines.index(asked) < once
        first = lines.index("stream.fork();")
        assert once < first
        assert lines[first + 1 : first + 5] == [
            "CUDA_CHECK(cudaMemcpyToSymbolAsync(w_const, d_w, d_w.bytes(), 0, cudaMemcpyDeviceToDevice, "
            "stream[1]));",
            "k<<<dim3(25, 49), 256, 1024, stream[1]>>>(d_x, d_y[1], 7, 8LL, 0.5f, true, d_scratch, "
            "d_scratch, d_scratch,",
            "d_scratch, d_scratch);",
            "CUDA_CHECK(cudaGetLastError());",
        ]
        assert lines[first + 5] == "stream.join();"

    def test_copies_of_the_plan_itself_are_timed(self) -> None:
        lines = main_of(find("m3/streams"), ConvShape(200, 1, 12, 12, 4, 7, 7))
        drawn_at = next(line for line in lines if line.startswith("d_x.draw(1, -"))
        assert "upload" not in drawn_at
        assert "d_x.copy_in(100, 200, stream[1]);" in lines
        assert "d_y.copy_out(0, 100, stream[0]);" in lines
        assert not any("download" in line for line in lines)
        assert 'harness::time("copies and kernels", steps, stream[0], flops, bytes);' in lines


def test_clusters_and_early_launches(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text("")
    steps = [
        Launch("k", (4, 2), (32,), ("x", 7), cluster=(2, 1), early=True),
        Launch("k", (4,), (32,), ("x", 7), cluster=4),
        Launch("k", (4,), (32,), ("x", 7), 512, early=True),
        Launch("k", (4,), (32,), ("x", 7)),
    ]
    variant = Variant("conv2d", "", plan=lambda s: steps, min_arch=90, folder=tmp_path, name="mine")
    lines = main_of(variant, ConvShape(1, 1, 1, 1, 1, 1, 1))
    first = lines.index("auto steps = [&] {") + 1
    assert lines[first : first + 7] == [
        "// In clusters of 2 x 1 x 1 blocks. It may begin before the kernel ahead of it has ended.",
        "harness::launch(k, {dim3(4, 2), 32, 0, stream[0], dim3(2, 1, 1), true}, d_x, 7);",
        "// In clusters of 4 x 1 x 1 blocks.",
        "harness::launch(k, {4, 32, 0, stream[0], dim3(4, 1, 1), false}, d_x, 7);",
        "// It may begin before the kernel ahead of it has ended.",
        "harness::launch(k, {4, 32, 512, stream[0], dim3(1, 1, 1), true}, d_x, 7);",
        "k<<<4, 32, 0, stream[0]>>>(d_x, 7);",
    ]
    assert '#include "launch.cuh"' in lines
    assert "launch.cuh" in files_of(variant, ConvShape(1, 1, 1, 1, 1, 1, 1))


def test_tensor_maps(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text("")
    whole, part = TensorMap("x", (2, 4), swizzle=0), TensorMap("x", (1, 8), (3, 8), (8,), 32)
    other = TensorMap("halves", (64, 64), dtype="bfloat16")
    steps = [
        Launch("k", (1,), (1,), (whole, part, other, other)),
        Launch("k", (1,), (1,), (TensorMap("x", (2, 4), swizzle=0), part, other), early=True),
    ]
    variant = Variant(
        "conv2d",
        "",
        plan=lambda s: steps,
        scratch=lambda s: {"halves": Array((128, 64), "float16")},
        min_arch=90,
        folder=tmp_path,
        name="mine",
    )
    lines = main_of(variant, ConvShape(1, 1, 4, 8, 1, 1, 1))
    types = ("FLOAT32", "FLOAT32", "BFLOAT16")
    rest = (
        "{4, 8}, {32}, {2, 4}, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);",
        "{3, 8}, {32}, {1, 8}, CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);",
        "{128, 64}, {128}, {64, 64}, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);",
    )
    names = {"map_x_1": "d_x", "map_x_2": "d_x", "map_halves": "d_halves"}
    text = " ".join(" ".join(lines).split())  # calls are wrapped
    for (name, buffer), kind, sizes in zip(names.items(), types, rest, strict=True):
        start = f"const auto {name} = harness::tensor_map({buffer}, CU_TENSOR_MAP_DATA_TYPE_{kind}, {sizes}"
        assert text.count(start) == 1
    assert "k<<<1, 1, 0, stream[0]>>>(map_x_1, map_x_2, map_halves, map_halves);" in lines
    settings = "{1, 1, 0, stream[0], dim3(1, 1, 1), true}"
    assert f"harness::launch(k, {settings}, map_x_1, map_x_2, map_halves);" in lines
    includes = [line for line in lines if line.startswith("#include")]
    assert includes == [
        f'#include "{name}"' for name in ("harness.cuh", "launch.cuh", "tensor_map.cuh", "kernel.cu")
    ]


SCALARS: list[tuple[Any, str, str]] = [
    (3, "int", "3"),
    (np.int64(-3), "long long", "-3LL"),
    (True, "bool", "true"),
    (0.5, "float", "0.5f"),
    (np.float32(1e-5), "float", "9.999999747378752e-06f"),
    (np.float64(1e300), "double", "1e+300"),
    (np.float64(np.nan), "double", "double(NAN)"),
    (-np.inf, "float", "-INFINITY"),
    (np.float16(np.inf), "float", "INFINITY"),
]


def test_scalars_are_those_of_cpp(tmp_path: Path) -> None:
    """The program passes each of them to a kernel, as a value of the type that a plan means."""
    assert [scalar(value) for value, _, _ in SCALARS] == [text for _, _, text in SCALARS]
    same = "static_assert(std::is_same_v<decltype({}), {}>);\n"
    lines = [same.format(scalar(value), kind) for value, kind, _ in SCALARS]
    (tmp_path / "x.cpp").write_text("#include <math.h>\n#include <type_traits>\n" + "".join(lines))
    command = [str(find_compiler().path), "-std=c++17", "-fsyntax-only", "-Werror", str(tmp_path / "x.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_gaps() -> None:
    lines = main_of(find("gemm/v3"), GEMM.parse("9,7,5,bf16,fp32,nn,1,1,0,8,0,12"))
    assert "// Arrays in C order, and the gap after each line." in lines
    assert "harness::Buffer<__nv_bfloat16> d_a({1, 9, 8}, 3);" in lines
    assert "harness::Buffer<__nv_bfloat16> d_b({1, 5, 7});" in lines
    assert "harness::Buffer<float> d_c({1, 9, 12}, 5);" in lines
