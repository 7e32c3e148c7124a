"""Clusters of blocks, on the emulator and on a GPU: what they share, and how they wait for each other."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import Kernels, line_of
from tensors import run

from mini_dnn.device import Device
from mini_dnn.device.clusters import Sizes
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.errors import CompileError, LaunchError
from mini_dnn.variant import TensorMap

INT = np.int32
SOURCE = "cluster.cu"
CLUSTER_SIZES = [1, 2, 3, 4, 8]
UNMADE = "{}: no thread of the block in which this mbarrier lies has initialised it"


@pytest.fixture
def kernels(device: Device) -> Kernels:
    if device.arch < 90:
        pytest.skip(f"clusters need sm_90, the device is sm_{device.arch}")
    return Kernels(device, SOURCE)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=[1, 3], ids="{} workers".format)
def twins(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    with closing(EmulatorDevice(threads=request.param, quick=True)) as device:
        yield Kernels(device, SOURCE)


def blocks(size: int) -> int:
    """A grid with several clusters."""
    return 5 * size


@pytest.mark.parametrize(
    ("grid", "cluster"),
    [
        ((4, 1, 1), (1, 1, 1)),
        ((12, 1, 1), (4, 1, 1)),
        ((4, 6, 2), (2, 3, 1)),
        ((2, 4, 6), (1, 2, 3)),
        ((8, 4, 2), (2, 2, 2)),
    ],
)
def test_ranks(kernels: Kernels, grid: Sizes, cluster: Sizes) -> None:
    out = np.full(grid[::-1], -1, INT)
    kernels("ranks", grid, (32,), out, cluster=cluster)
    z, y, x = np.indices(out.shape)
    rank = x % cluster[0] + cluster[0] * (y % cluster[1] + cluster[1] * (z % cluster[2]))
    np.testing.assert_array_equal(out, rank)


@pytest.mark.parametrize("size", CLUSTER_SIZES)
def test_stores_to_other_blocks(kernels: Kernels, size: int) -> None:
    out = np.zeros((blocks(size), 64, 2), INT)
    kernels("ring", (blocks(size),), (64,), out, INT(size), shared=256, cluster=(size, 1, 1))
    block = np.arange(blocks(size))
    before, after = ((block // size * size + (block + step) % size) for step in (-1, 1))
    np.testing.assert_array_equal(out[..., 0], 1000 * before[:, None] + np.arange(64))
    np.testing.assert_array_equal(out[..., 1], np.broadcast_to(after[:, None], (len(block), 64)))


@pytest.mark.parametrize("size", CLUSTER_SIZES)
def test_loads_from_other_blocks(kernels: Kernels, rng: np.random.Generator, size: int) -> None:
    times = 6
    x = rng.integers(-100, 100, (times, 5, size, 64)).astype(np.float32)
    y = np.full_like(x, np.nan)
    kernels("sums", (blocks(size),), (64,), x, y, INT(size), INT(times), cluster=(size, 1, 1))
    np.testing.assert_array_equal(y, np.broadcast_to(x.sum(axis=2, keepdims=True), x.shape))


def test_threads_that_have_returned_are_not_waited_for(kernels: Kernels) -> None:
    out = np.zeros((2, 32), INT)
    kernels("early_returns", (2,), (64,), out, cluster=(2, 1, 1))
    np.testing.assert_array_equal(out, np.tile(np.arange(32) + 100, (2, 1)))


@pytest.mark.parametrize("poll", [False, True])
@pytest.mark.parametrize("size", CLUSTER_SIZES)
def test_arrivals_at_other_blocks(kernels: Kernels, size: int, poll: bool) -> None:
    rounds = 7
    order = np.zeros(blocks(size) * rounds + 1, INT)
    arguments = (order, INT(size), INT(rounds), np.bool_(poll))
    kernels("token", (blocks(size),), (32,), *arguments, cluster=(size, 1, 1))
    assert order[-1] == blocks(size) * rounds
    assert (np.diff(order[:-1].reshape(5, rounds * size), axis=1) > 0).all()


@pytest.mark.parametrize("size", CLUSTER_SIZES[1:])
def test_store_async(kernels: Kernels, rng: np.random.Generator, size: int) -> None:
    x = rng.integers(-100, 100, (5, size, size, 128)).astype(np.float32)
    y = np.full((5, size, 128), np.nan, np.float32)
    kernels("exchange", (blocks(size),), (32,), x, y, INT(size), cluster=(size, 1, 1))
    np.testing.assert_array_equal(y, x.sum(axis=1))


@pytest.mark.parametrize("steps", [1, 2, 9])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_multicast(kernels: Kernels, rng: np.random.Generator, size: int, steps: int) -> None:
    x = rng.integers(-100, 100, (steps, 512)).astype(np.float32)
    y = np.full((blocks(size), 512), np.nan, np.float32)
    kernels("pipeline", (blocks(size),), (64,), x, y, INT(size), INT(steps), cluster=(size, 1, 1))
    expected = ((1 + np.arange(steps))[:, None] * x).sum(axis=0)
    np.testing.assert_array_equal(y, np.broadcast_to(expected, y.shape))


@pytest.mark.parametrize("mask", [0b0001, 0b0010, 0b1100, 0b1011])
def test_multicast_to_some(kernels: Kernels, rng: np.random.Generator, mask: int) -> None:
    x = rng.integers(0, 100, (3, 32)).astype(np.float32)
    y = np.full((3, 4, 32), np.nan, np.float32)
    kernels("to_some", (12,), (32,), x, y, np.uint32(mask), cluster=(4, 1, 1))
    named = (mask >> np.arange(4) & 1).astype(bool)
    np.testing.assert_array_equal(y, np.where(named[:, None], x[:, None], np.float32(-1)))


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("size", CLUSTER_SIZES)
def test_multicast_of_boxes(kernels: Kernels, rng: np.random.Generator, size: int, axes: int) -> None:
    """Boxes have four rows for each rank.

    The first rows lie before the tensor, and some columns past its end.
    """
    x = rng.integers(1, 100, (8, 3, 40) if axes == 3 else (31, 40)).astype(np.float32)
    y = np.full((blocks(size), size, 4, 32), np.nan, np.float32)
    box = (1, 4, 32) if axes == 3 else (4, 32)
    arguments = ((x, TensorMap("x", box, swizzle=0)), y, INT(size), INT(16), INT(axes))
    run(kernels.device, SOURCE, "boxes", (blocks(size),), 64, *arguments, cluster=(size, 1, 1))
    padding = ((0, 0), (1, 0), (0, 8)) if axes == 3 else ((1, 0), (0, 8))
    expected = np.pad(x, padding)[..., 16:].reshape(8, 4, 32)[:size]
    np.testing.assert_array_equal(y, np.broadcast_to(expected, y.shape))


def test_copies_land_at_the_wait(twins: Kernels) -> None:
    x = np.arange(32, dtype=np.float32)
    early, late = np.zeros((2, 2, 32), np.float32)
    twins("lands_at_the_wait", (2,), (32,), x, early, late, cluster=(2, 1, 1))
    assert (early == -2).all()
    np.testing.assert_array_equal(late, np.tile(x + 100 * (5 + np.arange(32) % 4), (2, 1)))


@pytest.mark.parametrize(
    ("which", "message"),
    [
        (0, "cluster_shared {}: there is no block 2 in a cluster of 2"),
        (1, "cluster_arrive {}: this thread has already arrived, and has not waited since"),
        (2, "cluster_wait {}: this thread has not arrived; call cluster_arrive first"),
        (3, f"mbarrier_arrive_cluster {UNMADE}"),
        (4, f"mbarrier_arrive_cluster {UNMADE}"),
        (5, "bulk_load_multicast {}: mask 0x6 names blocks of a cluster that has 2"),
        (6, "bulk_load_multicast {}: mask 0x0 names blocks of a cluster that has 2"),
        (7, f"bulk_load_multicast {UNMADE}"),
        (8, "the address that store_async writes is not a multiple of 16 bytes: 4 past one"),
        (9, f"store_async {UNMADE}"),
        (10, "the address that bulk_load_multicast reads is not a multiple of 16 bytes: 4 past one"),
        (11, "mbarrier_wait {}: no thread of the block has initialised this mbarrier"),
    ],
)
def test_wrong_use(twins: Kernels, which: int, message: str) -> None:
    place = rf"\({re.escape(SOURCE)}:{line_of(SOURCE, f'which == {which})')}\)"
    with pytest.raises(LaunchError, match=message.format(place)):
        twins("misuse", (4,), (32,), np.zeros(64, np.float32), INT(which), cluster=(2, 1, 1))


def test_store_async_and_an_mbarrier_of_another_block(twins: Kernels) -> None:
    place = rf"\({re.escape(SOURCE)}:{line_of(SOURCE, 'cluster_shared(slot, 1)')}\)"
    message = (
        rf"store_async {place}: it writes to block 1 of the cluster, and the mbarrier that counts it is in "
        r"block 0; both must be in one block: pass the same rank to cluster_shared\(\) for both"
    )
    with pytest.raises(LaunchError, match=message):
        twins("counts_elsewhere", (2,), (32,), np.zeros(4, np.float32), cluster=(2, 1, 1))


def test_store_async_without_clusters(twins: Kernels) -> None:
    """An H200 reports an illegal instruction."""
    place = rf"\({re.escape(SOURCE)}:{line_of(SOURCE, 'ptx::store_async(ptx::cluster_shared(&rows')}\)"
    x, y = np.zeros((1, 1, 128), np.float32), np.zeros((1, 128), np.float32)
    with pytest.raises(LaunchError, match=rf"store_async {place}: the kernel was launched without clusters"):
        twins("exchange", (1,), (32,), x, y, INT(1))


def stuck(twins: Kernels, which: int) -> str:
    with pytest.raises(LaunchError) as caught:
        twins("stuck", (4,), (32,), INT(which), cluster=(2, 1, 1))
    return str(caught.value)


def test_a_wait_without_an_end(twins: Kernels) -> None:
    text = stuck(twins, 0)
    here, last = line_of(SOURCE, "// for ever"), line_of(SOURCE, "// the last")
    assert re.search(rf"threads 0-31 of block \([02], 0, 0\) wait at cluster_sync \({SOURCE}:{last}\)", text)
    assert re.search(
        rf"threads 0-31 of block \([13], 0, 0\) wait at mbarrier_wait \({SOURCE}:{here}\) for an mbarrier in "
        r"phase 0 \(parity 0\), with 1 of 1 arrivals missing",
        text,
    )


def test_a_barrier_that_some_threads_reach(twins: Kernels) -> None:
    text = stuck(twins, 1)
    assert re.search(
        rf"threads 0-4 of block \([02], 0, 0\) wait at cluster_sync \({SOURCE}:\d+\), which", text
    )
    assert re.search(r"threads 5-31 of block \([02], 0, 0\) wait at __syncthreads", text)
    assert re.search(r"threads 0-4 of block \([13], 0, 0\) wait at cluster_sync", text)
    assert "which 54 of the 64 threads of the cluster have not reached" in text


def test_a_block_that_has_returned_wakes_nobody(twins: Kernels) -> None:
    text = stuck(twins, 2)
    assert re.search(r"is stuck.*threads 0-31 of block \([02], 0, 0\) have returned", text, re.DOTALL)
    assert re.search(r"threads 0-31 of block \([13], 0, 0\) wait at mbarrier_wait", text)


@pytest.mark.parametrize("block", [0, 3, 7])
@pytest.mark.parametrize(
    ("which", "message"),
    [
        (0, "used memory that is not its own"),
        (1, r"__trap\(\) was called"),
        (2, "divided an integer by zero"),
    ],
)
def test_a_failure_ends_the_launch(twins: Kernels, block: int, which: int, message: str) -> None:
    """One block fails while the other blocks of its cluster are still at work.

    No later block may fail, too.
    """
    with pytest.raises(LaunchError, match=rf"thread \(3, 0, 0\) of block \({block}, 0, 0\).*{message}"):
        twins("fails", (8,), (32,), np.zeros(8, INT), INT(which), INT(block), cluster=(4, 1, 1))
    order = np.zeros(blocks(4) * 3 + 1, INT)
    twins("token", (blocks(4),), (32,), order, INT(4), INT(3), np.bool_(False), cluster=(4, 1, 1))
    assert order[-1] == blocks(4) * 3


def test_clusters_wait_for_each_other() -> None:
    """There are more of them than workers."""
    with closing(EmulatorDevice(threads=1, quick=True)) as device:
        flags = np.zeros(36, INT)
        Kernels(device, SOURCE)("last_cluster_to_first", (36,), (32,), flags, cluster=(2, 1, 1))
    assert flags.all()


def test_a_wait_without_an_end_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C does. A signal alone needs many attempts, because it must find the kernel itself."""
    attempts: list[bool] = []
    with closing(EmulatorDevice(threads=1, quick=True)) as device:
        monkeypatch.setattr(device, "_hangs", lambda: not attempts.append(True))
        with pytest.raises(LaunchError, match=r"cancelled$"):
            Kernels(device, SOURCE)("polls", (4,), (32,), np.zeros(4, INT), cluster=(2, 1, 1))
    assert len(attempts) <= 2


