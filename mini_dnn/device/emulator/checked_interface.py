"""The structures of ``runtime/checked/interface.h`` for ctypes."""

from __future__ import annotations

import ctypes


class CParty(ctypes.Structure):
    """One of the two sides of a race."""

    _fields_ = [
        ("write", ctypes.c_int),
        ("atomic", ctypes.c_int),
        ("thread", ctypes.c_uint),
        ("block", ctypes.c_uint64),
        ("pc", ctypes.c_uint64),
    ]


class CFinding(ctypes.Structure):
    """A finding of the runtime."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("memory", ctypes.c_int),
        ("index", ctypes.c_int),
        ("start", ctypes.c_uint64),
        ("block", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("bytes", ctypes.c_uint64),
        ("subscript", ctypes.c_int64),
        ("own", CParty),
        ("other", CParty),
        ("exited", ctypes.c_uint),
        ("detail", ctypes.c_int),
        ("type", ctypes.c_char * 256),
        ("heap_bytes", ctypes.c_uint64),
        ("heap_pc", ctypes.c_uint64),
    ]


class CSharedArray(ctypes.Structure):
    """A shared array."""

    _fields_ = [("offset", ctypes.c_int64), ("bytes", ctypes.c_int64), ("is_array", ctypes.c_int64)]


class CEntry(ctypes.Structure):
    """A function that may be called through a pointer."""

    _fields_ = [("at", ctypes.c_uint64), ("returned", ctypes.c_uint64)]


class CKept(ctypes.Structure):
    """A place on the stack that must not change while a function runs."""

    _fields_ = [
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("low", ctypes.c_int64),
        ("alignment", ctypes.c_int64),
        ("offset", ctypes.c_int64),
    ]


class CTarget(ctypes.Structure):
    """The kernel library of the next launch."""

    _fields_ = [
        ("base", ctypes.c_void_p),
        ("data_start", ctypes.c_void_p),
        ("data_end", ctypes.c_void_p),
        ("anchor", ctypes.c_void_p),
        ("shared", ctypes.POINTER(CSharedArray)),
        ("shared_count", ctypes.c_int),
        ("entries", ctypes.POINTER(CEntry)),
        ("entry_count", ctypes.c_int),
        ("kept", ctypes.POINTER(CKept)),
        ("kept_count", ctypes.c_int),
        ("kept_bytes", ctypes.c_size_t),
        ("is_judged", ctypes.c_bool),
    ]
