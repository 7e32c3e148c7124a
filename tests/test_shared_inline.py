"""Shared arrays of inline functions: each loaded library has its own."""

from contextlib import closing

import numpy as np
from emulator_kernels import Kernels

from mini_dnn.device.emulator.checked import CheckedEmulator


def test_libraries_do_not_share_them() -> None:
    with closing(CheckedEmulator()) as device:
        for added in (1, 2):  # checked mode would report an array of the other library as out of bounds
            x = np.arange(32, dtype=np.int32)
            Kernels(device, "inline_shared.cu", ADDED=added)("turn", (1,), (32,), x)
            np.testing.assert_array_equal(x, np.arange(31, -1, -1) + added)
