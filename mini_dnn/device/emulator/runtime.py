"""The ctypes interface to the runtime library.

The structures have the same fields as those in ``include/emulator/launch.h``, ``runtime/worker.h`` and
``runtime/pool.cpp``.
"""

from __future__ import annotations

import ctypes
import enum
import os
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from mini_dnn.device.cache import work
from mini_dnn.errors import DeviceError

POLL_SECONDS = 0.2  # the longest delay of Ctrl-C
LOADING = threading.Lock()  # a process has only one dynamic linker for all devices


class Kind(enum.IntEnum):
    """The kind of a kernel's parameter."""

    POINTER = 0
    INTEGER = 1
    FLOATING = 2
    BOOLEAN = 3
    OTHER = 4
    TENSOR_MAP = 5


class FailureKind(enum.IntEnum):
    """Why a launch ended early."""

    NONE = 0
    KERNEL = 1  # assert, __trap, or a wrong call of a function
    DEADLOCK = 2
    FAULT = 3
    STACK_OVERFLOW = 4
    DIVISION = 5
    CANCELLED = 6
    NO_MEMORY = 7
    FINDING = 8  # of checked mode: see checked.py
    WARP = 9  # lanes are absent, or the mask is wrong
    ENDLESS = 10  # only in checked mode


class CParameter(ctypes.Structure):
    """A parameter of a kernel."""

    _fields_ = [("kind", ctypes.c_int), ("size", ctypes.c_int)]


class CKernel(ctypes.Structure):
    """A kernel. ``run`` is null if it has no C name."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("run", ctypes.c_void_p),
        ("parameter_count", ctypes.c_int),
        ("parameters", ctypes.POINTER(CParameter)),
    ]


class CModule(ctypes.Structure):
    """The contents of a kernel library."""

    _fields_ = [
        ("kernel_count", ctypes.c_int),
        ("kernels", ctypes.POINTER(CKernel)),
        ("dynamic_shared", ctypes.c_void_p),
        ("anchor", ctypes.c_void_p),
    ]


class CLaunch(ctypes.Structure):
    """A launch to run."""

    _fields_ = [
        ("module", ctypes.POINTER(CModule)),
        ("kernel", ctypes.POINTER(CKernel)),
        ("arguments", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("cluster", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("workers", ctypes.c_int),
        ("started", ctypes.c_int),
    ]


class CFailure(ctypes.Structure):
    """How a launch ended."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("block", ctypes.c_uint * 3),
        ("thread", ctypes.c_uint * 3),
        ("address", ctypes.c_uint64),
        ("pc", ctypes.c_uint64),
        ("text", ctypes.c_char * 4096),
    ]


class Runtime:
    """A loaded runtime library."""

    def __init__(self, path: Path) -> None:
        self._lib = _load(path)
        self._lib.emulator_allocate.restype = ctypes.c_void_p
        self._lib.emulator_allocate.argtypes = [ctypes.c_size_t]
        self._lib.emulator_allocate_sparse.restype = ctypes.c_void_p
        self._lib.emulator_allocate_sparse.argtypes = [ctypes.c_size_t]
        self._lib.emulator_free.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._lib.emulator_symbol_bytes.restype = ctypes.c_size_t
        self._lib.emulator_symbol_bytes.argtypes = [ctypes.c_void_p]
        self._lib.emulator_wait.argtypes = [ctypes.c_double, ctypes.POINTER(CFailure)]
        self._lib.emulator_printed.restype = ctypes.c_char_p
        self._lib.emulator_unload.argtypes = [ctypes.c_void_p]

    @property
    def library(self) -> ctypes.CDLL:
        """The library itself, for functions that only checked mode calls."""
        return self._lib

    def allocate(self, nbytes: int) -> int | None:
        """Allocate memory filled with bytes 0xFF. Return its address, or None if there is no memory left."""
        address: int | None = self._lib.emulator_allocate(nbytes)
        return address

    def allocate_sparse(self, nbytes: int) -> int | None:
        """Allocate zeros that only take memory where they are touched.

        Return None if no addresses are left.
        """
        address: int | None = self._lib.emulator_allocate_sparse(nbytes)
        return address

    def free(self, address: int, nbytes: int) -> None:
        """Return memory to the system."""
        self._lib.emulator_free(address, nbytes)

    def symbol_bytes(self, address: int) -> int:
        """Return the size of the variable at an address in a module; 0 if there is none."""
        return int(self._lib.emulator_symbol_bytes(address))

    def load_kernels(self, path: Path) -> Library:
        """Load kernels with their own variables, even if the same file is already loaded.

        In that case, a copy is loaded: from the same folder, or from another one if that cannot be written.
        """
        with LOADING:
            if not self._is_loaded(path):
                return Library(_load(path), self._lib.emulator_unload)
        try:
            return self._load_copy(path, path.parent)
        except OSError:  # the cache is full, or not writable
            with work() as folder:
                return self._load_copy(path, folder)

    def _load_copy(self, path: Path, folder: Path) -> Library:
        """Load a copy of a library, because the dynamic linker loads a file only once."""
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".loaded-", suffix=".so") as copy:
            copy.write(path.read_bytes())
            copy.flush()
            return Library(_load(Path(copy.name)), self._lib.emulator_unload)

    def _is_loaded(self, path: Path) -> bool:
        try:
            handle = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)._handle
        except OSError:
            return False
        self._lib.emulator_unload(handle)
        return True

    def launch(self, launch: CLaunch, hangs: Callable[[], bool]) -> CFailure:
        """Run a launch to its end, until Ctrl-C, or until ``hangs``, which is polled, returns true."""
        failure = CFailure()
        try:
            self._lib.emulator_start(ctypes.byref(launch))
            while not self._lib.emulator_wait(POLL_SECONDS, ctypes.byref(failure)):
                if hangs():  # Python also handles Ctrl-C here
                    self._lib.emulator_cancel()
        except BaseException:
            # The launch uses memory that the caller is about to free, so it must end first.
            while launch.started and not self._lib.emulator_wait(POLL_SECONDS, ctypes.byref(failure)):
                self._lib.emulator_cancel()
            raise
        return failure

    def printed(self) -> str:
        """Return what kernels have printed since the last call."""
        text: bytes | None = self._lib.emulator_printed()
        return text.decode(errors="replace") if text else ""


class Library:
    """A loaded kernel library. It is unloaded when nothing refers to it any more."""

    def __init__(self, lib: ctypes.CDLL, unload: ctypes._CFuncPtr) -> None:  # type: ignore[name-defined]
        self._lib = lib
        self.module = CModule.in_dll(lib, "emulator_module")
        self.kernels = {
            kernel.name.decode(): kernel
            for kernel in (self.module.kernels[i] for i in range(self.module.kernel_count))
        }
        weakref.finalize(self, unload, lib._handle).atexit = False

    @property
    def anchor(self) -> int:
        """The address of ``emulator_anchor`` in a library that was built for checked mode."""
        return ctypes.cast(self._lib.emulator_anchor, ctypes.c_void_p).value or 0

    def address(self, name: str) -> int | None:
        """Return the address of a variable, or None if there is none of this name."""
        try:
            return ctypes.addressof(ctypes.c_char.in_dll(self._lib, name))
        except ValueError:
            return None


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))  # RTLD_LOCAL separates two runtimes in one process
    except OSError as error:
        raise DeviceError(
            f"a compiled library cannot be loaded ({error}); if its folder is mounted noexec, "
            "set MINI_DNN_CACHE to one that is not"
        ) from error
