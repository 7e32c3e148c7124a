"""Every kernel compiles with nvcc for each architecture that the course meets."""

from pathlib import Path

import pytest

from mini_dnn.device.nvcc import build_cubin, find_nvcc, nvcc_arch
from mini_dnn.errors import CompileError, DeviceError
from mini_dnn.shapes import ConvShape, LenetBatch
from mini_dnn.variant import find, names, network_names

SHAPES = (ConvShape(10000, 1, 86, 86, 4, 7, 7), ConvShape(10000, 4, 40, 40, 16, 7, 7))
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")


@needs_nvcc
@pytest.mark.parametrize("arch", [75, 80, 90])
@pytest.mark.parametrize("name", [name for name in names() if find(name).plan])
def test_compiles(name: str, arch: int) -> None:
    variant = find(name)
    if arch < variant.min_arch:
        pytest.skip(f"{name} needs instructions that sm_{arch} lacks: it says min_arch={variant.min_arch}")
    for defines in {tuple(sorted(variant.defines_for(s).items())): None for s in SHAPES}:
        assert build_cubin(variant.source, dict(defines), nvcc_arch(arch))[:4] == b"\x7fELF"


@needs_nvcc
@pytest.mark.parametrize("arch", [75, 90])
@pytest.mark.parametrize("name", network_names())
def test_networks_compile(name: str, arch: int) -> None:
    variant = find(name)
    for kind in (LenetBatch(9), LenetBatch(9, True, 28)):
        if not variant.limit_for(kind):
            cubin = build_cubin(variant.source, variant.defines_for(kind), nvcc_arch(arch))
            assert cubin[:4] == b"\x7fELF"


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
