"""Checked mode on clusters: the messages, and cases that the corpus does not contain."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import Kernels, line_of

from mini_dnn.checking.schedules import SCHEDULES
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.device.finding import Finding

INT = np.int32
SOURCE = "cluster.cu"
NEIGHBOURS = """
import numpy as np
from emulator_kernels import Kernels
from mini_dnn.device.emulator.checked import CheckedEmulator

x, y = np.ones((8, 32), np.float32), np.zeros((8, 32), np.float32)
kernels, arguments = Kernels(CheckedEmulator(), "neighbours.cu"), (x, y, np.int32(8), np.int32(3))
kernels("fills", (8,), (32,), *arguments, shared=226 << 10, cluster=(8, 1, 1))
print((y == 24).all())
"""


@pytest.fixture(scope="module")
def device() -> Iterator[CheckedEmulator]:
    with closing(CheckedEmulator()) as opened:
        yield opened


@pytest.fixture(scope="module")
def loaded(device: CheckedEmulator) -> Kernels:
    return Kernels(device, SOURCE)


@pytest.fixture(params=range(len(SCHEDULES)), ids=SCHEDULES)
def kernels(request: pytest.FixtureRequest, device: CheckedEmulator, loaded: Kernels) -> Iterator[Kernels]:
    """The kernels in each order of blocks and threads."""
    device.set_schedule(request.param, seed=3)
    yield loaded
    device.set_schedule(0, 0)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
class TestNothingInCorrectKernels:
    def test_plain_accesses(self, kernels: Kernels, size: int) -> None:
        blocks, cluster = 3 * size, (size, 1, 1)
        kernels(
            "ring", (blocks,), (64,), np.zeros((blocks, 64, 2), INT), INT(size), shared=256, cluster=cluster
        )
        x = np.ones((4, blocks, 64), np.float32)
        y = np.zeros_like(x)
        kernels("sums", (blocks,), (64,), x, y, INT(size), INT(4), cluster=cluster)
        assert (y == size).all()

    @pytest.mark.parametrize("poll", [False, True])
    def test_arrivals(self, kernels: Kernels, size: int, poll: bool) -> None:
        order = np.zeros(3 * size * 5 + 1, INT)
        arguments = (order, INT(size), INT(5), np.bool_(poll))
        kernels("token", (3 * size,), (32,), *arguments, cluster=(size, 1, 1))
        assert order[-1] == 3 * size * 5

    def test_copies(self, kernels: Kernels, size: int) -> None:
        blocks, cluster = 3 * size, (size, 1, 1)
        x, y = np.ones((9, 512), np.float32), np.zeros((blocks, 512), np.float32)
        kernels("pipeline", (blocks,), (64,), x, y, INT(size), INT(9), cluster=cluster)
        assert (y == 45).all()
        if size == 1:
            return  # store_async needs a launch with clusters
        x, y = np.ones((blocks, size, 128), np.float32), np.zeros((blocks, 128), np.float32)
        kernels("exchange", (blocks,), (32,), x, y, INT(size), cluster=cluster)
        assert (y == size).all()


def test_memory_of_one_block_right_behind_that_of_another() -> None:
    """The C library puts them there if the threads of the emulator share one arena of ``malloc``."""
    words, environment = [sys.executable, "-c", NEIGHBOURS], os.environ | {"MALLOC_ARENA_MAX": "1"}
    folder = Path(__file__).parent
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.stdout == "True\n", done.stderr


def finding(kernels: Kernels, kernel: str, blocks: int, *args: np.ndarray | np.generic) -> Finding:
    with pytest.raises(KernelError) as caught:
        kernels(kernel, (blocks,), (64,), *args, cluster=(2, 1, 1))
    return caught.value.finding


def test_where_the_other_party_is(loaded: Kernels) -> None:
    """A race on another block's array names both blocks, and the block that the array belongs to."""
    found = finding(loaded, "writes_too_early", 4, np.zeros(4, INT))
    assert found.kind == "race"
    assert found.what == (
        "one thread writes and another writes box[0] of shared array box 64 in block (1, 0, 0), without "
        "a cluster barrier between them that orders memory"
    )
    assert found.own is not None
    assert found.other is not None
    assert {found.own.block, found.other.block} == {(0, 0, 0), (1, 0, 0)}
    assert "cluster_sync()" in found.cure