@pytest.mark.exhaustive
@pytest.mark.usefixtures("unoptimised_runtime")
def test_ucontext_switches_the_same(quick_emulator: Device) -> None:
    x = np.arange(9 * 512, dtype=np.float32).reshape(9, 512) % 17
    results = []
    with closing(EmulatorDevice(threads=2, ucontext=True, quick=True)) as portable:
        for device in (quick_emulator, portable):
            y = np.full((8, 512), np.nan, np.float32)
            Kernels(device, SOURCE)("pipeline", (8,), (64,), x, y, INT(4), INT(9), cluster=(4, 1, 1))
            results.append(y)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
    ("grid", "cluster", "message"),
    [
        ((7,), (2, 1, 1), r"grid.x is 7 in grid \(7,\), which is not a multiple of cluster.x = 2"),
        ((16,), (16, 1, 1), r"cluster \(16, 1, 1\) has 16 blocks; CUDA allows 8 in a cluster"),
    ],
)
def test_impossible_clusters(kernels: Kernels, grid: Sizes, cluster: Sizes, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        kernels("ranks", grid, (32,), np.zeros(16, INT), cluster=cluster)


def test_clusters_of_the_kernel_itself(quick_emulator: EmulatorDevice, tmp_path: Path) -> None:
    """The emulator would not notice this at the launch."""
    source = tmp_path / "kernel.cu"
    source.write_text('extern "C" __global__ void __cluster_dims__(2, 1, 1) k(int* x) { *x = 1; }\n')
    with pytest.raises(CompileError, match=r"clusters are given in the plan: Launch\(\.\.\., cluster=2\)"):
        quick_emulator.compile(source, {})
