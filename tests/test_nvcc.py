"""Every kernel compiles with nvcc for each architecture that the course uses."""

import re
import subprocess
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from shipped import small_problem

from mini_dnn.checking.limits import verdict
from mini_dnn.device.assembly import PTX, assemble
from mini_dnn.device.base import Defines
from mini_dnn.device.nvcc import OPTIONS, build_cubin, find_nvcc, nvcc_arch
from mini_dnn.device.sources import INCLUDE, texts
from mini_dnn.errors import CompileError, DeviceError
from mini_dnn.ops.conv2d import LAYERS
from mini_dnn.ops.conv2d_relu_pool import ConvPoolShape
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.variant import Variant, find, names

LAYER_2 = LAYERS["conv2"]
BATCH = 9
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")


def different_defines(variant: Variant) -> list[Defines]:
    """The distinct macros of the measured problems, or of a small problem if there are none."""
    course = [problem.with_batch(BATCH) for problem in variant.operation.course.values()]
    measured = [problem for problem in course if not variant.limit_for(problem)]
    taken = [variant.defines_for(problem) for problem in measured or [small_problem(variant.name)]]
    return list({tuple(sorted(defines.items())): defines for defines in taken}.values())


IN_TURN_AND_TOGETHER = ((3072, 3072, 3072), (1840, 288, 1960), (1704, 3072, 1672))
WARPGROUPS: list[tuple[str, Any]] = [  # variants that use their products
    *((name, LAYER_2) for name in ("layers/custom", "m3/fp32_split")),
    ("layers/fused", ConvPoolShape(**LAYER_2.fields, pool=4)),
    *(("networks/lenet/tensor_cores", batch) for batch in (LenetBatch(9), LenetBatch(999, True, 28))),
    *(("gemm/v11_ahead", GemmShape(2048, 2048, 2048, "fp16", "fp16", layout)) for layout in ("nn", "nt")),
    ("gemm/v11_ahead", GemmShape(2048, 2048, 2048, "fp16", "fp16", constant="b")),
    ("gemm/v11_ahead", GemmShape(6304, 3072, 768, "fp16", "fp16", constant="b")),
    ("gemm/v11_ahead", GemmShape(3136, 2128, 1688, "fp16", "fp16")),
    *(("gemm/v16_pingpong", GemmShape(*sizes, "fp16", "fp16")) for sizes in IN_TURN_AND_TOGETHER),
    *(("gemm/v14_mixed", GemmShape(4096, 4096, 4096, "fp16", "fp16", layout)) for layout in ("nn", "tt")),
    *(("gemm/v15_idle", GemmShape(*s, "fp16", "fp16")) for s in ((8191, 8191, 8191), (1796, 2736, 2103))),
    ("gemm/v18_thirds", GemmShape(64, 4096, 4096)),  # with 128 columns, so with the most sums
]


def compilations() -> list[tuple[str, int, int]]:
    """Name, architecture and index of the macros.

    Each variant is compiled for its oldest architecture, with its first or its last macros: neighbours take
    them in turn. It is also compiled for 90 if its code is different there. Variants in `WARPGROUPS` are
    compiled for 90 below.
    """
    found = []
    below = dict(WARPGROUPS)
    for at, name in enumerate(name for name in names() if find(name).plan):
        variant = find(name)
        oldest, last = max(75, variant.min_arch), len(different_defines(variant)) - 1
        if oldest < 90 or name not in below:
            found.append((name, oldest, last * (at % 2)))
        if oldest < 90 and name not in below and any("__CUDA_ARCH" in text for text in texts(variant.source)):
            found.append((name, 90, last * (1 - at % 2)))
    return found


COMPILATIONS = compilations()


@needs_nvcc
@pytest.mark.exhaustive
@pytest.mark.parametrize("case", COMPILATIONS, ids=str)
def test_compiles(case: tuple[str, int, int]) -> None:
    name, arch, number = case
    variant = find(name)
    defines = different_defines(variant)[number]
    assert build_cubin(variant.source, defines, nvcc_arch(arch))[:4] == b"\x7fELF"


