"""Launches of kernels that take tensor maps of NumPy arrays."""

from contextlib import ExitStack

import numpy as np
from emulator_kernels import FOLDER

from mini_dnn.device import Device
from mini_dnn.device.base import Defines, LaunchConfig, MappedBuffer
from mini_dnn.device.clusters import ALONE, Sizes


def run(
    device: Device,
    source: str,
    kernel: str,
    grid: tuple[int, ...],
    threads: int,
    *args: object,
    shared: int = 0,
    defines: Defines | None = None,
    cluster: Sizes = ALONE,
) -> None:
    """Launch a kernel.

    Arrays are passed as buffers, (array, TensorMap) as maps; arrays receive what was written.
    """
    module = device.compile(FOLDER / source, defines or {})
    with ExitStack() as stack:
        passed, buffers = [], []
        for arg in args:
            array, tensor_map = arg if isinstance(arg, tuple) else (arg, None)
            if isinstance(array, np.ndarray):
                buffer = device.empty("x", array.shape, array.dtype)
                stack.callback(buffer.free)
                device.copy_in(buffer, array)
                buffers.append((buffer, array))
                if tensor_map:
                    geometry = tensor_map.geometry(array.shape, array.dtype.name, array.nbytes)
                    passed.append(MappedBuffer(buffer, geometry))
                else:
                    passed.append(buffer)
            else:
                passed.append(arg)
        device.launch(module, kernel, LaunchConfig(grid, (threads,), shared, cluster), passed)
        for buffer, array in buffers:
            device.copy_out(buffer, array)
