"""The verbs that show a variant's files: diff and show."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convolutions import SM_90_BYTES, planned, solved

from mini_dnn import conv2d
from mini_dnn.cli import main
from mini_dnn.device import Device
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.ops.conv2d import LAYERS, ConvShape
from mini_dnn.variant import Variant, find, names
from mini_dnn.variant.differences import compare
from mini_dnn.variant.export import expand
from mini_dnn.variant.plan import CopyIn, CopyToSymbol, Gemm, Images, Launch
from mini_dnn.variant.tensor_map import TensorMap

Output = pytest.CaptureFixture[str]
KERNELS = [name for name in names() if find(name).plan]


ONE_PIXEL = ConvShape(1, 1, 1, 1, 1, 1, 1)
COURSE = [
    pytest.param(name, at, problem, id=f"{name} {at}")
    for name in KERNELS
    for variant in [find(name)]
    for at, problem in variant.operation.course.items()
    if not variant.limit_for(problem)
]


class TestDiff:
    def test_with_its_parent(self, capsys: Output) -> None:
        assert main(["diff", "m3/restrict"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("- m3/fusion: ")
        assert lines[1].startswith("+ m3/restrict: ")
        assert {"--- m3/fusion/kernel.cu", "+++ m3/restrict/kernel.cu", "--- m3/fusion/variant.py"} <= set(
            lines
        )
        assert any(line.startswith("+") and "__restrict__ x" in line for line in lines)

    def test_without_the_head(self) -> None:
        old, new = find("m3/fusion"), find("m3/restrict")
        for file, head in (("kernel.cu", "// m3/restrict"), ("variant.py", '"""m3/restrict')):
            assert any(head in line for line in compare(old, new, file))
            assert not any(head in line for line in compare(old, new, file, heads=False))
        assert any("__restrict__" in line for line in compare(old, new, "kernel.cu", heads=False))

    def test_equal(self, capsys: Output) -> None:
        assert main(["diff", "m2", "m2/unroll_gemm"]) == 0
        assert "kernel.cu: equal\n\nvariant.py: equal\n" in capsys.readouterr().out

    def test_equal_but_for_the_head(self, tmp_path: Path) -> None:
        copies = []
        for name in "ab":
            (tmp_path / name).mkdir()
            (tmp_path / name / "kernel.cu").write_text(f"// {name}\n\nint i;\n")
            copies.append(Variant("conv2d", "", folder=tmp_path / name, name=name))
        assert (
            compare(*copies, "kernel.cu", heads=False)[1]
            == "kernel.cu: equal except for the comment at its head"
        )

    def test_with_the_host(self, capsys: Output) -> None:
        assert main(["diff", "m1"]) == 0
        assert "kernel.cu: m1/cpu runs on the host and does not have this file" in capsys.readouterr().out

    def test_without_a_parent(self, capsys: Output) -> None:
        assert main(["diff", "cpu"]) == 2
        assert "m1/cpu has no parent; name a variant to compare it with" in capsys.readouterr().err


