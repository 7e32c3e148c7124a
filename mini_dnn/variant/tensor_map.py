"""Tensor maps in the arguments of a launch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from mini_dnn.device.tensor_map import ELEMENTS, MapGeometry
from mini_dnn.errors import VariantError


@dataclass(frozen=True)
class TensorMap:
    """Boxes of a buffer for tensor copies (``ptx::tensor_load``, ``ptx::tensor_store``).

    The parameter of the kernel is ``const __grid_constant__ ptx::TensorMap``. Elements of a box outside of
    the shape are read as zeros and are not written. A box starts at a multiple of 16 bytes of its row. Tensor
    copies need ``min_arch=90``.

    Parameters
    ----------
    buffer
        Name of an array of the problem, or of a scratch buffer.
    box
        The number of elements that one copy moves along each of two or three axes, the innermost last:
        ``(128, 64)`` is 128 rows of 64 elements. At most 256 each. A row has exactly ``swizzle`` bytes, or
        without a swizzle a multiple of 16.
    shape
        Elements along each axis, the innermost last; by default those of the buffer's last axes.
    strides
        Elements from one entry to the next, for all axes but the last, whose elements are adjacent:
        multiples of 16 bytes. By default those of the buffer's last axes if ``shape`` fits into these,
        otherwise those of ``shape`` without gaps.
    swizzle
        In bytes. 128: in rows of 128 bytes in shared memory, the 16 bytes ``c`` of row ``r`` are at
        ``c ^ (r % 8)``, as ``ptx::matrix_descriptor_128b`` expects: bits 4 to 6 of an address are XORed with
        bits 7 to 9. With 64, bits 4 and 5 are changed; with 32, bit 4. 0: no swizzle.
    dtype
        ``"float16"``, ``"bfloat16"`` or ``"float32"``; by default the buffer's.
    windows
        R, stride and padding of windows, for ``ptx::tensor_load_windows``, which loads one pixel of each of
        many windows. Then ``shape`` is (N, H, W, C) and ``box`` is the numbers of windows and channels of a
        copy: at most 1,024 and 256.
    """

    buffer: str
    box: tuple[int, ...]
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    swizzle: int = 128
    dtype: str | None = None
    windows: tuple[int, ...] | None = None

    def geometry(self, shape: tuple[int, ...], dtype: str, nbytes: int) -> MapGeometry:
        """The geometry of the map for a buffer.

        Parameters
        ----------
        shape, dtype, nbytes
            Of the buffer: entries along each axis, the name of NumPy's type, bytes.

        Raises
        ------
        VariantError
            No GPU can copy in this way, or not from this buffer; the message explains the reason and the
            solution.
        """
        kind, axes = self.dtype or dtype, len(self.box) if self.windows is None else 4
        if kind not in ELEMENTS:
            raise self._error(f"its elements are {kind}; pass dtype= as one of {', '.join(ELEMENTS)}")
        same = len(shape) >= axes and np.dtype(dtype).itemsize == ELEMENTS[kind]
        if self.shape is None and axes in (2, 3, 4) and not (same and prod(shape[:-axes]) == 1):
            raise self._error(
                f"the buffer is {shape} {dtype}, the box {self.box} {kind}: pass shape=, one side for each "
                "side of the box"
            )
        sides = tuple(shape[-axes:] if self.shape is None else self.shape)
        within = same and all(
            side <= whole for side, whole in zip(sides[1:], shape[1 - axes :], strict=False)
        )
        whole = tuple(shape[-axes:]) if within else sides
        dense = tuple(prod(whole[i:]) for i in range(1, axes))
        strides = dense if self.strides is None else tuple(self.strides)
        windows = None if self.windows is None else tuple(self.windows)
        found = MapGeometry(kind, sides, strides, tuple(self.box), self.swizzle, windows)
        if fault := found.fault(nbytes):
            raise self._error(fault)
        return found

    def _error(self, what: str) -> VariantError:
        return VariantError(f"the tensor map of '{self.buffer}' cannot be created: {what}")
