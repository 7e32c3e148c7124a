"""Products of a warpgroup compared with the PTX ISA's definition in NumPy, on the emulator and on a GPU."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest
from emulator_kernels import FOLDER, Kernels, line_of
from fragments import of_a, of_d

from mini_dnn.device import Device
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.device.nvcc import build_cubin, find_nvcc, nvcc_arch
from mini_dnn.errors import LaunchError

INT = np.int32
SOURCE = "wgmma.cu"


@pytest.fixture
def kernels(on_hopper: Device) -> Kernels:
    return Kernels(on_hopper, SOURCE)  # type: ignore[arg-type]


@pytest.fixture
def twins(emulator: EmulatorDevice) -> Kernels:
    return Kernels(emulator, SOURCE)


@pytest.fixture(scope="module")
def checked() -> Iterator[Kernels]:
    with closing(CheckedEmulator()) as device:
        yield Kernels(device, SOURCE)


def matrix_at(memory: np.ndarray, start: int, leading: int, stride: int, n: int) -> np.ndarray:
    """B (16, n) from core matrices in a memory of halves. Distances are in bytes."""
    k, column = np.mgrid[:16, :n]
    return memory[(start + k // 8 * leading + column // 8 * stride + column % 8 * 16 + k % 8 * 2) // 2]


def halves(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float16)


def assert_sums(d: np.ndarray, exact: np.ndarray) -> None:
    """Equal up to the error of fp32 sums of some hundred terms near 1 that may be truncated."""
    np.testing.assert_allclose(d, of_d(exact), rtol=0, atol=5e-4)
    assert np.abs(of_d(exact)).max() > 1  # not all zeros


@pytest.mark.parametrize("n", [24, 48, 72])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(
    ("leading", "stride", "step"),
    [
        (128, 256, 0),  # the two halves of k side by side
        (16 * 72, 128, 16 * 144),  # all columns side by side; the next 16 k behind them
        (16, 128, 48),  # core matrices overlap: each column is the next one's, 8 k on
        (16, 144, 32),  # and blocks of 8 columns lie apart
    ],
)
def test_chain(
    kernels: Kernels, rng: np.random.Generator, n: int, accumulate: bool, leading: int, stride: int, step: int
) -> None:
    products, rows = 5, 128  # two warpgroups
    a, c = halves(rng, products, rows, 16), rng.standard_normal((rows, n)).astype(np.float32)
    memory = halves(rng, (leading + n // 8 * stride + products * step) // 2 + 64)
    exact = accumulate * c.astype(float)
    for i in range(products):
        exact += a[i].astype(float) @ matrix_at(memory, i * step, leading, stride, n)
    d = of_d(c)
    numbers = (memory.size // 8, products, leading, stride, step, accumulate)
    registers = np.stack([of_a(part) for part in a])
    kernels(f"chain{n}", (1,), (2 * rows,), registers, memory, d, *map(INT, numbers), shared=memory.nbytes)
    assert_sums(d, exact)


def test_two_groups(kernels: Kernels, rng: np.random.Generator) -> None:
    a, memory = halves(rng, 2, 64, 16), halves(rng, 2000)
    leading, stride, step = 1024, 128, 64
    d = np.zeros((36, 128), np.float32)
    numbers = (memory.size // 8, leading, stride, step)
    registers = np.stack([of_a(part) for part in a])
    kernels("two_groups", (1,), (128,), registers, memory, d, *map(INT, numbers), shared=memory.nbytes)
    for i, (n, sums) in enumerate([(24, d[:12]), (48, d[12:])]):
        assert_sums(sums, a[i].astype(float) @ matrix_at(memory, i * step, leading, stride, n))


def ring_sums(kernels: Kernels, rng: np.random.Generator) -> None:
    products = 7
    a, b = halves(rng, products, 64, 16), halves(rng, products, 384)
    d = np.zeros((12, 128), np.float32)
    kernels("ring", (1,), (160,), np.stack([of_a(part) for part in a]), b, d, INT(products))
    assert_sums(d, sum(a[i].astype(float) @ matrix_at(b[i], 0, 128, 256, 24) for i in range(products)))


def test_one_thread_gives_a_stage_back(kernels: Kernels, rng: np.random.Generator) -> None:
    """The wait of one warp is enough: no warp's operands are needed any more."""
    ring_sums(kernels, rng)


@pytest.mark.parametrize("schedule", [0, 1, 2])
def test_no_finding_if_one_thread_gives_a_stage_back(
    checked: Kernels, rng: np.random.Generator, schedule: int
) -> None:
    device = checked.device
    assert isinstance(device, CheckedEmulator)
    for seed in range(3):
        device.set_schedule(schedule, seed)
        ring_sums(checked, rng)
    device.set_schedule(0, 0)


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", nvcc_arch(90)])
def test_wgmma_exists_only_on_its_architecture(arch: str) -> None:
    assert (b"chain72" in build_cubin(FOLDER / SOURCE, {}, arch)) == (arch == "sm_90a")


def test_nothing_happens_before_the_wait(twins: Kernels, rng: np.random.Generator) -> None:
    """The sums are unchanged until the wait, and the product uses b as it is at the wait."""
    a = halves(rng, 64, 16)
    early, late = np.zeros((2, 12, 128), np.float32)
    twins("too_early", (1,), (128,), of_a(a), early, late)
    assert (early == -1).all()
    assert_sums(late, np.repeat(2 * a.astype(float).sum(axis=1, keepdims=True) - 1, 24, axis=1))