class TestShow:
    @pytest.mark.parametrize(("name", "file"), [("m2", "kernel.cu"), ("cpu", "variant.py")])
    def test_prints_the_file(self, capsys: Output, name: str, file: str) -> None:
        assert main(["show", name]) == 0
        assert capsys.readouterr().out == (find(name).folder / file).read_text()

    @pytest.mark.parametrize(("name", "at", "problem"), COURSE)
    def test_expands_every_variant(self, name: str, at: str, problem: Any) -> None:
        variant = find(name)
        lines = expand(variant, problem, at, SM_90_BYTES).splitlines()
        solver = variant.solver(problem)  # the variant that has the kernel
        assert lines[0] == f"// {solver.name} for {at}: {problem}"
        plan = planned(solver, problem)
        for define, value in plan.defines.items():
            assert f"#define {define} {value}" in lines
            assert lines.index(f"#undef {define}") > lines.index(f"#define {define} {value}")
        attribute = "cudaFuncAttributeMaxDynamicSharedMemorySize"
        for launch in plan.launches[:3]:
            large = any(f"cudaFuncSetAttribute({launch.kernel}, {attribute}, " in line for line in lines)
            assert large == (launch.shared_bytes > 48 << 10 and not launch.code)
            assert any(line.startswith("// ") and f"{launch.kernel}<<<dim3(" in line for line in lines)
        for buffer, array in plan.arrays.items():
            assert f"//   {buffer} {array.shape} {array.dtype}" in lines

    def test_steps_are_written_as_in_cuda(self, tmp_path: Path) -> None:
        (tmp_path / "kernel.cu").write_text("")
        part = Images("y", 0, 3)
        steps = [
            CopyToSymbol("w_const", "w"),
            CopyIn(Images("x", 2, 3)),
            Launch("k", (25, 49), (256,), ("x", part, 7, np.int64(8), 0.5), shared_bytes=1024, stream=1),
            Gemm("w", "col", "y", 4, 6, 5),
            Launch("pair", (4,), (32,), (), cluster=2, early=True),
            Launch("k", (1,), (1,), (TensorMap("x", (8, 64)), TensorMap("y", (8, 8), (4, 8), swizzle=0))),
            Gemm("w", "col", "y", 4, 6, 5, layout="nt", batch=2, alpha=0.5, beta=-1),
            *[Launch("again", (1,), (1,), ())] * 28,
        ]
        variant = Variant("conv2d", "", plan=lambda s: steps, min_arch=90, folder=tmp_path, name="mine")
        lines = expand(variant, ConvShape(3, 1, 2, 2, 1, 1, 1), "a test", SM_90_BYTES).splitlines()
        assert "//   stream 0: copy w to the __constant__ variable w_const" in lines
        assert "//   stream 0: copy x[2..2] to the GPU" in lines
        assert "//   stream 1: k<<<dim3(25, 49), dim3(256), 1024>>>(x, y[0..2], 7, 8LL, 0.5f)" in lines
        assert "//   stream 0: pair<<<dim3(4), dim3(32), 0>>>(), clusters of 2x1x1, early" in lines
        assert any(
            "k<<<dim3(1), dim3(1), 0>>>(tensor map of x [boxes of (8, 64); swizzle 128]" in x for x in lines
        )
        assert any("tensor map of y [boxes of (8, 8); swizzle 0; shape (4, 8)])" in line for line in lines)
        assert "//   stream 0: cuBLAS: y (4, 6) = w (4, 5) @ col (5, 6)" in lines
        turned = "y (4, 6) = 0.5 * w (4, 5) @ col (6, 5).T + -1 * y, for each of 2"
        assert f"//   stream 0: cuBLAS: {turned}" in lines
        assert "//   ... and 11 more of the same kinds" in lines

    @pytest.mark.parametrize("name", ["layers/custom", "m2", "m3/fp32_split"])
    def test_expanded_file_computes_the_same(self, tmp_path: Path, quick_emulator: Device, name: str) -> None:
        variant, shape = find(name), LAYERS["conv2"].with_batch(1)
        (tmp_path / "kernel.cu").write_text(expand(variant, shape, "conv2", SM_90_BYTES))
        assert solved(replace(variant, folder=tmp_path, defines={}), shape, quick_emulator).ok

    @pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
    @pytest.mark.parametrize("name", ["layers/custom", "m3/tensor_cores"])
    def test_expanded_file_compiles_for_a_gpu(self, tmp_path: Path, name: str) -> None:
        source = tmp_path / "out.cu"
        source.write_text(expand(find(name), LAYERS["conv1"], "conv1", SM_90_BYTES))
        assert build_cubin(source, {}, "sm_80")[:4] == b"\x7fELF"

    def with_headers(self, folder: Path) -> Variant:
        """A variant with two headers. One of them includes the other, which is included twice."""
        (folder / "kernel.cu").write_text(
            '#include "add.h"\n  #  include "shared/once.h"\n#include "cuda_fp16.h"\n'
            'extern "C" __global__ void k(const float* x, const float* w, float* y) { *y = add(*x, ONE); }\n'
        )
        (folder / "shared").mkdir()
        (folder / "add.h").write_text(
            '#ifndef ADD_H\n#define ADD_H\n#include "shared/once.h"\n#include "add.h"\n'
            "__device__ float add(float a, float b) { return a + b; }\n#endif\n"
        )
        (folder / "shared/once.h").write_text("#pragma once\nconstexpr float ONE = 1.0f;\n")

        def plan(s: ConvShape) -> list[Launch]:
            return [Launch("k", (1,), (1,), ("x", "w", "y"))]

        return Variant("conv2d", "", plan=plan, folder=folder, name="mine")

    def test_local_files_are_inlined(self, tmp_path: Path, quick_emulator: Device) -> None:
        variant = self.with_headers(tmp_path)
        text = expand(variant, ONE_PIXEL, "one pixel", SM_90_BYTES)
        assert '#include "cuda_fp16.h"' in text
        assert '#include "add.h"' not in text
        assert "pragma" not in text
        alone = tmp_path / "alone"
        alone.mkdir()
        (alone / "kernel.cu").write_text(text)
        one = np.ones((1, 1, 1, 1), np.float32)
        assert conv2d(one, one, replace(variant, folder=alone), quick_emulator).item() == 2

    @pytest.mark.parametrize("chosen", [0, 1])
    def test_each_branch_has_the_files_that_it_includes(
        self, tmp_path: Path, quick_emulator: Device, chosen: int
    ) -> None:
        """A file with an include guard is included by both branches of a condition and after it."""
        variant = self.with_headers(tmp_path)
        text = (tmp_path / "kernel.cu").read_text()
        includes, kernel = text[: text.index("extern")], text[text.index("extern") :]
        branches = f"#if CHOSEN\n{includes}#else\n  # ifdef CHOSEN\n{includes}# endif\n#endif\n"
        (tmp_path / "kernel.cu").write_text(
            f"#define CHOSEN {chosen}\n" + branches + '#include "shared/once.h"\n' + kernel
        )
        expanded = expand(variant, ONE_PIXEL, "one pixel", SM_90_BYTES)
        (tmp_path / "alone").mkdir()
        (tmp_path / "alone/kernel.cu").write_text(expanded)
        one = np.ones((1, 1, 1, 1), np.float32)
        assert conv2d(one, one, replace(variant, folder=tmp_path / "alone"), quick_emulator).item() == 2

    def test_out_never_overwrites(self, tmp_path: Path, capsys: Output) -> None:
        out = tmp_path / "m2.cu"
        assert main(["show", "m2", "--expand", "--layer", "conv2", "--out", str(out)]) == 0
        text = out.read_text()
        assert text.startswith("// m2/unroll_gemm for conv2: (10000, 4, 40, 40)")
        assert main(["show", "m1", "--out", str(out)]) == 2
        assert out.read_text() == text
        assert "already exists" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["cpu", "--expand"], "so it has no kernel to expand"),
            (["m2", "--layer", "conv1"], "--at needs --expand"),
            (["m2", "--out", "no/such/folder/m2.cu"], "cannot be written"),
        ],
    )
    def test_wrong_use(self, capsys: Output, flags: list[str], message: str) -> None:
        assert main(["show", *flags]) == 2
        assert message in capsys.readouterr().err
