"""mini_dnn: a small network framework whose convolutions run in CUDA kernels that you can read."""

from mini_dnn.device import open_device
from mini_dnn.errors import MiniDnnError
from mini_dnn.running.runner import conv2d

__all__ = ["MiniDnnError", "conv2d", "open_device"]