MISUSES = [
    (0, 128, r"wgmma\.cu:\d+: the address of a matrix_descriptor is not a multiple of 16 bytes: 8 past one"),
    (1, 128, "the distance `leading` of a matrix_descriptor is not a multiple of 16 bytes: 8 past one"),
    (2, 128, "the distance `stride` of a matrix_descriptor is not a multiple of 16 bytes: 8 past one"),
    (3, 128, "matrix_descriptor {}: distances of 128 and 262144 bytes; it holds at most 262128"),
    (4, 128, "matrix_descriptor {}: the matrix is not in shared memory"),
    (
        5,
        128,
        "wgmma_m64k16 {} needs the same from all lanes of a warp, and lane 16 passes another descriptor",
    ),
    (6, 128, "wgmma_wait {} needs all 32 lanes of a warp; found mask 0x0000ffff"),
    (7, 128, "wgmma_commit {} needs .*, and lane 16 closes a group after 0 products, others after 1"),
    (8, 128, "wgmma_wait {} needs .*, and lane 16 has started 1 products in 1 groups, others 1 in 2"),
    (
        9,
        128,
        "wgmma_m64k16 {} is a product of all four warps of a warpgroup, but they did not start the same",
    ),
    (10, 128, "wgmma_wait<0> {}: the sums passed to it are still in flight, in the product of line"),
    (11, 128, "wgmma_wait<1> {}: the sums passed to it are still in flight, in the product of line"),
    (12, 128, "wgmma_m64k16 {}: the block ends without waiting for this product"),
    (
        13,
        96,
        "wgmma_m64k16 {} is a product of four warps, but the last warpgroup of a block of 96 threads has",
    ),
]


@pytest.mark.parametrize(("which", "threads", "message"), MISUSES)
def test_misuse(twins: Kernels, which: int, threads: int, message: str) -> None:
    with pytest.raises(LaunchError, match=message.format(r"\(wgmma\.cu:\d+\)")):
        twins("misused", (1,), (threads,), np.zeros(128, np.float32), INT(which))


@pytest.mark.parametrize(
    ("which", "kind", "mark"),
    [
        (0, "misaligned", "if (which == 0)"),
        (2, "misaligned", "if (which == 2)"),
        (5, "warp-mask", "if (which != 7 || lane < 16)"),
        (6, "warp-mask", "// of all"),
        (7, "warp-mask", "if (which != 10)"),
        (8, "warp-mask", "// of all"),
        (9, "warp-mask", "if (which != 7 || lane < 16)"),
        (10, "async", "// of all"),
        (11, "async", "// of what it leaves"),
        (12, "async", "if (which != 7 || lane < 16)"),
    ],
)
def test_what_checked_mode_says(checked: Kernels, which: int, kind: str, mark: str) -> None:
    with pytest.raises(KernelError) as caught:
        checked("misused", (1,), (128,), np.zeros(128, np.float32), INT(which))
    found = caught.value.finding
    assert found.kind == kind, found
    assert found.place is not None
    assert found.place.line == line_of(SOURCE, mark), found
    assert found.cure


@pytest.mark.parametrize(
    ("which", "words"),
    [
        (0, "in a thread that has not called wgmma_fence()"),
        (1, "adds to sums that the thread has changed since its last wgmma_fence()"),
        (2, "reads registers of a that the thread has changed since its last wgmma_fence()"),
    ],
)
def test_registers_that_no_fence_follows(checked: Kernels, which: int, words: str) -> None:
    memory = np.zeros(192, np.float32)
    with pytest.raises(KernelError) as caught:
        checked("unfenced", (1,), (128,), memory, INT(which), shared=768)
    found = caught.value.finding
    assert found.what == f"wgmma_m64k16 {words}"
    assert found.place is not None
    assert found.place.line == line_of(SOURCE, "// of registers")
    checked("unfenced", (1,), (128,), memory, INT(3), shared=768)
    assert (memory[:128] == 1).all()


@pytest.mark.parametrize(
    ("which", "words", "mark"),
    [
        (0, "adds to sums that the thread has changed since its last wgmma_fence()", "// for the first time"),
        (
            1,
            "reads registers of a that the thread has changed since its last wgmma_fence()",
            "// for the first",
        ),
        (
            2,
            "overwrites a result of an earlier product, and the thread has not called wgmma_fence()",
            "// once",
        ),
    ],
)
def test_registers_of_one_product_that_no_fence_follows(
    checked: Kernels, which: int, words: str, mark: str
) -> None:
    memory = np.zeros(192, np.float32)
    with pytest.raises(KernelError) as caught:
        checked("unfenced_once", (1,), (128,), memory, INT(which), shared=768)
    found = caught.value.finding
    assert found.what.startswith(f"wgmma_m64k16 {words}")
    assert found.place is not None
    assert found.place.line == line_of(SOURCE, mark)
    checked("unfenced_once", (1,), (128,), memory, INT(3), shared=768)


def test_b_is_written_before_the_wait(checked: Kernels) -> None:
    a, d = np.zeros((4, 128), np.uint32), np.zeros((12, 128), np.float32)
    with pytest.raises(KernelError, match=r"write of b.* while a wgmma_m64k16 that will read it") as caught:
        checked("too_early", (1,), (128,), a, d, d.copy())
    assert caught.value.finding.place is not None
    assert caught.value.finding.place.line == line_of(SOURCE, "// too early")


@pytest.mark.parametrize("columns", [24, 72])
def test_no_finding_in_a_chain(checked: Kernels, columns: int) -> None:
    a, memory = np.zeros((3, 4, 256), np.uint32), np.zeros(2048, np.float16)
    numbers = (256, 3, 16, 128, 32, 1)
    d = np.ones((columns // 2, 256), np.float32)
    checked(f"chain{columns}", (1,), (256,), a, memory, d, *map(INT, numbers), shared=memory.nbytes)
    assert (d == 1).all()
