"""Problems: sizes of an operation, with their arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, ClassVar, Self

import ml_dtypes  # noqa: F401  (with it, NumPy knows "bfloat16")
import numpy as np

from mini_dnn.errors import ShapeError

Arrays = Mapping[str, np.ndarray]  # by the names of a problem's arrays
TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}  # short names, and NumPy's
ROLES = ("in", "weight", "out")
MOST_PIXELS = 2**31 - 2**16  # of an image in a convolution
MOST_WEIGHTS = 2**31  # of all filters of a convolution: some kernels index them with an int


@dataclass(frozen=True)
class Array:
    """One array of a problem, or a scratch buffer of a plan.

    Parameters
    ----------
    shape
        Entries along each axis.
    dtype
        Name of NumPy's type.
    role
        ``"in"``: passed in each call; ``"weight"``: passed once, before the first call; ``"out"``: a result.
    axes
        A letter for each axis, for messages: ``c[m=0, n=3]``.
    split
        Whether a batch is divided along its first axis. A weight never is.
    gap
        Unused elements at the end of each line of the last axis. Their values do not matter, and they are not
        written.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    role: str = "in"
    axes: str = ""
    split: bool = True
    gap: int = 0

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ShapeError(f"an array's role is {self.role!r}; expected one of {', '.join(ROLES)}")
        object.__setattr__(self, "split", self.split and self.role != "weight")
        if self.axes and len(self.axes) != len(self.shape):
            raise ShapeError(
                f"an array of shape {self.shape} has axes {self.axes!r}; expected one letter for each axis"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def without_gap(self, values: np.ndarray) -> np.ndarray:
        """A view of the elements outside of gaps."""
        return values[..., : self.shape[-1] - self.gap] if self.gap else values

    def in_gap(self, values: np.ndarray) -> np.ndarray:
        """A view of the elements in gaps."""
        return values[..., self.shape[-1] - self.gap :]

    def index(self, at: Sequence[Any]) -> str:
        """An index as text: ``[n=0, m=3]``, or ``[0, 3]`` if the axes have no letters."""
        names = [f"{letter}=" for letter in self.axes] or [""] * len(at)
        return f"[{', '.join(f'{name}{int(i)}' for name, i in zip(names, at, strict=True))}]"


@dataclass(frozen=True)
class Share:
    """A part of a problem, which can be computed independently of the others.

    Parameters
    ----------
    problem
        The part, a problem of its own.
    index
        The parts of the whole problem's arrays, by name. An array without an entry is needed as a whole.
    """

    problem: Any
    index: Mapping[str, tuple[slice, ...]]


class Problem:
    """One size of an operation: the base of frozen dataclasses of integers, flags and strings.

    Its fields are in the order in which ``--shapes`` and rubrics give them. A subclass defines `arrays` and
    `flops`, and raises `ShapeError` for invalid sizes.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    batch_field: ClassVar[str] = "N"  # the name of the field that has the number of entries of the batch

    @property
    def arrays(self) -> Mapping[str, Array]:
        """All arrays by name, inputs first, in the order of the arguments of a host function."""
        raise NotImplementedError

    @property
    def flops(self) -> int:
        """The number of floating-point operations; 0 if it does not measure the work."""
        raise NotImplementedError

    @property
    def batch(self) -> int:
        """The number of entries of the batch. A batch that does not fit the device is split."""
        return int(getattr(self, self.batch_field))

    def with_batch(self, n: int) -> Self:
        """The same problem for ``n`` entries of the batch."""
        return dataclasses.replace(self, **{self.batch_field: n})

    def shares(self, count: int) -> list[Share]:
        """So many parts of about the same size, along the batch, or fewer if there are too few entries."""
        found = []
        for first, last in spans(self.batch, count):
            index = {name: (slice(first, last),) for name, array in self.arrays.items() if array.split}
            found.append(Share(self.with_batch(last - first), index))
        return found

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The values of its fields, in their order."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    @property
    def fields(self) -> dict[str, Any]:
        """The values of its fields, by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def text(self) -> str:
        """The values of its fields in the form of ``--shapes``."""
        return ",".join(str(int(v)) if isinstance(v, bool) else str(v) for v in self.numbers)

    @property
    def min_bytes(self) -> int:
        """The minimum memory traffic in bytes: each array once."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def constants(self) -> tuple[str, ...]:
        """Names of arrays that no work still running at the start of a kernel may write: the weights."""
        return tuple(self.named("weight"))

    def _check_fields(self, what: str, sizes: Iterable[str], **choices: Iterable[str]) -> None:
        """Refuse sizes below 1, and other fields whose values are not among the given ones."""
        given = self.fields
        small = [f"{name} = {given[name]}" for name in sizes if given[name] < 1]
        if small:
            raise ShapeError(f"{what} needs every size to be at least 1, but {', '.join(small)}")
        for name, allowed in choices.items():
            if given[name] not in allowed:
                expected = ", ".join(word or "nothing" for word in allowed)
                raise ShapeError(f"{name} is {given[name]!r}; expected one of {expected}")

    def _check_pitches(self, lengths: Mapping[str, int]) -> None:
        """Refuse lines that are less far apart than their lengths."""
        for name, length in lengths.items():
            if 0 != (pitch := getattr(self, name)) < length:
                raise ShapeError(
                    f"{name} is {pitch}, and a line has {length} elements; expected {length} or more, or 0 "
                    "for no gap"
                )

    def named(self, *roles: str) -> dict[str, Array]:
        """The arrays with these roles."""
        return {name: array for name, array in self.arrays.items() if array.role in roles}


def check_pixels(H: int, W: int) -> None:
    """Refuse images whose pixels, and the threads beyond the last one, an int cannot count."""
    if H * W > MOST_PIXELS:
        raise ShapeError(
            f"an image of {H:,} x {W:,} has {H * W:,} pixels, and kernels count up to {MOST_PIXELS:,}: cut "
            "it into parts"
        )


def check_weights(filters: int, taps: int) -> None:
    """Refuse filters whose weights an int cannot index."""
    if filters * taps > MOST_WEIGHTS:
        raise ShapeError(
            f"{filters:,} filters of {taps:,} weights have {filters * taps:,} weights, and kernels index up "
            f"to {MOST_WEIGHTS:,}: convolve with some of the filters at a time"
        )


def spans(length: int, count: int, unit: int = 1) -> list[tuple[int, int]]:
    """First and last index of each of so many parts of a length, in whole units; empty parts are omitted."""
    units = -(-length // unit)
    ends = [min(length, part * units // count * unit) for part in range(count + 1)]
    return [(first, last) for first, last in pairwise(ends) if first < last]


def as_float32(name: str, array: np.ndarray, axes: str) -> np.ndarray:
    """The array as C-contiguous float32, converted if no information is lost.

    Parameters
    ----------
    name, axes
        Names of the array and its axes for messages, such as ``"x"`` and ``"N,C,H,W"``.

    Raises
    ------
    ShapeError
        Wrong rank, an empty axis, or a dtype that float32 cannot hold exactly.
    """
    array = np.asarray(array)
    rank = axes.count(",") + 1
    if array.ndim != rank:
        raise ShapeError(
            f"{name} has {array.ndim} axes, shape {array.shape}; expected {rank}: ({axes}). "
            f"Use {name}.reshape or {name}[None] to add an axis"
        )
    if array.size == 0:
        raise ShapeError(f"{name} is empty, shape {array.shape}; expected at least 1 along each of ({axes})")
    return exactly(name, array, "float32")


def shape_of(name: str, value: Any) -> tuple[int, ...]:
    """The shape of an array, or of nested lists.

    Raises
    ------
    ShapeError
        The lists have different lengths.
    """
    try:
        return np.shape(value)
    except ValueError as error:  # NumPy's
        raise ShapeError(
            f"{name} is not an array: its lists have different lengths; expected an array, or lists of equal "
            "lengths"
        ) from error


def exactly(name: str, array: np.ndarray, dtype: str) -> np.ndarray:
    """The array in this type and in C order, if no information is lost.

    Raises
    ------
    ShapeError
        The type cannot hold every number of the array's own type.
    """
    array = np.asarray(array)
    if not np.can_cast(array.dtype, dtype, "safe"):
        raise ShapeError(
            f"{name} is {array.dtype}, which {dtype} cannot hold exactly; "
            f"convert {name} to {dtype} if the loss is intended"
        )
    return np.ascontiguousarray(array, dtype=dtype)
