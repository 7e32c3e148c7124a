"""The single function of cuBLAS that plans need, called through ctypes."""

from __future__ import annotations

import ctypes
import ctypes.util
from ctypes import byref, c_float, c_int, c_longlong, c_size_t, c_void_p

from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.device.product import Product
from mini_dnn.errors import DeviceError, LaunchError

WORKSPACE = 32 << 20  # bytes of device memory for the library, as NVIDIA recommends for Hopper
OPERATIONS = {"n": 0, "t": 1}  # CUBLAS_OP_N, CUBLAS_OP_T
DATA_TYPES = {"float32": 0, "float16": 2, "bfloat16": 14}  # CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF
COMPUTE_32F = 68  # CUBLAS_COMPUTE_32F: fp32 sums without TF32
ALGORITHM = -1  # CUBLAS_GEMM_DEFAULT: the library chooses
MATH_MODE = 16  # CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION: partial sums are also added in fp32


class Cublas:
    """A cuBLAS handle for one stream of the current context.

    Parameters
    ----------
    stream
        The handle of the stream.
    workspace
        The address of `WORKSPACE` bytes of device memory for exclusive use. With it, the library allocates
        nothing, so that its work can be captured in a graph.

    Raises
    ------
    DeviceError
        The library was not found or cannot start.
    """

    def __init__(self, stream: int, workspace: int) -> None:
        self._library = _load()
        self._handle = c_void_p()
        status = self._library.cublasCreate_v2(byref(self._handle))
        if status:
            raise DeviceError(f"cuBLAS cannot start: cublasCreate returned status {status}")
        self._call("cublasSetStream_v2", c_void_p(stream))
        # Must follow the call that sets the stream
        self._call("cublasSetWorkspace_v2", c_void_p(workspace), c_size_t(WORKSPACE))
        self._call("cublasSetMathMode", c_int(MATH_MODE))

    def multiply(self, product: Product, a: int, b: int, c: int, given: str, out: str) -> None:
        """Compute a product of arrays at these device addresses.

        cuBLAS is column-major: a line of memory is a column for it. Therefore, it is asked for the transposed
        product of the same memory, with b as the first operand and a as the second.

        Parameters
        ----------
        given, out
            The types of a and b, and the type of c, as NumPy names. `Product.limit_for` has checked the
            product.
        """
        of_a, of_b, of_c = (
            (c_void_p(address), c_int(DATA_TYPES[kind]), c_int(pitch), c_longlong(count * pitch))
            for address, kind, (count, _, pitch) in zip(
                (a, b, c), (given, given, out), product.lines, strict=True
            )
        )
        turned_a, turned_b = (c_int(OPERATIONS[letter]) for letter in product.layout)
        self._call(
            "cublasGemmStridedBatchedEx",
            *(turned_b, turned_a, c_int(product.n), c_int(product.m), c_int(product.k)),
            *(byref(c_float(product.alpha)), *of_b, *of_a, byref(c_float(product.beta)), *of_c),
            *(c_int(product.batch), c_int(COMPUTE_32F), c_int(ALGORITHM)),
        )

    def close(self) -> None:
        """Destroy the handle."""
        self._library.cublasDestroy_v2(self._handle)

    def _call(self, function: str, *args: object) -> None:
        status = getattr(self._library, function)(self._handle, *args)
        if status:
            raise LaunchError(f"{function} failed with status {status}")


def _load() -> ctypes.CDLL:
    nvcc = find_nvcc()
    toolkit = sorted((nvcc.resolve().parent.parent / "lib64").glob("libcublas.so*")) if nvcc else []
    name = str(toolkit[0]) if toolkit else ctypes.util.find_library("cublas")
    if name is None:
        raise DeviceError(
            "cuBLAS was not found: there is no libcublas.so in the CUDA toolkit or on the library path; "
            "install the toolkit's libraries"
        )
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise DeviceError(
            f"cuBLAS cannot be loaded ({error}); install the toolkit's libraries again"
        ) from error
