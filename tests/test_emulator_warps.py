"""Warp functions compared with the PTX ISA's shfl.sync, vote.sync, match.sync and redux.sync."""

import numpy as np
import pytest
from emulator_kernels import Kernels

from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.errors import LaunchError

INT = np.int32


@pytest.fixture(scope="module")
def kernels(emulator: EmulatorDevice) -> Kernels:
    return Kernels(emulator, "warps.cu")


@pytest.mark.parametrize("width", [32, 16, 4])
@pytest.mark.parametrize("argument", [0, 1, 3, 8, 17, 31])
def test_shuffles(kernels: Kernels, argument: int, width: int) -> None:
    x = np.arange(64, dtype=INT) * 10
    out = np.zeros((64, 4), INT)
    kernels("shuffles", (1,), (64,), x, out, INT(argument), INT(width))
    lane = np.arange(64)
    start = lane // width * width  # of the group
    up = np.where(lane - argument < start, lane, lane - argument)
    down = np.where(lane + argument >= start + width, lane, lane + argument)
    xor = (lane % 32 ^ argument) + lane // 32 * 32
    xor = np.where(xor >= start + width, lane, xor)
    for column, source in enumerate((start + argument % width, up, down, xor)):
        np.testing.assert_array_equal(out[:, column], x[source])


def test_shuffle_of_eight_bytes(kernels: Kernels) -> None:
    x = np.random.default_rng(0).standard_normal(32)
    y = np.zeros_like(x)
    kernels("shuffle_double", (1,), (32,), x, y)
    np.testing.assert_array_equal(y, x[np.arange(32) ^ 5])


def test_reduction_over_a_block(kernels: Kernels) -> None:
    x = np.random.default_rng(0).standard_normal((7, 1000)).astype(np.float32)
    sums = np.zeros(7, np.float32)
    kernels("row_sums", (7,), (256,), x, sums, INT(1000))
    np.testing.assert_allclose(sums, x.sum(1, dtype=np.float64), atol=1e-4)


def test_votes(kernels: Kernels) -> None:
    flags = np.array([0, 1, 2, 1] * 8 + [1] * 32, INT)
    out = np.zeros((64, 5), np.uint32)
    kernels("votes", (1,), (64,), flags, out)
    first, second = out[:32], out[32:]
    assert set(first[:, 0]) == {0xEEEEEEEE}
    assert set(second[:, 0]) == {0xFFFFFFFF}
    assert set(out[:, 1]) == {1}
    assert (set(first[:, 2]), set(second[:, 2])) == ({0}, {1})
    np.testing.assert_array_equal(first[:4, 3], [0x11111111, 0xAAAAAAAA, 0x44444444, 0xAAAAAAAA])
    assert (set(first[:, 4]), set(second[:, 4])) == ({32}, {32})


def test_disjoint_halves_of_a_warp(kernels: Kernels) -> None:
    out = np.zeros(64, INT)
    kernels("halves", (1,), (64,), out)
    v = np.arange(32)
    for lanes, rounds, bit in ((v < 16, 3, 1), (v >= 16, 5, 2)):
        for _ in range(rounds):
            v = np.where(lanes, v + v[np.arange(32) ^ bit], v)
    np.testing.assert_array_equal(out, np.tile(v[::-1], 2))


@pytest.mark.parametrize("threads", [32, 20])
def test_lanes_that_returned_or_do_not_exist(kernels: Kernels, threads: int) -> None:
    out = np.zeros(32, INT)
    kernels("returned", (1,), (threads,), out, INT(7))
    np.testing.assert_array_equal(out, [0x7F * 2] * 7 + [0] * 25)


def test_activemask_has_the_lanes_of_the_branch(kernels: Kernels) -> None:
    out = np.zeros(64, np.uint32)
    kernels("branches", (1,), (64,), out, INT(60))
    lane = np.arange(64)
    first, second = lane < 32, (lane >= 32) & (lane < 60)
    for warp in (first, second):
        third = lane % 3 == 0
        together = warp.sum() << 16
        assert set(out[warp & third]) == {together + 100 + (warp & third).sum()}
        assert set(out[warp & ~third]) == {together + 1000 + (warp & ~third).sum()}
    assert set(out[60:]) == {0}


def test_syncwarp_orders_shared_memory(kernels: Kernels) -> None:
    x = np.arange(512, dtype=INT)
    y = np.zeros_like(x)
    kernels("exchange", (1,), (512,), x, y)
    np.testing.assert_array_equal(y, x ^ 31)


def test_a_lane_outside_its_own_mask_is_an_error(kernels: Kernels) -> None:
    with pytest.raises(LaunchError, match=r"lane 16 with mask 0x0000ffff, which leaves that lane out"):
        kernels("left_out", (1,), (32,), np.zeros(32, INT))


def test_lanes_in_different_functions_are_an_error(kernels: Kernels) -> None:
    with pytest.raises(LaunchError) as error:
        kernels("different_functions", (1,), (32,), np.zeros(32, INT))
    assert "__ballot_sync" in str(error.value)
    assert "have not reached a barrier" in str(error.value)


def test_lanes_that_never_come_are_named(kernels: Kernels) -> None:
    with pytest.raises(LaunchError) as error:
        kernels("missing_lanes", (1,), (32,), np.zeros(32, INT))
    assert "threads 0-19 wait at __shfl_sync" in str(error.value)
    assert "for the lanes of mask 0xffffffff" in str(error.value)
    assert "threads 20-31 wait at __syncthreads" in str(error.value)
