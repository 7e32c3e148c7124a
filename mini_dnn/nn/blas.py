"""The number of threads that NumPy's BLAS uses for a product."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

import numpy as np

from mini_dnn.paths import loaded_libraries

SUFFIXES = ("64_", "")  # suffixes of functions with 64-bit integers, and of others
PREFIXES = ("scipy_openblas", "openblas")

Setter = Callable[[int], None]

_lock = Lock()
_before: list[int] = []  # per running block of `one_thread`: the number of threads before the first block


@contextmanager
def one_thread() -> Iterator[bool]:
    """Run each product on the calling thread only, so that several threads can share the work.

    It yields whether that is possible: the method is known for OpenBLAS, which NumPy's own packages include.
    The number of threads applies to the whole process. It is restored when the last such block ends.
    """
    found = _openblas()
    if found is None:
        yield False
        return
    get, put = found
    with _lock:
        _before.append(_before[0] if _before else get())
        put(1)
    try:
        yield True
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                put(before)


@cache
def _openblas() -> tuple[Callable[[], int], Setter] | None:
    """Return the functions that get and set the number of threads of the OpenBLAS that NumPy has loaded."""
    np.dot(np.ones(2), np.ones(2))  # this loads it
    for name in loaded_libraries("openblas"):
        try:
            library = ctypes.CDLL(name)
        except OSError:  # the file was replaced after it was loaded
            continue
        for prefix in PREFIXES:
            for suffix in SUFFIXES:
                put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                if put and get:
                    put.restype, put.argtypes = None, [ctypes.c_int]
                    get.restype, get.argtypes = ctypes.c_int, []
                    return get, put
    return None
