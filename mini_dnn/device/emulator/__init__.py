"""A device that runs CUDA kernels on the CPU: g++ compiles them, and a small runtime replaces the GPU.

`emulator.EmulatorDevice` is the device. ``compiler`` and ``build`` compile kernels, and ``runtime_build``
builds what they share. ``scan`` finds the kernels, ``runtime`` loads the library of ``runtime/*.cpp``, and
``memory`` and ``launch`` check what a GPU would check. ``checked.CheckedEmulator`` adds checks of each
access: ``symbols`` reads the compiler's information about the kernel, and ``explain`` words the findings.
``include/`` has CUDA's headers as kernels see them.

Each block of a cluster has an operating system thread with its own shared memory. Only one of these threads
runs at a time (``runtime/cluster.cpp``).

Two properties of a GPU are not emulated. The lanes of a warp do not run in lock step: a lane sees the writes
of another lane only after a ``__syncwarp`` or ``__syncthreads``, as the CUDA memory model says. Only one
thread of a block runs at a time, so a thread that polls shared memory must call ``__nanosleep`` in its loop.
(Checked mode lets other threads run after a while.)
"""

from mini_dnn.device.emulator.emulator import EmulatorDevice

__all__ = ["EmulatorDevice"]