def notes_on_products(source: Path, defines: Defines, folder: Path) -> list[str]:
    """The remarks of ptxas on a file's warpgroup products, of which there must be some.

    C7519 is left out: ptxas has added a fence, which costs no time.
    """
    definitions = [f"-D{name}={value}" for name, value in defines.items()]
    command = [str(find_nvcc()), "-cubin", "-arch=sm_90a", f"-I{INCLUDE}", *OPTIONS, *definitions]
    command += ["--keep", "--keep-dir", str(folder), str(source), "-o", str(folder / "kernel.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "wgmma.mma_async" in (folder / f"{source.stem}.ptx").read_text()
    return [line for line in re.findall(r".*(?:wgmma|GMMA).*", done.stderr) if "C7519" not in line]


@needs_nvcc
@pytest.mark.parametrize("case", WARPGROUPS, ids=str)
def test_products_of_warpgroups_run_on(case: tuple[str, Any], tmp_path: Path) -> None:
    """The compiler sees that their sums are not used before the wait.

    Otherwise it would wait for each product.
    """
    name, shape = case
    variant = find(name)
    assert not notes_on_products(variant.source, variant.defines_for(shape), tmp_path)


@needs_nvcc
def test_the_compiler_tells_of_products_that_wait(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text("""#include <mini_dnn/ptx.cuh>
extern "C" __global__ void k(float* out) {
  __shared__ uint4 b[64];
  float sum[3][4] = {};
  const unsigned a[4] = {1, 2, 3, 4};
  ptx::wgmma_fence();
  ptx::wgmma_m64k16<24, true>(sum, a, ptx::matrix_descriptor(b, 128, 256));
  sum[0][0] += 1;  // while the product is under way
  ptx::wgmma_m64k16<24, true>(sum, a, ptx::matrix_descriptor(b, 128, 256));
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(sum);
  out[threadIdx.x] = sum[0][0];
}
""")
    assert any("serialized" in note for note in notes_on_products(source, {}, tmp_path))


@needs_nvcc
def test_error_shows_the_students_line(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text('extern "C" __global__ void k(float* y) {\n  y[0] = missing;\n}\n')
    with pytest.raises(CompileError, match=r'(?s)kernel\.cu\(2\): error.*"missing".*y\[0\] = missing;'):
        build_cubin(source, {}, "sm_80")


def test_without_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.device.nvcc.find_nvcc", lambda: None)
    with pytest.raises(DeviceError, match=r"nvcc was not found.*--device emulator needs only g\+\+"):
        build_cubin(tmp_path / "kernel.cu", {}, "sm_80")


def test_a_folder_whose_name_nvcc_does_not_quote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a$b"
    folder.mkdir()
    log = stand_in(folder, monkeypatch, "exit 1")
    with pytest.raises(DeviceError, match=r"whose name contains \$: .*a\$b/kernel\.cu\. Rename"):
        build_cubin(folder / "kernel.cu", {}, "sm_80")
    assert not log.exists()


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Install a stand-in for nvcc, and return the file that has a line for each time that it was run."""
    nvcc, log = folder / "nvcc", folder / "log"
    nvcc.write_text(f"#!/bin/sh\necho run >> {log}\n{script}\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("MINI_DNN_CACHE", str(folder / "cache"))
    for module in ("mini_dnn.device.nvcc", "mini_dnn.checking.limits"):
        monkeypatch.setattr(f"{module}.find_nvcc", lambda: nvcc)
    (folder / "kernel.cu").write_text('extern "C" __global__ void k(float* y) { y[0] = 1; }\n')
    return log


def test_results_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An equal file in a folder of the same name has the same cubin, but messages of its own."""
    said = "ptxas info    : Compiling entry function 'k' for 'sm_80'\nptxas info    : Used 7 registers"
    log = stand_in(tmp_path, monkeypatch, f'echo "{said}" >&2\nfor file; do :; done\nprintf code > "$file"')
    copy = tmp_path / "copy" / tmp_path.name / "kernel.cu"
    copy.parent.mkdir(parents=True)
    copy.write_text((tmp_path / "kernel.cu").read_text())
    words = "__attribute__((global)) void k(float* y) { y[0] = 1; }"
    for source in (tmp_path / "kernel.cu", copy) * 2:
        assert build_cubin(source, {"N": 1}, "sm_80") == b"code"
    assert log.read_text() == "run\n"
    build_cubin(copy, {"N": 2}, "sm_80")
    assert log.read_text() == "run\n" * 2
    for source in (tmp_path / "kernel.cu", copy) * 2:
        assert verdict(source, {"N": 1}, 80, lambda: words, ask=True).registers == {"k": 7}
    assert log.read_text() == "run\n" * 4


@pytest.mark.parametrize(
    ("message", "times"),
    [
        ("kernel.cu(1): error: a mistake", 1),
        ("ptxas error   : Entry function 'k' uses too much shared data (0xfa00 bytes, 0xc000 max)", 1),
        ('kernel.cu(1): catastrophic error: cannot open source file "cutlass.h"', 2),
        ("nvcc fatal   : No space left on device", 2),
    ],
)
def test_failures_that_the_file_does_not_cause_are_not_kept(
    message: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stand_in(tmp_path, monkeypatch, f"echo ptxas info\necho {quote(message)} >&2\nexit 1")
    for _ in range(2):
        with pytest.raises(CompileError, match=re.escape(message)) as caught:
            assemble(tmp_path / "kernel.cu", {}, 80, PTX)
        assert "ptxas info" not in str(caught.value)
    assert log.read_text() == "run\n" * times


def test_only_cached_results_are_used_if_nothing_may_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stand_in(tmp_path, monkeypatch, "exit 1")
    monkeypatch.setenv("MINI_DNN_CACHE_ONLY", "1")
    with pytest.raises(DeviceError, match="MINI_DNN_CACHE_ONLY is set"):
        assemble(tmp_path / "kernel.cu", {}, 80, PTX)
    assert not log.exists()
