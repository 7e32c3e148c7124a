"""The emulator's counters for kernels whose values can be derived by hand."""

from collections.abc import Iterator
from pathlib import Path

import counters_cases
import numpy as np
import pytest

from mini_dnn.device.base import LaunchConfig
from mini_dnn.device.emulator.counted import CountedEmulator, CountedLaunch
from mini_dnn.device.emulator.counted_interface import EventKind
from mini_dnn.errors import DeviceError
from mini_dnn.profiling.bracket import Larger, bracket
from mini_dnn.profiling.counters import Counters
from mini_dnn.profiling.gpus import GPUS
from mini_dnn.profiling.totals import counters

WARPS = counters_cases.BLOCKS * counters_cases.THREADS // 32
Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def device() -> Iterator[CountedEmulator]:
    found = CountedEmulator(threads=1, blocks=[1])
    yield found
    found.close()


@pytest.fixture(scope="module")
def launches(device: CountedEmulator) -> dict[str, CountedLaunch]:
    counters_cases.launch_probes(device)
    names = (probe.name for probe in counters_cases.probes())
    return dict(zip(names, device.launches, strict=True))


def one(launches: dict[str, CountedLaunch], name: str) -> Counters:
    (found,) = counters([launches[name]])
    return found


@pytest.mark.parametrize(
    ("name", "sectors"),  # of a warp's load
    [
        ("strided 1", 4),
        ("strided 2", 8),
        ("strided 8", 32),
        ("strided 32", 32),
        ("shifted 1", 5),
        ("shifted 8", 4),
        ("wide8 1", 8),
        ("wide16 1", 16),
        ("wide16 3", 32),
        ("narrow1 1", 1),
        ("narrow2 1", 2),
        ("broadcast 5", 1),
        ("reversed 127", 4),
        ("first_lanes 5", 1),
        ("every_other 2", 4),
    ],
)
def test_sectors(launches: dict[str, CountedLaunch], name: str, sectors: int) -> None:
    found = one(launches, name)
    assert found.sum("instructions", "global", "load") == WARPS
    assert found.sum("sectors", "global", "load") == WARPS * sectors


@pytest.mark.parametrize(
    ("name", "wavefronts", "ideal"),  # of a warp's load from shared memory
    [
        ("shared4 1", 1, 1),
        ("shared4 2", 2, 1),
        ("shared4 3", 1, 1),
        ("shared4 8", 8, 1),
        ("shared4 32", 32, 1),
        ("shared4 33", 1, 1),
        ("shared8 1", 2, 2),
        ("shared8 2", 4, 2),
        ("shared8 5", 2, 2),
        ("shared16 1", 4, 4),
        ("shared16 2", 8, 4),
        ("shared16 4", 16, 4),
        ("shared1 1", 1, 1),
        ("shared2 2", 1, 1),
        ("shared4_xor 5", 1, 1),
        ("shared4_divided 32", 1, 1),
    ],
)
def test_wavefronts(launches: dict[str, CountedLaunch], name: str, wavefronts: int, ideal: int) -> None:
    found = one(launches, name)
    assert found.sum("wavefronts", "shared", "load") == WARPS * wavefronts
    assert found.sum("ideal_wavefronts", "shared", "load") == WARPS * ideal


class TestDivergence:
    """Lanes that diverge and reconverge where a GPU lets them."""

    def test_lanes_of_loops_are_grouped_by_iteration(self, launches: dict[str, CountedLaunch]) -> None:
        found = one(launches, "nested_trips 6")  # (T + j) % 6 trips: some lane of each warp makes all 5
        loads = [access for access in found.accesses if access.operation == "load"]
        assert sum(access.instructions for access in loads) == WARPS * 6 * 5
        lanes = sum((t + j) % 6 for t in range(64) for j in range(6)) * counters_cases.BLOCKS
        assert sum(access.lanes for access in loads) == lanes

    def test_two_sides_of_a_branch_are_two_instructions(self, launches: dict[str, CountedLaunch]) -> None:
        found = one(launches, "two_ways 4")
        assert found.sum("instructions", "global", "load") == WARPS * 2 * 4
        assert found.sum("lanes", "global", "load") == WARPS * 32 * 4
        assert found.sum("instructions", "global", "store") == WARPS  # they have met again
        assert sum(branch.splits for branch in found.branches) == WARPS

    def test_lanes_that_leave_early(self, launches: dict[str, CountedLaunch]) -> None:
        found = one(launches, "leave_early 77")
        assert found.sum("lanes", "global", "load") == 77
        assert found.sum("instructions", "global", "load") == 3

    def test_a_kernel_without_branches_keeps_all_lanes(self, launches: dict[str, CountedLaunch]) -> None:
        assert one(launches, "strided 1").active_lanes == 32
        assert one(launches, "every_other 2").active_lanes < 32


class TestArithmetic:
    """Arithmetic instructions, counted in the machine code."""

    def test_fmas(self, launches: dict[str, CountedLaunch]) -> None:
        assert one(launches, "many_fmas 8").operations("ffma") == 128 * 8 * 4

    def test_special_functions(self, launches: dict[str, CountedLaunch]) -> None:
        assert one(launches, "special 8").operations("special") == 128 * 8

    def test_products(self, launches: dict[str, CountedLaunch]) -> None:
        assert one(launches, "products 4").products == {"mma_m16n8k16": WARPS * 4 * 16 * 8 * 16}


def test_copies_and_matrices(launches: dict[str, CountedLaunch]) -> None:
    copied = one(launches, "copied16 2")
    assert copied.sum("sectors", "global", "copy load") == WARPS * 32
    assert copied.sum("lanes", "shared", "copy to") == WARPS * 32
    matrices = one(launches, "matrices 4")
    assert matrices.sum("wavefronts", "shared", "load") == WARPS * 16


