"""What tensor copies (``cp.async.bulk.tensor``) move: boxes of a matrix, or of a stack of matrices."""

from __future__ import annotations

from dataclasses import dataclass

ELEMENTS = {"float16": 2, "bfloat16": 2, "float32": 4}  # bytes
SWIZZLES = (0, 32, 64, 128)
UNIT = 16  # bytes: what copies move at a time
MAX_SIDE, MAX_BOX, MAX_STRIDE = (1 << 31) - 1, 256, 1 << 40  # elements, elements, bytes


@dataclass(frozen=True)
class MapGeometry:
    """How a tensor map sees memory; all axes with the innermost last.

    Parameters
    ----------
    dtype
        One of `ELEMENTS`.
    shape
        Elements along each axis, two axes or three.
    strides
        Elements from one entry of an axis to the next, of all axes but the last, whose elements are side
        by side.
    box
        Elements along each axis of what one copy moves.
    swizzle
        Bytes of shared memory within which the copy exchanges parts of 16 bytes; 0: it does not.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ELEMENTS[self.dtype]

    @property
    def pitches(self) -> tuple[int, ...]:
        """`strides` in bytes."""
        return tuple(stride * self.itemsize for stride in self.strides)

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the end of the last one."""
        last = sum((side - 1) * pitch for side, pitch in zip(self.shape, self.pitches, strict=False))
        return last + self.shape[-1] * self.itemsize

    def fault(self, nbytes: int) -> str:
        """What a GPU would refuse, or what lies beyond a buffer of so many bytes; empty if all is well."""
        return self._axes_fault() or self._box_fault() or self._stride_fault() or self._reach_fault(nbytes)

    def _axes_fault(self) -> str:
        axes = len(self.box)
        if axes not in (2, 3):
            return f"its box {self.box} has {axes} axes; tensor copies move boxes of 2 or 3 axes"
        if len(self.shape) != axes or len(self.strides) != axes - 1:
            return (
                f"its box {self.box} has {axes} axes, its shape {self.shape} and its strides {self.strides}; "
                f"expected {axes} sides and {axes - 1} strides: elements of the last axis are side by side"
            )
        if not all(1 <= side <= MAX_SIDE for side in self.shape):
            return f"its shape is {self.shape}; each side must be in 1 to 2**31 - 1, as coordinates are ints"
        return ""

    def _box_fault(self) -> str:
        if not all(1 <= side <= MAX_BOX for side in self.box):
            return f"its box is {self.box}; each side must be in 1 to {MAX_BOX}: take several smaller boxes"
        row = self.box[-1] * self.itemsize
        if row % UNIT:
            return (
                f"a row of its box {self.box} has {row} bytes; it must be a multiple of {UNIT}: let the "
                f"last side of a box of {self.dtype} be a multiple of {UNIT // self.itemsize}"
            )
        if self.swizzle not in SWIZZLES:
            return f"its swizzle is {self.swizzle}; expected one of {', '.join(map(str, SWIZZLES))}"
        if self.swizzle and row != self.swizzle:
            fits = f"take swizzle={row}, or " if row in SWIZZLES else ""
            return (
                f"a row of its box {self.box} has {row} bytes, and a swizzle of {self.swizzle} bytes is for "
                f"rows of just that: {fits}let the last side be {self.swizzle // self.itemsize}"
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
            f"{self.dtype}, and the buffer has {nbytes}: take the shape that the buffer has"
        )
