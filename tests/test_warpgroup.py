"""Products of a warpgroup from shared memory, swizzled and not, on the emulator and on a GPU."""

from dataclasses import dataclass

import numpy as np
import pytest
from emulator_kernels import FOLDER, Kernels, line_of
from fragments import of_d

from mini_dnn.device import Device
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.errors import LaunchError

INT = np.int32
SOURCE = "warpgroup.cu"
M, K = 128, 64  # two warpgroups, four products
KINDS = [
    (16, "Half", True, False),
    (32, "Bfloat", False, False),
    (64, "Half", False, False),
    (96, "Half", False, True),
    (128, "Bfloat", True, False),
    (144, "Half", True, False),
    (192, "Half", True, True),
    (256, "Bfloat", False, True),
]


def defined(columns: int, kind: str, transposed_a: bool, transposed_b: bool) -> dict[str, int | str]:
    flags = {"TRANSPOSED_A": str(transposed_a).lower(), "TRANSPOSED_B": str(transposed_b).lower()}
    return {"COLUMNS": columns, "TYPE": kind, **flags}


SMALL = defined(64, "Half", False, False)


def bits(x: np.ndarray, kind: str) -> np.ndarray:
    """Small whole numbers as bits of halves, or as the upper halves of floats."""
    if kind == "Half":
        return x.astype(np.float16).view(np.uint16)
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@dataclass
class Layout:
    """The layout of an operand (rows, K) in memory: its descriptor, and the distance to the next 16 k."""

    rows: int
    transposed: bool
    plain: bool = False  # core matrices without swizzle
    apart: bool = False  # the two distances are exchanged, so that the other one is smaller

    @property
    def leading(self) -> int:
        if self.plain:
            return 128 if self.apart else self.rows * 16
        return (1024 if self.apart else K * 128) if self.transposed else 0

    @property
    def stride(self) -> int:
        if self.plain:
            return K * 16 if self.apart else 128
        if self.transposed:
            return 1024 * (-(-self.rows // 64)) if self.apart else 1024
        return 2048 if self.apart else 1024

    @property
    def step(self) -> int:
        if self.plain:
            return 2 * self.leading
        return 2 * self.stride if self.transposed else 32

    @property
    def warpgroup(self) -> int:
        """The distance from 64 rows to the next 64."""
        return self.leading if self.transposed else 8 * self.stride

    def offsets(self) -> np.ndarray:
        """The address of each element, in bytes, (rows, K)."""
        row, k = np.mgrid[: self.rows, :K]
        if self.plain:
            return k // 8 * self.leading + row // 8 * self.stride + row % 8 * 16 + k % 8 * 2
        if self.transposed:
            offset = row // 64 * self.leading + k // 8 * self.stride + k % 8 * 128 + row % 64 * 2
        else:
            offset = row // 8 * self.stride + row % 8 * 128 + k * 2
        return offset ^ (offset >> 3 & 0x70)


def run(
    kernels: Kernels, rng: np.random.Generator, kind: str, a: Layout, b: Layout, accumulate: bool
) -> None:
    x, y = rng.integers(-8, 9, (M, K)), rng.integers(-8, 9, (b.rows, K))  # all sums are exact
    c = rng.integers(-100, 100, (M, b.rows)).astype(np.float32)
    start_b = -(-int(a.offsets().max() + 2) // 1024) * 1024
    image = rng.integers(0, 2**16, 112 * 1024).astype(np.uint16)
    image[a.offsets() // 2] = bits(x, kind)
    image[(start_b + b.offsets()) // 2] = bits(y, kind)
    d = of_d(c)
    numbers = (image.nbytes // 16, K // 16, accumulate, a.plain, 0, a.leading, a.stride, a.step, a.warpgroup)
    numbers += (start_b, b.leading, b.stride, b.step)
    kernels("product", (1,), (256,), image, d, *map(INT, numbers), shared=image.nbytes + 1024)
    np.testing.assert_array_equal(d, of_d((x @ y.T + accumulate * c).astype(np.float32)))


@pytest.mark.parametrize(("columns", "kind", "transposed_a", "transposed_b"), KINDS)
def test_swizzled(
    on_hopper: Device,
    rng: np.random.Generator,
    columns: int,
    kind: str,
    transposed_a: bool,
    transposed_b: bool,
) -> None:
    kernels = Kernels(on_hopper, SOURCE, **defined(columns, kind, transposed_a, transposed_b))  # type: ignore[arg-type]
    for accumulate in (False, True):
        for apart in (False, True):
            a, b = Layout(M, transposed_a, apart=apart), Layout(columns, transposed_b, apart=apart)
            run(kernels, rng, kind, a, b, accumulate)


@pytest.mark.parametrize("apart", [False, True])
def test_not_swizzled(on_hopper: Device, rng: np.random.Generator, apart: bool) -> None:
    kernels = Kernels(on_hopper, SOURCE, **defined(64, "Half", False, False))  # type: ignore[arg-type]
    a, b = Layout(M, False, plain=True, apart=apart), Layout(64, False, plain=True, apart=apart)
    run(kernels, rng, "Half", a, b, True)


@pytest.mark.exhaustive
@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
@pytest.mark.parametrize(("columns", "kind", "transposed_a", "transposed_b"), KINDS[1::2])
def test_there_with_nvcc(columns: int, kind: str, transposed_a: bool, transposed_b: bool) -> None:
    cubin = build_cubin(FOLDER / SOURCE, defined(columns, kind, transposed_a, transposed_b), "sm_90a")
    assert b"product" in cubin


def test_registers(on_hopper: Device) -> None:
    out = np.zeros(256, INT)
    Kernels(on_hopper, SOURCE, **SMALL)("registers", (1,), (256,), out, INT(0))  # type: ignore[arg-type]
    np.testing.assert_array_equal(out, np.arange(256) // 128)


@pytest.mark.parametrize(
    ("which", "threads", "message"),
    [
        (1, 256, "is for all four warps of a warpgroup, but they did not call the same"),
        (2, 256, "needs all 32 lanes of a warp; found mask 0x0000ffff"),
        (0, 224, "is for all four warps of a warpgroup, but the last warpgroup of a block of 224"),
    ],
)
def test_registers_of_a_part(quick_emulator: EmulatorDevice, which: int, threads: int, message: str) -> None:
    twins = Kernels(quick_emulator, SOURCE, **SMALL)
    with pytest.raises(LaunchError, match=rf"setmaxnreg \(warpgroup\.cu:\d+\) {message}"):
        twins("registers", (1,), (threads,), np.zeros(256, INT), INT(which))


MISUSES = [
    (0, r"warpgroup\.cu:\d+: the address of a matrix_descriptor_128b is not a multiple of 1024 bytes: 128"),
    (1, r"wgmma_m64k16 \(warpgroup\.cu:\d+\): .* was moved on to row 1 of eight"),
    (2, r"wgmma_m64k16 \(warpgroup\.cu:\d+\): a transposed operand needs .* matrix_descriptor_128b"),
    (3, "needs the same from all lanes of a warp, and lane 16 passes another descriptor"),
    (4, "needs the same from all lanes of a warp, and lane 16 makes another product"),
]


@pytest.mark.parametrize(("which", "message"), MISUSES)
def test_misuse(quick_emulator: EmulatorDevice, which: int, message: str) -> None:
    twins = Kernels(quick_emulator, SOURCE, **SMALL)
    with pytest.raises(LaunchError, match=message):
        twins("misused", (1,), (128,), np.zeros(128, np.float32), INT(which), shared=34 * 1024)


@pytest.mark.parametrize(
    ("which", "kind", "what", "mark"),
    [
        (0, "misaligned", "address of a matrix_descriptor_128b is not a multiple of 1024", "which == 0"),
        (5, "async", "wgmma_m64k16 from .* without a fence_proxy_async", "// here"),
        (6, "async", "write of .* while a wgmma_m64k16 that will read it", "// too early"),
    ],
)
def test_what_checked_mode_says(which: int, kind: str, what: str, mark: str) -> None:
    checked = Kernels(CheckedEmulator(), SOURCE, **SMALL)
    with pytest.raises(KernelError, match=what) as caught:
        checked("misused", (1,), (128,), np.zeros(128, np.float32), INT(which), shared=34 * 1024)
    found = caught.value.finding
    assert found.kind == kind, found
    assert found.place is not None
    assert found.place.line == line_of(SOURCE, mark), found


def test_no_finding_in_checked_mode(rng: np.random.Generator) -> None:
    checked = Kernels(CheckedEmulator(), SOURCE, **defined(96, "Half", False, True))
    run(checked, rng, "Half", Layout(M, False), Layout(96, True), True)
