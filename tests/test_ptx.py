"""The PTX wrappers compared with the PTX ISA's definitions in NumPy, on the emulator and on a GPU."""

import numpy as np
import pytest
from emulator_kernels import Kernels, line_of

from mini_dnn.device import Device
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.errors import LaunchError

INT = np.int32
LANES = np.arange(32)
GROUP, THREAD = LANES // 4, LANES % 4  # groupID and threadID_in_group of the ISA


@pytest.fixture
def kernels(device: Device) -> Kernels:
    return Kernels(device, "ptx.cu")  # type: ignore[arg-type]


@pytest.fixture
def twins(emulator: EmulatorDevice) -> Kernels:
    return Kernels(emulator, "ptx.cu")


def halves_of_a(a: np.ndarray) -> np.ndarray:
    """Registers of A (16, k), as in "Matrix Fragments for mma.m16n8k16", element by element."""
    registers = np.empty((a.shape[1] // 4, 32, 2), np.float16)
    for register in range(len(registers)):
        for i in range(2):
            row = GROUP + 8 * (register % 2)
            column = 2 * THREAD + i + 8 * (register // 2)
            registers[register, :, i] = a[row, column]
    return registers.view(np.uint32)[..., 0]


def halves_of_b(b: np.ndarray) -> np.ndarray:
    """Registers of B (k, 8)."""
    registers = np.empty((len(b) // 8, 32, 2), np.float16)
    for register in range(len(registers)):
        for i in range(2):
            registers[register, :, i] = b[2 * THREAD + i + 8 * register, GROUP]
    return registers.view(np.uint32)[..., 0]


def of_d(d: np.ndarray) -> np.ndarray:
    """Registers of the accumulator (16, 8)."""
    return np.stack([d[GROUP + 8 * (i // 2), 2 * THREAD + i % 2] for i in range(4)])


@pytest.mark.parametrize(("kernel", "k"), [("mma_k8", 8), ("mma_k16", 16)])
def test_product_of_halves(kernels: Kernels, rng: np.random.Generator, kernel: str, k: int) -> None:
    a, b = rng.integers(-8, 9, (16, k)), rng.integers(-8, 9, (k, 8))  # all sums are exact
    c = rng.integers(-100, 100, (16, 8)).astype(np.float32)
    d = of_d(c)
    kernels(kernel, (1,), (32,), halves_of_a(a.astype(np.float16)), halves_of_b(b.astype(np.float16)), d)
    np.testing.assert_array_equal(d, of_d((a @ b + c).astype(np.float32)))


def test_product_of_bfloats(kernels: Kernels, rng: np.random.Generator) -> None:
    a, b = rng.integers(-8, 9, (16, 16)), rng.integers(-8, 9, (16, 8))
    c = rng.integers(-100, 100, (16, 8)).astype(np.float32)
    d = of_d(c)
    of_a, of_b = (
        f((x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.float16))
        for f, x in ((halves_of_a, a), (halves_of_b, b))
    )
    kernels("mma_bf16", (1,), (32,), of_a, of_b, d)
    np.testing.assert_array_equal(d, of_d((a @ b + c).astype(np.float32)))


def test_product_of_tf32(kernels: Kernels, rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((16, 8)).astype(np.float32), rng.standard_normal((8, 8)).astype(np.float32)
    a_registers = np.stack([a[GROUP + 8 * (i % 2), THREAD + 4 * (i // 2)] for i in range(4)])
    b_registers = np.stack([b[THREAD + 4 * i, GROUP] for i in range(2)])
    d = np.zeros((4, 32), np.float32)
    kernels("mma_tf32", (1,), (32,), a_registers.view(np.uint32), b_registers.view(np.uint32), d)
    cut = [(x.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(float) for x in (a, b)]
    np.testing.assert_allclose(d, of_d(cut[0] @ cut[1]), rtol=0, atol=2e-6)
    assert np.abs(d - of_d(a.astype(float) @ b)).max() > 1e-4  # these differ from products of the full floats


def test_max_nan(kernels: Kernels) -> None:
    values = np.array([-np.inf, -1, -0.0, 0, 2, np.inf, np.nan], np.float32)
    a, b = (np.ascontiguousarray(x.reshape(-1)) for x in np.meshgrid(values, values))
    d = np.zeros_like(a)
    kernels("larger", (1,), (a.size,), a, b, d)
    np.testing.assert_array_equal(d, np.maximum(a, b))
    np.testing.assert_array_equal(np.signbit(d), np.signbit(a) & np.signbit(b))


def test_pack(kernels: Kernels, rng: np.random.Generator) -> None:
    x = rng.standard_normal(64).astype(np.float32) * 10.0 ** rng.integers(-8, 5, 64).astype(np.float32)
    x[:4] = 1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519, -70000  # ties to even, the last finite, infinite
    packed, unpacked = np.zeros(32, np.uint32), np.zeros(64, np.float32)
    with np.errstate(over="ignore"):
        halves = x.astype(np.float16)
    kernels("pack", (1,), (32,), x, packed, unpacked)
    np.testing.assert_array_equal(packed, halves.view(np.uint32))
    np.testing.assert_array_equal(unpacked, halves.astype(np.float32))


def test_pack_bfloats(kernels: Kernels, rng: np.random.Generator) -> None:
    x = rng.standard_normal(64).astype(np.float32) * 10.0 ** rng.integers(-38, 38, 64).astype(np.float32)
    x[:6] = 1 + 2.0**-8, 1 + 3 * 2.0**-8, np.finfo(np.float32).max, -np.inf, np.nan, 1e-40  # ties, infinite
    bits = x.view(np.uint32)
    rounded = np.where(np.isnan(x), 0x7FFF, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    packed, unpacked = np.zeros(32, np.uint32), np.zeros(64, np.float32)
    kernels("pack_bfloats", (1,), (32,), x, packed, unpacked)
    np.testing.assert_array_equal(packed, rounded.view(np.uint32))
    np.testing.assert_array_equal(unpacked.view(np.uint32), rounded.astype(np.uint32) << 16)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix(kernels: Kernels, rng: np.random.Generator, count: int, transposed: bool) -> None:
    memory = rng.integers(0, 2**16, (64, 8)).astype(np.uint16)
    rows = rng.permutation(64)[:32].astype(INT)  # each lane's own
    out = np.zeros((count, 32), np.uint32)
    kernels("matrices", (1,), (32,), memory, rows, out, INT(count), INT(transposed))
    for i in range(count):
        matrix = memory[rows[8 * i : 8 * i + 8]]
        matrix = matrix.T if transposed else matrix
        low, high = matrix[GROUP, 2 * THREAD], matrix[GROUP, 2 * THREAD + 1]
        np.testing.assert_array_equal(out[i], low.astype(np.uint32) | high.astype(np.uint32) << 16)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_stmatrix(kernels: Kernels, rng: np.random.Generator, count: int, transposed: bool) -> None:
    bulk(kernels.device)
    memory, matrices = (rng.integers(0, 2**16, shape).astype(np.uint16) for shape in ((64, 8), (count, 8, 8)))
    rows = rng.permutation(64)[:32].astype(INT)  # each lane's own
    expected = memory.copy()
    expected[rows[: 8 * count]] = matrices.reshape(-1, 8)
    held = matrices.transpose(0, 2, 1) if transposed else matrices
    registers = np.ascontiguousarray(held[:, GROUP].reshape(count, 32, 8)[:, LANES, 2 * THREAD]).astype(
        np.uint32
    )
    registers |= held[:, GROUP][:, LANES, 2 * THREAD + 1].astype(np.uint32) << 16
    kernels("stored", (1,), (32,), registers, rows, memory, INT(count), INT(transposed))
    np.testing.assert_array_equal(memory, expected)


@pytest.mark.parametrize("valid", [(16, 8, 4), (12, 4, 4), (5, 3, 1), (0, 0, 0)])
def test_cp_async(kernels: Kernels, rng: np.random.Generator, valid: tuple[int, int, int]) -> None:
    """The valid bytes arrive, and the others become zero."""
    x = rng.integers(1, 2**31, (64, 12)).astype(INT)
    late, nothing = np.zeros_like(x), np.zeros_like(x)
    kernels("async_groups", (1,), (64,), x, np.array(valid, INT), nothing, nothing.copy(), late)
    expected = x.copy().view(np.uint8).reshape(64, 48)
    expected[:, valid[0] : 16] = 0
    expected[:, 16 + valid[1] : 24] = 0
    expected[:, 24 + valid[2] : 28] = 0
    expected[:, 28:32] = 0xFF  # nobody copies to these
    np.testing.assert_array_equal(late.view(np.uint8).reshape(64, 48), expected)


def test_cp_async_lands_at_its_wait(twins: Kernels, rng: np.random.Generator) -> None:
    x = rng.integers(1, 2**31, (64, 12)).astype(INT)
    early, between, late = (np.zeros_like(x) for _ in range(3))
    twins("async_groups", (1,), (64,), x, np.array([16, 8, 4], INT), early, between, late)
    assert (early == -1).all()
    np.testing.assert_array_equal(between[:, :6], x[:, :6])
    assert (between[:, 6:] == -1).all()
    np.testing.assert_array_equal(late[:, 6], x[:, 6])
    np.testing.assert_array_equal(late[:, 8:], x[:, 8:])


def bulk(device: Device) -> None:
    if device.arch < 90:
        pytest.skip(f"bulk copies need sm_90, the device is sm_{device.arch}")


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_bulk_copies(kernels: Kernels, rng: np.random.Generator, parts: int) -> None:
    bulk(kernels.device)
    x = rng.standard_normal((parts, 256)).astype(np.float32)
    y = np.full_like(x, np.nan)
    kernels("bulk_double", (1,), (64,), x, y, INT(parts))
    np.testing.assert_array_equal(y, 2 * x)


@pytest.mark.parametrize("warps", [2, 3, 4])
def test_mbarrier_phases(kernels: Kernels, warps: int) -> None:
    bulk(kernels.device)
    order = np.zeros((9, warps), INT)
    kernels("take_turns", (1,), (32 * warps,), order, INT(9))
    np.testing.assert_array_equal(order, np.tile(np.arange(warps), (9, 1)))


def test_bulk_load_lands_at_the_wait(twins: Kernels) -> None:
    x, early = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    twins("bulk_early", (1,), (32,), x, early, INT(128), INT(0))
    np.testing.assert_array_equal(early, 100 * x - 1)


def test_a_wait_for_the_wrong_parity_does_not_wait(twins: Kernels) -> None:
    x, early = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    twins("bulk_early", (1,), (32,), x, early, INT(128), INT(1))
    assert (early == -101).all()


@pytest.mark.parametrize("expected", [64, 256])
def test_bytes_that_never_arrive(twins: Kernels, expected: int) -> None:
    x, early = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    line = line_of("ptx.cu", "// here")
    message = (
        rf"(?s)is stuck.*threads 0-31 wait at mbarrier_wait \(.*ptx\.cu:{line}\).*"
        rf"phase 0 \(parity 0\), which expects {expected} bytes and gets 128"
    )
    with pytest.raises(LaunchError, match=message):
        twins("bulk_early", (1,), (32,), x, early, INT(expected), INT(0))
    twins("bulk_early", (1,), (32,), x, early, INT(128), INT(0))  # no effect of the failure remains


@pytest.mark.parametrize(("wait", "value"), [(0, np.nan), (1, np.arange(32)), (2, -1)])
def test_bulk_store_reads_its_source_at_the_wait(twins: Kernels, wait: int, value: float) -> None:
    y = np.full(32, np.nan, np.float32)
    twins("bulk_store_early", (1,), (32,), y, INT(wait))
    np.testing.assert_array_equal(y, np.full(32, value, np.float32))


@pytest.mark.parametrize(
    ("which", "message"),
    [
        (0, "address that cp_async writes is not a multiple of 16 bytes: 4 past one"),
        (1, "address that cp_async reads is not a multiple of 8 bytes: 4 past one"),
        (2, "address of a row for ldmatrix is not a multiple of 16 bytes: 8 past one"),
        (3, "size of bulk_load is not a multiple of 16 bytes: 8 past one"),
        (4, "no thread of the block has initialised this mbarrier"),
        (5, "address that bulk_prefetch reads is not a multiple of 16 bytes: 4 past one"),
        (6, "size of bulk_prefetch is not a multiple of 16 bytes: 8 past one"),
    ],
)
def test_wrong_use(twins: Kernels, which: int, message: str) -> None:
    with pytest.raises(LaunchError, match=rf"ptx\.cu:\d+\)?: .*{message}"):
        twins("misaligned", (1,), (32,), np.zeros(64, np.float32), INT(which))
