"""``#include <mini_dnn/ptx.cuh>`` is found from anywhere, enters the hash, and is part of copies."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from convolutions import SM_90_BYTES
from emulator_kernels import Kernels

from mini_dnn.device import sources
from mini_dnn.device.code_hash import code_hash
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import Variant, find
from mini_dnn.variant.export import expand
from mini_dnn.variant.scaffold import create

KERNEL = """\
#include <cuda_fp16.h>
#include <mini_dnn/ptx.cuh>
extern "C" __global__ void pack(const float* x, const float* w, unsigned* y) {
  y[threadIdx.x] = ptx::pack_halves(x[2 * threadIdx.x], x[2 * threadIdx.x + 1]);
}
"""
VARIANT = '''\
"""mine: packs."""
from mini_dnn.variant import Launch, Variant

VARIANT = Variant(
    op="conv2d", idea="packs", plan=lambda s: [Launch("pack", (1,), (1,), ("x", "w", "y"))]
)
'''
SHAPE = ConvShape(1, 1, 2, 2, 1, 1, 1)


@pytest.fixture
def variant(tmp_path: Path) -> Variant:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "kernel.cu").write_text(KERNEL)
    (folder / "variant.py").write_text(VARIANT)
    return find(folder)


def packed(emulator: EmulatorDevice, source: Path) -> int:
    y = np.zeros(1, np.uint32)
    Kernels(emulator, source)("pack", (1,), (1,), np.array([1, 2], np.float32), np.zeros(1, np.float32), y)
    return int(y[0])


def test_from_a_students_folder(emulator: EmulatorDevice, variant: Variant) -> None:
    assert packed(emulator, variant.source) == 0x40003C00


def test_a_header_in_quotes_is_a_file_of_the_kernel(emulator: EmulatorDevice, variant: Variant) -> None:
    variant.source.write_text(KERNEL.replace("<mini_dnn/ptx.cuh>", '"mini_dnn/ptx.cuh"'))
    assert sources.INCLUDE / "mini_dnn" / "ptx.cuh" in sources.source_files(variant.source)
    assert packed(emulator, variant.source) == 0x40003C00


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_90a"])
def test_with_nvcc(variant: Variant, arch: str) -> None:
    assert build_cubin(variant.source, {}, arch)[:4] == b"\x7fELF"


def test_counted_by_the_hash(variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [file.name for file in sources.source_files(variant.source)] == [
        "kernel.cu",
        "ptx.cuh",
        "ptx_products.cuh",
        "ptx_tensor.cuh",
        "ptx_warpgroup.cuh",
        "ptx_cluster.cuh",
    ]
    before, code_before = sources.source_hash(variant.source), code_hash(variant.source)
    other = tmp_path / "include"
    shutil.copytree(sources.INCLUDE, other)
    monkeypatch.setattr(sources, "INCLUDE", other)
    assert sources.source_hash(variant.source) == before
    header = other / "mini_dnn" / "ptx.cuh"
    header.write_text(header.read_text() + "// a comment\n")
    assert sources.source_hash(variant.source) != before
    assert code_hash(variant.source) == code_before
    header.write_text(header.read_text() + "#define CHANGED\n")
    assert code_hash(variant.source) != code_before


def test_expand_needs_no_include_path(emulator: EmulatorDevice, variant: Variant, tmp_path: Path) -> None:
    text = expand(variant, SHAPE, "a test", SM_90_BYTES)
    assert "\n#include <mini_dnn/" not in text
    assert "#include <cuda_fp16.h>" in text
    assert "mma.sync.aligned.m16n8k16" in text
    alone = tmp_path / "alone.cu"
    alone.write_text(text)
    assert packed(emulator, alone) == 0x40003C00


def test_a_copy_keeps_it(emulator: EmulatorDevice, variant: Variant, tmp_path: Path) -> None:
    folder = create(str(tmp_path / "far" / "away"), variant)
    assert packed(emulator, folder / "kernel.cu") == 0x40003C00
