"""Barriers of a block: correct ones work, and wrong ones are reported instead of hanging."""

import resource
from contextlib import closing, nullcontext
from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import Kernels, line_of

from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.errors import LaunchError

INT = np.int32


@pytest.fixture(scope="module")
def kernels(emulator: EmulatorDevice) -> Kernels:
    return Kernels(emulator, "barriers.cu")


@pytest.mark.parametrize("threads", [1, 31, 32, 33, 256, 1024])
def test_shared_memory_is_complete_after_a_barrier(kernels: Kernels, threads: int) -> None:
    x = np.arange(5 * threads, dtype=INT).reshape(5, threads)
    y = np.zeros_like(x)
    kernels("reverse", (5,), (threads,), x, y)
    np.testing.assert_array_equal(y, x[:, ::-1])


def test_many_barriers_in_a_row(kernels: Kernels) -> None:
    x = np.arange(256, dtype=INT) * 1000
    expected = np.roll(x, -64) + 64
    kernels("rotate", (1,), (256,), x)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("flags", [np.zeros(100), np.ones(100), np.arange(100) % 3 == 0])
def test_votes(kernels: Kernels, flags: np.ndarray) -> None:
    count, every, some = (np.full(100, -1, INT) for _ in range(3))
    kernels("votes", (1,), (100,), flags.astype(INT), count, every, some)
    assert set(count) == {int(flags.sum())}
    assert set(every) == {int(flags.all())}
    assert set(some) == {int(flags.any())}


def test_returned_threads_count_as_arrived(kernels: Kernels) -> None:
    out = np.zeros(64, INT)
    kernels("early_exit", (1,), (64,), out, INT(40))
    np.testing.assert_array_equal(out, [40] * 40 + [0] * 24)


def test_indices(kernels: Kernels) -> None:
    grid, block = (3, 2, 2), (5, 3, 4)
    out = np.full((12, 60, 6), -1, INT)
    kernels("thread_index", grid, block, out)
    k, j, i = np.indices(block[::-1]).reshape(3, -1)
    bk, bj, bi = np.indices(grid[::-1]).reshape(3, -1)
    np.testing.assert_array_equal(out[7, :, :3], np.stack([i, j, k], 1))
    np.testing.assert_array_equal(out[:, 11, 3:], np.stack([bi, bj, bk], 1))


def test_divergent_barriers_are_reported_by_thread_and_line(kernels: Kernels) -> None:
    with pytest.raises(LaunchError) as error:
        kernels("divergent", (4,), (64,), np.zeros(64, INT))
    message = str(error.value)
    few, many = line_of("barriers.cu", "// few"), line_of("barriers.cu", "// many")
    assert f"threads 0-4 wait at __syncthreads (barriers.cu:{few})" in message
    assert f"threads 5-63 wait at __syncthreads (barriers.cu:{many})" in message


def test_two_barriers_on_one_line_are_two(kernels: Kernels) -> None:
    with pytest.raises(LaunchError, match="threads 0, 2, 4"):
        kernels("same_line", (1,), (64,), np.zeros(64, INT))


def test_deadlock_between_block_and_warp(kernels: Kernels) -> None:
    with pytest.raises(LaunchError) as error:
        kernels("block_and_warp", (1,), (40,), np.zeros(1, INT))
    message = str(error.value)
    assert "block (0, 0, 0)" in message
    assert "threads 0-2, 4-31 wait at __syncwarp" in message
    assert "threads 3, 32-39 wait at __syncthreads" in message


def test_a_launch_after_a_failed_one_works(kernels: Kernels) -> None:
    x = np.arange(128, dtype=INT)
    y = np.zeros_like(x)
    for _ in range(3):
        with pytest.raises(LaunchError):
            kernels("divergent", (100,), (64,), np.zeros(64, INT))
        kernels("reverse", (1,), (128,), x, y)
        np.testing.assert_array_equal(y, x[::-1])


@pytest.mark.parametrize("kind", [EmulatorDevice, CheckedEmulator])
def test_a_launch_after_one_that_failed_while_blocks_waited(kind: type[EmulatorDevice]) -> None:
    """Each block has 1024 stacks, which must be free again."""
    with closing(kind(threads=1) if kind is EmulatorDevice else kind()) as device:
        kernels = Kernels(device, "barriers.cu")
        for fault in (1, 1, 0):
            out = np.zeros(4, INT)
            with pytest.raises(LaunchError) if fault else nullcontext():
                kernels("last_to_first", (4,), (1024,), np.zeros(4, INT), out, INT(fault))
        assert out.all()


def test_blocks_that_wait_take_little_memory(kernels: Kernels) -> None:
    """More blocks than multiprocessors. Huge pages would fill the 1.2 GB of room in their stacks."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before, out = resident(), np.zeros(300, INT)
    kernels("last_to_first", (300,), (64,), np.zeros(300, INT), out, INT(0))
    assert out.all()
    assert resident() - before < 500e6


def test_many_launches_and_every_block_once(kernels: Kernels) -> None:
    for blocks in (1, 2, 3, 1000, 70_000):
        counter = np.zeros(1, np.uint32)
        kernels("count_blocks", (blocks,), (2,), counter)
        assert counter[0] == blocks
    counter = np.zeros(1, np.uint32)
    for _ in range(300):
        kernels("count_blocks", (3,), (33,), counter)
    assert counter[0] == 900


def test_nanosleep_lets_other_threads_run(kernels: Kernels) -> None:
    out = np.zeros(1, INT)
    kernels("poll", (1,), (70,), np.zeros(1, INT), out)
    assert out[0] == 7


def assert_reverses(**how: int) -> None:
    x = np.arange(40 * 96, dtype=INT).reshape(40, 96)
    with closing(EmulatorDevice(**how)) as device:  # type: ignore[arg-type]
        kernels = Kernels(device, "barriers.cu")
        y = np.zeros_like(x)
        kernels("reverse", (40,), (96,), x, y)
        np.testing.assert_array_equal(y, x[:, ::-1])
        with pytest.raises(LaunchError, match="threads 0-4 wait"):
            kernels("divergent", (4,), (64,), np.zeros(64, INT))


@pytest.mark.parametrize("threads", [1, 3])
def test_the_thread_count_changes_nothing(threads: int) -> None:
    assert_reverses(threads=threads)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("unoptimised_runtime")
def test_ucontext_changes_nothing() -> None:
    assert_reverses(threads=2, ucontext=True)
