"""The one call of cuBLAS that a variant needs, through ctypes."""

from __future__ import annotations

import ctypes
import ctypes.util

from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.errors import DeviceError, LaunchError

NO_TRANSPOSE = 0  # CUBLAS_OP_N


class Cublas:
    """A cuBLAS handle in the current context.

    Raises
    ------
    DeviceError
        The library is not found, or cannot start.
    """

    def __init__(self) -> None:
        self._library = _load()
        self._handle = ctypes.c_void_p()
        status = self._library.cublasCreate_v2(ctypes.byref(self._handle))
        if status:
            raise DeviceError(f"cuBLAS cannot start: cublasCreate returned status {status}")

    def sgemm(self, a: int, b: int, c: int, m: int, n: int, k: int, stream: int) -> None:
        """Row-major ``c (m,n) = a (m,k) @ b (k,n)`` at these device addresses, in strict fp32.

        cuBLAS is column-major: it computes the transposed product of the same memory, b by a.
        """
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        self._check(self._library.cublasSetStream_v2(self._handle, ctypes.c_void_p(stream)))
        self._check(
            self._library.cublasSgemm_v2(
                *(self._handle, NO_TRANSPOSE, NO_TRANSPOSE, n, m, k, ctypes.byref(one)),
                *(ctypes.c_void_p(b), n, ctypes.c_void_p(a), k),
                *(ctypes.byref(zero), ctypes.c_void_p(c), n),
            )
        )

    def _check(self, status: int) -> None:
        if status:
            raise LaunchError(f"cuBLAS failed with status {status}")


def _load() -> ctypes.CDLL:
    nvcc = find_nvcc()
    toolkit = sorted((nvcc.resolve().parent.parent / "lib64").glob("libcublas.so*")) if nvcc else []
    name = str(toolkit[0]) if toolkit else ctypes.util.find_library("cublas")
    if name is None:
        raise DeviceError(
            "cuBLAS was not found: there is no libcublas.so in the CUDA toolkit or on the library path; "
            "install the toolkit's libraries"
        )
    return ctypes.CDLL(name)