def test_a_store_that_another_block_counts(kernels: Kernels) -> None:
    message = "it writes to block 1 of the cluster, and the mbarrier that counts it is in block 0"
    with pytest.raises(KernelError, match=message):
        kernels("counts_elsewhere", (2,), (32,), np.zeros(4, np.float32), cluster=(2, 1, 1))


def test_a_read_before_the_next_write(kernels: Kernels) -> None:
    found = finding(kernels, "overwrites", 2, np.zeros(2, INT))
    assert found.kind == "race"
    assert {party.place.line for party in (found.own, found.other) if party and party.place} == {
        line_of(SOURCE, "// again"),
        line_of(SOURCE, "// while it is read"),
    }


def test_a_copy_that_ended_a_launch_hides_nothing_in_the_next_one(kernels: Kernels) -> None:
    found = [finding(kernels, "no_last_sync", 2, np.zeros(128, INT), np.bool_(copies)) for copies in (1, 0)]
    assert [one.kind for one in found] == ["async", "cluster"]


def test_global_memory_is_ordered_by_the_cluster_alone(kernels: Kernels) -> None:
    x = np.zeros(4, INT)
    kernels("hands_over", (4,), (64,), x, np.bool_(True), cluster=(2, 1, 1))
    found = finding(kernels, "hands_over", 4, x, np.bool_(False))
    assert found.kind == "race"
    assert "and nothing orders the two blocks" in found.what


def test_beyond_an_array_of_another_block(kernels: Kernels) -> None:
    found = finding(kernels, "too_far", 2, np.zeros(2, INT))
    assert found.kind == "out-of-bounds"
    assert "box[64]: outside shared array box 64, element 64 of 64" in found.what
    assert "shared_bytes" in found.cure


def test_no_pointer_into_shared_memory(kernels: Kernels) -> None:
    found = finding(kernels, "no_shared_pointer", 2, np.zeros(64, INT))
    assert found.kind == "fault"
    assert "cluster_shared" in found.what
    assert "the pointer is not into this block's own shared memory" in found.what


@pytest.mark.parametrize("fence", [False, True])
def test_relaxed_arrivals_need_the_fence(kernels: Kernels, fence: bool) -> None:
    """The fence publishes the mbarriers if the barrier of the cluster does not order memory."""
    order, fenced = np.zeros(4, INT), np.bool_(fence)
    if fence:
        kernels("publishes", (2,), (64,), order, fenced, cluster=(2, 1, 1))
        return
    found = finding(kernels, "publishes", 2, order, fenced)
    assert found.kind == "cluster"
    assert "without a cluster barrier after its mbarrier_init" in found.what
    assert "fence_mbarrier_init()" in found.cure


def test_a_copy_that_lands_while_it_is_read(kernels: Kernels) -> None:
    found = finding(kernels, "reads_what_is_sent", 2, np.zeros(64, np.float32))
    assert found.kind == "async"
    assert " of shared array buffer 64 while a bulk_load_multicast that will fill it is" in found.what
    assert found.other is not None
    assert found.other.place is not None
    assert "ptx::bulk_load_multicast(" in found.other.place.code


def test_endless(device: CheckedEmulator, loaded: Kernels) -> None:
    """An endless poll lets the other block proceed, and the report shows where both blocks are."""
    device._lib.emulator_limit_steps(200_000)
    try:
        found = finding(loaded, "polls", 2, np.zeros(2, INT))
        with pytest.raises(KernelError) as of_clusters:
            loaded("last_cluster_to_first", (4,), (32,), np.zeros(4, INT), cluster=(2, 1, 1))
        loaded("sleeps", (2,), (1,), np.zeros(1, INT), INT(100), cluster=(2, 1, 1))
        with pytest.raises(KernelError, match="endless"):  # the other block's turns take time
            loaded("sleeps", (2,), (1,), np.zeros(1, INT), INT(1000), cluster=(2, 1, 1))
    finally:
        device._lib.emulator_limit_steps(device._limit)
    assert found.kind == "endless"
    assert any("of block (1, 0, 0) wait at cluster_sync" in note for note in found.notes)
    assert "clusters run one after the other here" not in found.notes[-1]
    assert "clusters run one after the other here" in of_clusters.value.finding.notes[-1]
