"""A device that runs CUDA kernels on the CPU: g++ compiles them, a small runtime stands in for the GPU.

`emulator.EmulatorDevice` is the device; ``compiler`` and ``build`` compile kernels, ``runtime_build`` what
they all share; ``scan`` finds the kernels, ``runtime`` loads the library of ``runtime/*.cpp``, ``memory`` and
``launch`` check what a GPU would. ``checked.CheckedEmulator`` is the same with checks of each access:
``symbols`` reads what the compiler tells of the kernel, ``explain`` words the findings. ``include/`` has
CUDA's headers as the kernels see them.

The blocks of a cluster have a thread of the system each, and with it shared memory of their own; one of them
runs at a time (``runtime/cluster.cpp``).

Two habits of a GPU are not imitated: the lanes of a warp do not run in step (a lane sees what another wrote
only after a ``__syncwarp`` or ``__syncthreads``, as the CUDA memory model says), and a thread that polls
shared memory must call ``__nanosleep`` in its loop, as only one thread of a block runs at a time (checked
mode lets others run after a while).
"""

from mini_dnn.device.emulator.emulator import EmulatorDevice

__all__ = ["EmulatorDevice"]
