"""What tensor copies (``cp.async.bulk.tensor``) move: boxes of matrices, or the pixels in windows."""

from __future__ import annotations

from dataclasses import dataclass

CACHE_LINE = 128  # bytes
ELEMENTS = {"float16": 2, "bfloat16": 2, "float32": 4}  # bytes
SWIZZLES = (0, 32, 64, 128)
UNIT = 16  # bytes, the granularity of copies
MAX_SIDE, MAX_BOX, MAX_STRIDE = (1 << 31) - 1, 256, 1 << 40  # elements, elements, bytes
# Pixels of a copy; step between windows; distance from an image's corner
MAX_PIXELS, MAX_STEP, MAX_CORNER = 1024, 8, 127


@dataclass(frozen=True)
class MapGeometry:
    """How a tensor map views memory. The innermost axis is the last one.

    Parameters
    ----------
    dtype
        One of `ELEMENTS`.
    shape
        The number of elements along each of two or three axes.
    strides
        Elements from one entry to the next, for all axes except the last, whose elements are adjacent.
    box
        The number of elements along each axis that one copy moves.
    swizzle
        The size in bytes of the pattern in which the copy permutes 16-byte parts of shared memory; 0 for no
        permutation.
    windows
        R, stride and padding of windows of R x R pixels; None if a copy moves a box. With windows, ``shape``
        is (N, H, W, C), and ``box`` is the number of pixels and channels: a copy moves one pixel of each
        window.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    windows: tuple[int, ...] | None = None

    @property
    def driver_names(self) -> tuple[str, str, str]:
        """The names of its type, swizzle and L2 promotion in the driver's interface."""
        swizzle = f"{self.swizzle}B" if self.swizzle else "NONE"
        return (
            f"CU_TENSOR_MAP_DATA_TYPE_{self.dtype.upper()}",
            f"CU_TENSOR_MAP_SWIZZLE_{swizzle}",
            f"CU_TENSOR_MAP_L2_PROMOTION_L2_{self.promotion}B",
        )

    @property
    def corners(self) -> tuple[int, int]:
        """Where the first pixels of windows begin, and where they end, counted from the image's end."""
        size, _, padding = self.windows or (1, 1, 0)
        return -padding, padding - size + 1

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return ELEMENTS[self.dtype]

    @property
    def pitches(self) -> tuple[int, ...]:
        """The `strides` in bytes."""
        return tuple(stride * self.itemsize for stride in self.strides)

    @property
    def promotion(self) -> int:
        """The least bytes that L2 reads from memory: 128 if lines of a box may be in two cache lines."""
        return 128 if any(pitch % CACHE_LINE for pitch in self.pitches) else 256

    @property
    def nbytes(self) -> int:
        """The bytes from the first element to the end of the last one."""
        last = sum((side - 1) * pitch for side, pitch in zip(self.shape, self.pitches, strict=False))
        return last + self.shape[-1] * self.itemsize

    def fault(self, nbytes: int) -> str:
        """Return what a GPU would refuse, or what exceeds a buffer of ``nbytes``, or an empty string."""
        return self._axes_fault() or self._box_fault() or self._stride_fault() or self._reach_fault(nbytes)

    def _window_fault(self) -> str:
        words = "R, stride and padding, as windows=(3, 1, 1)"
        if self.windows is None or len(self.windows) != 3:
            return f"its windows are {self.windows}; expected {words}"
        size, stride, padding = self.windows
        if not (1 <= size <= MAX_CORNER and 1 <= stride <= MAX_STEP and 0 <= padding < size):
            return (
                f"its windows are {self.windows}, that is {words}; R must be in 1 to {MAX_CORNER}, "
                f"the stride in 1 to {MAX_STEP}, the padding in 0 to R - 1"
            )
        if len(self.shape) != 4 or len(self.strides) != 3 or len(self.box) != 2:
            return (
                f"its shape {self.shape}, strides {self.strides} and box {self.box} are not those of "
                "windows: expected (N, H, W, C), three strides, and pixels and channels of a copy"
            )
        if min(self.shape[1:3]) + 2 * padding < size:
            return (
                f"a window of {size} x {size} does not fit its images of {self.shape} with padding {padding}"
            )
        return ""

    def _axes_fault(self) -> str:
        if self.windows is not None:
            return self._window_fault() or self._sides_fault()
        axes = len(self.box)
        if axes not in (2, 3):
            return f"its box {self.box} has {axes} axes; tensor copies move boxes of 2 or 3 axes"
        if len(self.shape) != axes or len(self.strides) != axes - 1:
            return (
                f"its box {self.box} has {axes} axes, its shape {self.shape} and its strides {self.strides}; "
                f"expected {axes} sides and {axes - 1} strides: elements of the last axis are side by side"
            )
        return self._sides_fault()

    def _sides_fault(self) -> str:
        if not all(1 <= side <= MAX_SIDE for side in self.shape):
            return f"its shape is {self.shape}; each side must be in 1 to 2**31 - 1, as coordinates are ints"
        return ""

    def _box_fault(self) -> str:
        limits = [MAX_BOX] * len(self.box) if self.windows is None else [MAX_PIXELS, MAX_BOX]
        if not all(1 <= side <= most for side, most in zip(self.box, limits, strict=True)):
            most = " and ".join(f"{limit:,}" for limit in sorted(set(limits)))
            return f"its box is {self.box}; each side must be in 1 to {most}: use several smaller boxes"
        row = self.box[-1] * self.itemsize
        if row % UNIT:
            return (
                f"a row of its box {self.box} has {row} bytes; it must be a multiple of {UNIT}: let the "
                f"last side of a box of {self.dtype} be a multiple of {UNIT // self.itemsize}"
            )
        if self.swizzle not in SWIZZLES:
            return f"its swizzle is {self.swizzle}; expected one of {', '.join(map(str, SWIZZLES))}"
        if self.swizzle and row != self.swizzle:
            fits = f"use swizzle={row}, or " if row in SWIZZLES else ""
            return (
                f"a row of its box {self.box} has {row} bytes, and a swizzle of {self.swizzle} bytes needs "
                f"rows of that length: {fits}let the last side be {self.swizzle // self.itemsize}"
            )
        return ""

    def _stride_fault(self) -> str:
        for stride, pitch in zip(self.strides, self.pitches, strict=True):
            if pitch % UNIT or not 0 < pitch < MAX_STRIDE:
                return (
                    f"its strides {self.strides} have one of {stride} elements, {pitch} bytes; tensor copies "
                    f"need multiples of {UNIT} bytes below 2**40: copy the array first to one whose rows are "
                    f"padded to a multiple of {UNIT // self.itemsize} elements of {self.dtype}"
                )
        return ""

    def _reach_fault(self, nbytes: int) -> str:
        if self.nbytes <= nbytes:
            return ""
        return (
            f"its shape {self.shape} with the strides {self.strides} reaches over {self.nbytes} bytes of "
            f"{self.dtype}, and the buffer has {nbytes}: use the shape of the buffer"
        )
