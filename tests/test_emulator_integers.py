"""CUDA's functions of whole numbers and of bytes in a word, compared with Python's integers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import Kernels

from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.emulator.checked import CheckedEmulator

FILE = Path(__file__).with_name("kernels") / "integers.cu"
WORD = 1 << 32


def signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def parts(bits: int, of: Callable[[int, int], int], *, negative: bool = False) -> Callable[[int, int], int]:
    """Apply a function to each part of two words separately."""

    def whole(x: int, y: int) -> int:
        result, mask = 0, (1 << bits) - 1
        for at in range(0, 32, bits):
            pair = [value >> at & mask for value in (x, y)]
            result |= (of(*(signed(one, bits) for one in pair) if negative else pair) & mask) << at
        return result

    return whole


EXPECTED: list[Callable[[int, int], int]] = [
    min,
    max,
    lambda x, y: abs(signed(x) - signed(y)) + 5,
    lambda x, y: abs(x - y) + 5,
    lambda x, y: signed(x) + signed(y) >> 1,
    lambda x, y: x + y >> 1,
    parts(8, lambda x, y: x + y),
    parts(16, lambda x, y: x - y),
    parts(8, min),
    parts(16, max, negative=True),
    parts(8, lambda x, y: -(x > y)),
    parts(16, lambda x, y: -(x < y), negative=True),
    lambda x, y: sum(abs((x >> at & 255) - (y >> at & 255)) for at in range(0, 32, 8)),
    parts(8, lambda x, y: x + y + 1 >> 1),
    parts(16, lambda x, y: x + y + (x + y >= 0) >> 1, negative=True),
    parts(8, lambda x, y: min(max(x + y, -128), 127), negative=True),
    parts(16, lambda x, y: max(x - y, 0)),
    parts(8, lambda x, _: abs(x), negative=True),
    parts(16, lambda x, y: x <= y, negative=True),
    lambda x, y: (x & 0xFFFF) * (y >> 16 & 255) + (x >> 16) * (y >> 24) + 1,
    lambda x, y: int(f"{x:032b}"[::-1], 2),
    lambda x, y: x * y % WORD,
]


def test_words() -> None:
    x, y = np.random.default_rng(0).integers(0, WORD, (2, 64), dtype=np.uint32)
    x[:4], y[:4] = [0, WORD - 1, 1 << 31, 0x7FFFFFFF], [WORD - 1, 1, 0x7FFFFFFF, 1 << 31]
    out = np.zeros((len(EXPECTED), 64), np.uint32)
    device = EmulatorDevice(threads=1)
    Kernels(device, FILE)("words", (1,), (64,), x, y, out, np.int32(64))
    expected = [[of(int(a), int(b)) % WORD for a, b in zip(x, y, strict=True)] for of in EXPECTED]
    np.testing.assert_array_equal(out, expected)
    device.close()


@pytest.mark.parametrize("same", [True, False])
def test_lanes_that_match(same: bool) -> None:
    values, out = np.full(32, 7, np.uint32), np.zeros(34, np.uint32)
    values[9] += not same
    device = EmulatorDevice(threads=1)
    Kernels(device, FILE)("lanes_that_match", (1,), (32,), values, out)
    assert out.tolist() == [0xFFFFFFFE if same else 0] * 32 + [32 * same, 31]
    device.close()


@pytest.mark.parametrize("checked", [False, True])
def test_copies_by_the_names_of_cuda_pipeline(checked: bool) -> None:
    x, y = np.arange(1, 513, dtype=np.float32), np.zeros(512, np.float32)
    device = CheckedEmulator() if checked else EmulatorDevice(threads=1)
    Kernels(device, FILE)("pipeline", (1,), (32,), x, y)
    tiles = x.reshape(4, 32, 4).copy()
    for k in range(1, 4):
        tiles[k, :, 5 - k :] = 0  # the last bytes of each copy are zeros
    np.testing.assert_array_equal(y.reshape(4, 128), tiles.reshape(4, 128)[:, ::-1])
    device.close()
