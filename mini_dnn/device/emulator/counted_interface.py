"""The structures of ``runtime/counted/recorder.h`` for ctypes."""

from __future__ import annotations

import ctypes
import enum

import numpy as np

LANES = 32


class EventKind(enum.IntEnum):
    """What a warp instruction does."""

    BLOCK = 0  # beginning of a basic block
    LOAD = 1
    STORE = 2
    ATOMIC = 3
    COPY_LOAD = 4  # a copy's reads of global memory
    COPY_STORE = 5  # its writes to global memory
    COPY_TO = 6  # its writes to shared memory
    COPY_FROM = 7  # its reads of shared memory
    TILE_LOAD = 8  # by WMMA, in the emulator's order of lanes instead of the GPU's
    TILE_STORE = 9
    BARRIER = 10
    WARP = 11  # a function in which lanes wait
    EVENT = 12  # any other counted call


class Space(enum.IntEnum):
    """Kinds of memory."""

    NONE = 0
    GLOBAL = 1
    SYMBOL = 2
    SHARED = 3
    REMOTE = 4  # another block's shared memory


class CArray(ctypes.Structure):
    """An array that kernels may use."""

    _fields_ = [
        ("start", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("number", ctypes.c_int32),
        ("space", ctypes.c_int32),
    ]


TOTAL = np.dtype(
    [
        ("pc", "u4"),
        ("array", "i4"),
        ("kind", "u1"),
        ("space", "u1"),
        ("name", "u2"),
        ("bytes", "u4"),
        *(
            (name, "u8")
            for name in (
                "instructions",
                "lanes",
                "splits",
                "sectors",
                "ideal_sectors",
                "used_bytes",
                "lines",
                "wavefronts",
                "ideal_wavefronts",
                "block_sectors",
                "number",
                "merged",
            )
        ),
        ("saved", "i8"),
    ]
)
RECORD = np.dtype(
    [
        ("block", "u8"),
        ("warp", "u4"),
        ("pc", "u4"),
        ("mask", "u4"),
        ("bytes", "u4"),
        ("array", "i4"),
        ("kind", "u1"),
        ("space", "u1"),
        ("name", "u2"),
        ("number", "u8"),
        ("offsets", "i8", (LANES,)),
    ]
)
