"""A matrix product in the usual way for Hopper: tensor copies, a ring, products of warpgroups, stmatrix."""

import numpy as np
import pytest
from emulator_kernels import FOLDER, line_of
from tensors import run

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.variant import TensorMap

INT = np.int32
SOURCE = "gemm_tensor.cu"
SHAPES = [(1, 8, 8), (17, 40, 72), (128, 256, 64), (200, 264, 136), (300, 520, 200)]
KINDS = [(64, 2, "Half"), (256, 4, "Half"), (128, 3, "Bfloat")]


def bits(x: np.ndarray, kind: str) -> np.ndarray:
    """Floats rounded to halves, or to bfloat16 as bits."""
    if kind == "Half":
        return x.astype(np.float16)
    whole = x.astype(np.float32).view(np.uint32)
    return ((whole + 0x7FFF + (whole >> 16 & 1)) >> 16).astype(np.uint16)


def check(
    device: Device,
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    columns: int,
    stages: int,
    kind: str,
    blocks: int,
    waits: int = 1,
) -> None:
    m, n, k = shape
    a, b = rng.integers(-3, 4, (m, k)).astype(float), rng.integers(-3, 4, (k, n)).astype(float)
    c = np.full((m, n), 0x7FFF, np.uint16)
    c = c.view(np.float16) if kind == "Half" else c
    dtype = "float16" if kind == "Half" else "bfloat16"
    maps = [
        (x, TensorMap("x", box, dtype=dtype))
        for x, box in ((bits(a, kind), (128, 64)), (bits(b, kind), (64, 64)), (c, (16, 64)))
    ]
    shared = 1024 + stages * (128 + columns) * 128 + 8 * 4096 + 16 * stages
    defines = {"BN": columns, "STAGES": stages, "TYPE": kind, "WAITS": waits}
    run(device, SOURCE, "gemm", (blocks,), 288, *maps, *map(INT, shape), shared=shared, defines=defines)
    np.testing.assert_array_equal(c, bits(a @ b, kind))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("columns", "stages", "kind"), KINDS)
def test_product(
    on_hopper: Device,
    rng: np.random.Generator,
    shape: tuple[int, int, int],
    columns: int,
    stages: int,
    kind: str,
) -> None:
    for blocks in (1, 3):
        check(on_hopper, rng, shape, columns, stages, kind, blocks)


def test_no_finding_in_checked_mode(rng: np.random.Generator) -> None:
    check(CheckedEmulator(), rng, (136, 72, 136), 64, 2, "Half", 1)


def test_products_of_what_nobody_waited_for(rng: np.random.Generator) -> None:
    with pytest.raises(KernelError, match="nothing orders it after another thread's read") as caught:
        check(CheckedEmulator(), rng, (136, 72, 136), 64, 2, "Half", 1, waits=0)
    found = caught.value.finding
    assert found.place is not None
    assert found.other is not None
    assert found.other.place is not None
    lines = {line_of(SOURCE, "ptx::tensor_load(a"), line_of(SOURCE, "ptx::wgmma_m64k16")}
    assert {found.place.line, found.other.place.line} == lines


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
def test_with_nvcc() -> None:
    assert b"gemm" in build_cubin(
        FOLDER / SOURCE, {"BN": 256, "STAGES": 4, "TYPE": "Half", "WAITS": 1}, "sm_90a"
    )
