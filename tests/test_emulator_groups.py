"""Cooperative groups on the emulator compared with NumPy, and the messages for unsupported ones."""

import re
from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import FOLDER, Kernels

from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.emulator.messages import GROUPS_HINT, explained
from mini_dnn.device.emulator.runtime_build import INCLUDE
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.errors import CompileError, LaunchError

INT = np.int32
THREADS = 64
X = np.random.default_rng(0).permutation(THREADS).astype(INT)
FLOATS = np.random.default_rng(1).standard_normal(32, np.float32)
BARE = """\
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(float* y) {{ {use}; }}
"""


def bits(values: np.ndarray) -> int:
    return sum(1 << i for i, value in enumerate(values) if value)


def expected_of_a_tile(size: int) -> np.ndarray:
    """One row per thread."""
    rows = []
    for thread in range(THREADS):
        rank, x = thread % size, X[thread // size * size :][:size]
        rows.append(
            (
                *(rank, 2 * size, thread // size, THREADS // size),
                *(x[3 % size], x[max(rank - 1, 0)], x[min(rank + 1, size - 1)], x[rank ^ size // 2]),
                *((x % 7 == 0).any(), (x % 7 != 0).all(), bits(x % 3 == 0), bits(x % 4 == x[rank] % 4)),
                *(x.sum(), x.min(), x.max(), np.bitwise_xor.reduce(x)),
            )
        )
    return np.array(rows, np.int64).astype(np.uint32).view(INT)


@pytest.mark.parametrize("size", [32, 8, 1])
def test_tiles(emulator: EmulatorDevice, size: int) -> None:
    out = np.zeros((THREADS, 16), INT)
    Kernels(emulator, "groups.cu", SIZE=size)("tiles", (1,), (THREADS,), X, out)
    np.testing.assert_array_equal(out, expected_of_a_tile(size))


@pytest.fixture(scope="module")
def kernels(emulator: EmulatorDevice) -> Kernels:
    return Kernels(emulator, "groups.cu", SIZE=8)


def test_coalesced_threads(kernels: Kernels) -> None:
    out = np.zeros((THREADS, 10), INT)
    kernels("coalesced", (1,), (THREADS,), X, out)
    for warp in (X[:32], X[32:]):
        threads = np.flatnonzero(np.isin(X, warp[warp % 3 == 0]))
        x = X[threads]
        for rank, thread in enumerate(threads):
            found = [rank, len(x), x[1], x[max(rank - 1, 0)], x[rank + 2] if rank + 2 < len(x) else x[rank]]
            found += [3 in x, True, bits(x % 2), x.sum(), bits(x % 2 == x[rank] % 2)]
            assert out[thread].tolist() == found


def test_blocks_and_grids(kernels: Kernels) -> None:
    out = np.zeros((3, 32, 8), INT)
    kernels("blocks", (3,), (8, 4), out)
    for block in range(3):
        for thread in range(32):
            row = [thread, 64, block, thread // 8, 12, 192, 4, thread % 4]
            assert out[block, thread].tolist() == row


def test_a_sum_of_floats_is_added_in_the_order_of_the_gpu(kernels: Kernels) -> None:
    y = np.zeros((2, 32), np.float32)
    kernels("float_sum", (1,), (32,), FLOATS, y)
    np.testing.assert_array_equal(y[0], y[1])


@pytest.mark.parametrize(
    "case",
    [
        ("cg::this_grid().sync()", "launch the rest as the next step of the plan"),
        ("cg::this_cluster()", "ptx::cluster_sync()"),
        ("cg::reduce(cg::this_thread_block(), 1, cg::plus<int>())", "reduce each tile of 32"),
        ("cg::tiled_partition<64>(cg::this_thread_block())", "tiles of 1, 2, 4, 8, 16 or 32 threads"),
        ("cg::memcpy_async(cg::this_thread_block(), y, y, 4)", "ptx::cp_async()"),
        ("cg::this_thread_block().barrier_wait()", "The emulator supports these parts of cooperative groups"),
    ],
)
def test_what_is_not_there_says_what_to_write(
    case: tuple[str, str], emulator: EmulatorDevice, tmp_path: Path
) -> None:
    use, words = case
    (tmp_path / "kernel.cu").write_text(BARE.format(use=use))
    with pytest.raises(CompileError) as error:
        emulator.compile(tmp_path / "kernel.cu", {})
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("message", "hints"),
    [
        ("k.cu:1:2: error: 'tex2D' was not declared in this scope", ["tex2D"]),
        ("cooperative_groups/memcpy_async.h:2:2: error: #error use another", []),
    ],
)
def test_hints_for_what_needs_one(message: str, hints: list[str]) -> None:
    text = explained(message, Path("wrapper.cpp"), Path("k.cu"))
    assert text.startswith(message)
    assert re.findall(r"If nvcc accepts (\w+)|emulator supports", text) == hints


def test_the_message_and_the_page_name_all_members_of_tiles() -> None:
    header = (INCLUDE / "emulator" / "groups.h").read_text()
    tile = header[header.index("class thread_block_tile<Size, void>") :]
    tile = tile[tile.index(" public:") : tile.index(" protected:")]
    members = re.findall(r"^  (?:static |constexpr )*\w+ (\w+)\(", tile, re.MULTILINE)
    assert {"sync", "meta_group_size", "shfl_xor", "match_any"} <= set(members)
    page = (FOLDER.parents[1] / "docs" / "check.md").read_text()
    for member in members:
        assert re.search(rf"\b{member}\b", GROUPS_HINT)
        assert f"`{member}`" in page


def test_scans_are_not_there(emulator: EmulatorDevice, tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(
        "#include <cooperative_groups/scan.h>\n" + BARE.format(use="y[0] = 0")
    )
    with pytest.raises(CompileError, match="shfl_up"):
        emulator.compile(tmp_path / "kernel.cu", {})


def test_a_tile_of_an_invalid_size(emulator: EmulatorDevice, tmp_path: Path) -> None:
    text = BARE.format(use="cg::tiled_partition(cg::this_thread_block(), (unsigned)y[0]).sync()")
    (tmp_path / "kernel.cu").write_text(text)
    with pytest.raises(LaunchError, match="a tile has 1, 2, 4, 8, 16 or 32 threads"):
        Kernels(emulator, tmp_path / "kernel.cu")("k", (1,), (32,), np.full(1, 24, np.float32))


@pytest.mark.exhaustive
@pytest.mark.skipif(find_nvcc() is None, reason="nvcc was not found")
@pytest.mark.parametrize("file", ["kernels/groups.cu", "checked/groups.cu"])
def test_nvcc_takes_the_same_files(file: str) -> None:
    assert build_cubin(FOLDER.parent / file, {"SIZE": 8}, "sm_75")
