"""Convolution, ReLU and max-pool as one operation, for kernels that do not store what lies between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mini_dnn.device.base import Device
from mini_dnn.errors import VariantError
from mini_dnn.ops.shapes import FLOAT_BYTES, ConvShape, conv_arrays
from mini_dnn.running.execute import Execution
from mini_dnn.running.runner import check_runnable, fitting
from mini_dnn.variant import Variant, ceil_div

OP = "conv2d_relu_pool"


@dataclass(frozen=True)
class ConvPoolShape(ConvShape):
    """A convolution whose output is pooled by maxima: ``y (N, M, ceil(P / pool), ceil(Q / pool))``.

    P and Q stay those of the convolution. Windows that the lower and right edges cut short count.
    """

    pool: int  # rows and columns of a window, and the stride

    @property
    def y(self) -> tuple[int, int, int, int]:
        """Shape of the output."""
        return (self.N, self.M, ceil_div(self.P, self.pool), ceil_div(self.Q, self.pool))

    @property
    def min_bytes(self) -> int:
        """Bytes that must cross the memory bus: input, filters and pooled output once each, in fp32."""
        return FLOAT_BYTES * sum(int(np.prod(size, dtype=np.int64)) for size in (self.x, self.w, self.y))


def conv2d_relu_pool(x: np.ndarray, w: np.ndarray, pool: int, variant: Variant, device: Device) -> np.ndarray:
    """Convolve, take ``max(0, .)``, and pool.

    Parameters
    ----------
    x
        Input, ``(N, C, H, W) float32``.
    w
        Filters, ``(M, C, R, S) float32``.
    pool
        Rows and columns of a window of the pool.
    variant
        One whose op is ``"conv2d_relu_pool"``.
    device
        An open device.

    Returns
    -------
    y : (N, M, ceil(P / pool), ceil(Q / pool)) float32

    Raises
    ------
    ShapeError, VariantError, DeviceError
        See `mini_dnn.errors`.
    """
    if variant.op != OP:
        raise VariantError(f"{variant.name} computes {variant.op}, not {OP}; layers/fused does")
    x, w, conv = conv_arrays(x, w)
    shape = ConvPoolShape(**vars(conv), pool=pool)
    limit = variant.limit_for(shape)
    if limit:
        raise VariantError(f"{variant.name} does not take {shape}: {limit}")
    check_runnable(variant, device)
    variant = fitting(variant, shape, device.max_shared_bytes)
    module = device.compile(variant.source, variant.defines_for(shape))
    execution = Execution(variant, shape, module, device)
    try:
        execution.fill()
        device.copy_in(execution.buffers["x"], x)
        device.copy_in(execution.buffers["w"], w)
        execution.kernels()
        y = np.empty(shape.y, np.float32)
        device.copy_out(execution.buffers["y"], y)
        device.synchronize()
    finally:
        execution.free()
    return y