def test_atomics_are_one_access_each(launches: dict[str, CountedLaunch]) -> None:
    found = one(launches, "atomic_each 1")
    assert found.sum("instructions", "global") == found.sum("instructions", "global", "atomic") == WARPS


def test_arrays_are_named_and_their_use_is_known(launches: dict[str, CountedLaunch]) -> None:
    found = one(launches, "strided 8")
    used = {array.name: array.used_bytes for array in found.arrays if array.used_bytes}
    assert used == {"x": 128 * 32, "y": 128 * 4}


def test_records_of_a_block_come_in_the_order_of_its_warps(launches: dict[str, CountedLaunch]) -> None:
    launch = launches["shared4 2"]
    assert set(launch.records["block"]) == {1}
    assert not launch.records_left_out
    of_warp = launch.records[launch.records["warp"] == 1]
    kinds = [EventKind(kind) for kind in of_warp["kind"]]
    assert kinds[0] == EventKind.LOAD
    assert kinds[-3:] == [EventKind.BARRIER, EventKind.LOAD, EventKind.STORE]
    assert [launch.names[number] for number in of_warp["name"]][-3] == "__syncthreads"
    load = of_warp[-2]
    assert launch.arrays[load["array"]].name == "t"
    assert list(load["offsets"]) == [8 * (32 + lane) for lane in range(32)]
    place = launch.places[int(load["pc"])]
    assert Path(place.file).name == "counters.cu"


def test_counters_do_not_depend_on_the_number_of_threads(launches: dict[str, CountedLaunch]) -> None:
    device = CountedEmulator(threads=2)
    try:
        module = device.compile(counters_cases.SOURCE, {})
        x, y = (device.empty(name, (counters_cases.FLOATS,)) for name in "xy")
        device.copy_in(x, np.zeros(counters_cases.FLOATS, np.float32))
        config = LaunchConfig((counters_cases.BLOCKS,), (64,))
        device.launch(module, "nested_trips", config, (x, y, np.int32(6)))
        (found,) = counters(device.launches)
    finally:
        device.close()
    assert found.accesses == one(launches, "nested_trips 6").accesses


def test_blocks_that_wait_for_later_ones(device: CountedEmulator) -> None:
    module = device.compile(Path(__file__).parent / "kernels" / "barriers.cu", {})
    flags, out = (device.empty(name, (4,), np.int32) for name in ("flags", "out"))
    device.copy_in(flags, np.zeros(4, np.int32))
    device.launch(module, "last_to_first", LaunchConfig((4,), (64,)), (flags, out, np.int32(0)))
    (found,) = counters([device.launches[-1]])
    assert found.sum("instructions", "global", "store") == 4  # all blocks are counted


def test_blocks_of_a_cluster_with_dynamic_shared_memory(device: CountedEmulator) -> None:
    size = 8
    module = device.compile(Path(__file__).parent / "kernels" / "cluster.cu", {"PTX_BULK": 1})
    out = device.empty("out", (size, 64, 2), np.dtype(np.int32))
    given = (out, np.int32(size))
    device.launch(module, "ring", LaunchConfig((size,), (64,), shared_bytes=256, cluster=(size, 1, 1)), given)
    (found,) = counters([device.launches[-1]])
    warps = size * 64 // 32
    assert found.sum("instructions", "shared", "store") == warps  # most warps do not store
    assert found.sum("instructions", "another block's shared", "store") == 2 * warps
    assert found.sum("instructions", "shared", "load") == 2 * warps
    assert found.active_lanes == 32  # only work of warps is counted


def test_clang_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = CountedEmulator._find_compiler
    monkeypatch.setattr("mini_dnn.device.emulator.compiler.Compiler.is_clang", True)
    with pytest.raises(DeviceError, match="counters need g\\+\\+"):
        found(object.__new__(CountedEmulator), False)


def test_a_launch_of_few_blocks_or_warps_waits(launches: dict[str, CountedLaunch]) -> None:
    found = one(launches, "strided 1")
    few = bracket(found, GPUS["h200"])
    assert few.limiter == "latency"
    assert few.likely_ms > 0.003, "a launch, and a way to memory and back"
    grids = {(found.kernel, (2, 1, 1), (64, 1, 1)): (132_000,)}
    many = Larger(132_000 / found.blocks, {"x": 10**11, "y": 10**11}, grids, frozenset())
    full = bracket(found, GPUS["h200"], many)
    assert full.limiter == "L2 cache", "what passes through it on the way to and from DRAM"
    other = bracket(found, GPUS["a100"], many)
    assert other.limiter == "DRAM"


@pytest.mark.parametrize(
    ("name", "wavefronts"),  # per load of a warp through the L1 cache, whose banks are those of shared memory
    [
        ("strided 1", 1),
        ("strided 2", 2),
        ("strided 32", 32),
        ("shifted 1", 1),
        ("wide16 1", 4),
        ("broadcast 5", 1),
    ],
)
def test_wavefronts_of_the_l1_cache(launches: dict[str, CountedLaunch], name: str, wavefronts: int) -> None:
    assert one(launches, name).sum("wavefronts", "global", "load") == WARPS * wavefronts


def test_shared_memory_is_that_of_the_kernel(launches: dict[str, CountedLaunch]) -> None:
    """Other kernels of the file declare more."""
    assert one(launches, "strided 1").shared_bytes == 0
    assert one(launches, "shared4 1").shared_bytes == 2112 * 4
