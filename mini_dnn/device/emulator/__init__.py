"""A device that runs CUDA kernels on the CPU: g++ compiles them, a small runtime stands in for the GPU.

`emulator.EmulatorDevice` is the device; ``compiler`` and ``build`` compile, ``scan`` finds the kernels, ``runtime`` loads
the library of ``runtime/*.cpp``, ``memory`` and ``launch`` check what a GPU would. ``include/`` has CUDA's
headers as the kernels see them.
"""

from mini_dnn.device.emulator.emulator import EmulatorDevice

__all__ = ["EmulatorDevice"]
