"""DLPack's structures and capsules: arrays of one library for another, in the same memory.

The layout is that of ``dlpack.h``, before its versions: https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from mini_dnn.errors import ShapeError

NAME = b"dltensor"  # of a capsule that has not been consumed
CPU, CUDA, CUDA_MANAGED = 1, 2, 13  # kinds of devices
KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}  # codes of types
LEGACY_STREAM = 1  # the default stream in this protocol


class CDevice(ctypes.Structure):
    """The device of an array."""

    _fields_ = [("kind", ctypes.c_int32), ("index", ctypes.c_int32)]


class CType(ctypes.Structure):
    """The type of its elements."""

    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class CTensor(ctypes.Structure):
    """An array."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", CDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", CType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),  # in elements; none: C order
        ("byte_offset", ctypes.c_uint64),
    ]


class CManaged(ctypes.Structure):
    """An array and the function that releases it."""


Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(CManaged))
CManaged._fields_ = [("tensor", CTensor), ("context", ctypes.c_void_p), ("deleter", Deleter)]

Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, Destructor)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)

_exported: dict[int, tuple[Any, ...]] = {}  # by the address of a CManaged: itself, and what it needs


@dataclass(frozen=True)
class View:
    """An array of another library."""

    address: int
    shape: tuple[int, ...]
    dtype: str  # NumPy's name
    device: tuple[int, int]  # kind and index
    is_dense: bool  # C order without gaps
    capsule: Any  # keeps the memory alive


def imported(capsule: Any) -> View:
    """The array in a capsule. The capsule is not consumed, so its own destructor releases the memory.

    Raises
    ------
    ShapeError
        Its elements have a type that NumPy does not know.
    """
    managed = CManaged.from_address(_pointer(id(capsule), NAME))
    tensor = managed.tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None
    return View(
        address=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        dtype=_dtype(tensor.dtype),
        device=(tensor.device.kind, tensor.device.index),
        is_dense=strides is None or same_order(shape, strides, dense(shape)),
        capsule=capsule,
    )


def dense(shape: tuple[int, ...], unit: int = 1) -> tuple[int, ...]:
    """Strides of an array in C order without gaps, an element being ``unit``."""
    return tuple(unit * prod(shape[i + 1 :]) for i in range(len(shape)))


def same_order(shape: tuple[int, ...], strides: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Whether strides are equivalent, that is, equal along axes with more than one entry."""
    return all(n == 1 or one == other for n, one, other in zip(shape, strides, others, strict=True))


def exported(address: int, shape: tuple[int, ...], dtype: str, device: tuple[int, int], owner: Any) -> Any:
    """A capsule of an array in C order. ``owner`` is kept until the consumer releases the array."""
    kind = np.dtype(dtype)
    name = "bfloat" if dtype == "bfloat16" else kind.name.rstrip("0123456789")
    code = next(code for code, known in KINDS.items() if known == name)
    sides = (ctypes.c_int64 * len(shape))(*shape)
    managed = CManaged()
    managed.tensor = CTensor(
        address, CDevice(*device), len(shape), CType(code, 8 * kind.itemsize, 1), sides, None, 0
    )
    managed.deleter = _deleter
    start = ctypes.addressof(managed)
    _exported[start] = (managed, sides, owner)
    return _new(start, NAME, _destructor)


def _dtype(found: CType) -> str:
    name = KINDS.get(found.code, f"type code {found.code}")
    if found.lanes != 1 or found.code not in KINDS:
        raise ShapeError(f"an array has elements of {name} with {found.lanes} lanes; expected plain numbers")
    return "bool" if name == "bool" else f"{name}{found.bits}"


@Deleter
def _deleter(managed: Any) -> None:
    """Called when the consumer no longer needs the array."""
    _exported.pop(ctypes.addressof(managed.contents), None)


@Destructor
def _destructor(capsule: int) -> None:
    """Called when a capsule is deleted. If it was not consumed, the array is released."""
    if _is_valid(capsule, NAME):
        _exported.pop(_pointer(capsule, NAME), None)
