"""Variants through CuPy alone: ``cupy.RawModule`` loads their kernels, and CuPy launches them.

PyCUDA is not needed, but nvcc is: some kernels need instructions that CuPy asks no compiler for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import cupy
import numpy as np

from mini_dnn.device.base import MappedBuffer
from mini_dnn.device.cache import cache_dir
from mini_dnn.device.clusters import ALONE
from mini_dnn.device.cublas import WORKSPACE, Cublas
from mini_dnn.device.cuda_map import encoded
from mini_dnn.device.nvcc import build_cubin, nvcc_arch
from mini_dnn.device.product import Product
from mini_dnn.errors import DeviceError, ShapeError, VariantError
from mini_dnn.ops import Array
from mini_dnn.paths import write_atomically
from mini_dnn.running.execute import argument, no_buffer
from mini_dnn.running.prepared import ALIGNMENT
from mini_dnn.variant import Variant, find
from mini_dnn.variant.plan import Code, CopyToSymbol, Gemm, Images, Launch, Step

SHARED_BYTES = 48 * 1024  # more has to be asked for, kernel by kernel


class Loaded:
    """A variant for one problem, on the GPU that is CuPy's current one.

    All work goes to CuPy's current stream, and scratch memory comes from CuPy's pool. Kernels with variables,
    such as filters in constant memory, share them with all that is loaded of the same variant and problem:
    such calls belong on one stream.

    Parameters
    ----------
    variant
        One with kernels.
    problem
        What it is compiled for.

    Raises
    ------
    VariantError
        It runs on the host, refuses the problem, or launches in a way that CuPy has no words for.
    DeviceError
        There is no nvcc, the GPU is too old, or its memory too small.
    """

    def __init__(self, variant: Variant, problem: Any) -> None:
        if variant.host is not None:
            raise VariantError(f"{variant.name} runs on the host; take a variant with kernels")
        gpu = cupy.cuda.Device()
        arch = int(gpu.compute_capability)
        if arch < variant.min_arch:
            raise DeviceError(f"{variant.name} needs sm_{variant.min_arch}; this GPU is sm_{arch}")
        self.planned = variant.planned(problem, gpu.attributes["MaxSharedMemoryPerBlockOptin"])
        if not self.planned.fits(gpu.mem_info[0] + cupy.get_default_memory_pool().free_bytes(), True):
            raise DeviceError(
                f"{variant.name} needs {self.planned.scratch_bytes / 1e6:.1f} MB of scratch memory for "
                f"{problem}, or more blocks than a grid has; take a smaller batch"
            )
        for launch in self.planned.launches:
            if launch.cluster_sizes != ALONE:
                raise VariantError(f"{variant.name} launches clusters of blocks, which CuPy has no words for")
        own = Code(self.planned.source, tuple(self.planned.defines.items()))
        self._modules: dict[Code | None, Any] = {None: _module(own, arch)}
        self._modules |= {code: _module(code, arch) for code in self.planned.codes}
        self._cublas: dict[int, tuple[Cublas, Any]] = {}  # by stream, each with memory to work in
        self._kernels: dict[tuple[Code | None, str], Any] = {}
        for launch in self.planned.launches:
            loaded = self._modules[launch.code].get_function(launch.kernel)
            kernel = self._kernels.setdefault((launch.code, launch.kernel), loaded)
            if launch.shared_bytes > max(SHARED_BYTES, kernel.max_dynamic_shared_size_bytes):
                kernel.max_dynamic_shared_size_bytes = launch.shared_bytes

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Compute the operation of CuPy's arrays, in the order of the problem's; the result, or all of them.

        Raises
        ------
        ShapeError
            An array is not the problem's, not in C order, or at an odd place.
        """
        given, outputs = (self.planned.problem.named(*roles) for roles in (("in", "weight"), ("out",)))
        results = out if isinstance(out, tuple) else () if out is None else (out,)
        results = results or tuple(cupy.empty(array.shape, array.dtype) for array in outputs.values())
        held = (*arrays, *results)
        if len(held) != len(given) + len(outputs):
            raise ShapeError(f"expected the arrays {', '.join(given)}; found {len(arrays)}")
        buffers = dict(zip((*given, *outputs), held, strict=True))
        for name, array in buffers.items():
            _check(name, array, self.planned.problem.arrays[name])
        for name, array in self.planned.scratch.items():
            buffers[name] = cupy.empty(array.shape, array.dtype)
        for step in (*self.planned.setup, *self.planned.steps):
            self._run(step, buffers)
        return results if len(results) > 1 else results[0]

    def _run(self, step: Step, buffers: dict[str, Any]) -> None:
        match step:
            case Launch():
                named = partial(self._named, buffers, what := f"the launch of {step.kernel}")
                part: Callable[[Images], Any] = partial(_part, named)
                args = tuple(_passed(argument(value, what, named, part)) for value in step.args)
                grid, block = ((*sizes, 1, 1)[:3] for sizes in (step.grid, step.block))
                self.kernel(step)(grid, block, args, shared_mem=step.shared_bytes)
            case CopyToSymbol():
                source = self._named(buffers, f"the copy to {step.symbol}", step.buffer)
                symbol = self._modules[None].get_global(step.symbol)
                symbol.copy_from_device_async(source.data, source.nbytes)
            case Gemm():
                named = partial(self._named, buffers, "the gemm")
                self._multiply(step.product, named(step.a), named(step.b), named(step.c))

    def kernel(self, launch: Launch) -> Any:
        """The kernel of a launch, a ``cupy.RawKernel``."""
        return self._kernels[launch.code, launch.kernel]

    def _named(self, buffers: dict[str, Any], what: str, name: str) -> Any:
        """The array of that name, or another one's memory that goes by it."""
        if name in self.planned.views:
            of, array = self.planned.views[name]
            return self._named(buffers, what, of).reshape(-1)[: prod(array.shape)].reshape(array.shape)
        if name not in buffers:
            raise no_buffer(name, buffers, what)
        return buffers[name]

    def _multiply(self, product: Product, a: Any, b: Any, c: Any) -> None:
        """By cuBLAS, with a handle for each stream."""
        if limit := product.limit_for({"a": a, "b": b, "c": c}):
            raise VariantError(f"{self.planned.name} has a product that cuBLAS does not take: {limit}")
        stream = cupy.cuda.get_current_stream().ptr
        if stream not in self._cublas:
            workspace = cupy.empty(WORKSPACE, np.uint8)
            self._cublas[stream] = Cublas(stream, workspace.data.ptr), workspace
        at_a, at_b, at_c = a.data.ptr, b.data.ptr, c.data.ptr
        self._cublas[stream][0].multiply(product, at_a, at_b, at_c, a.dtype.name, c.dtype.name)


def load(impl: str | Variant, problem: Any) -> Loaded:
    """A variant by its name or path, for a problem, or for one as ``--shapes`` names it.

    Raises
    ------
    VariantError, ShapeError, DeviceError
        See `Loaded`.
    """
    variant = impl if isinstance(impl, Variant) else find(impl)
    return Loaded(variant, variant.operation.parse(problem) if isinstance(problem, str) else problem)


def _check(name: str, array: Any, expected: Array) -> None:
    """Refuse an array that kernels cannot use where it lies."""
    fits = (array.shape, array.dtype.name) == (expected.shape, expected.dtype)
    if not fits or not array.flags.c_contiguous or array.data.ptr % ALIGNMENT:
        order = "in C order" if array.flags.c_contiguous else "not in C order"
        raise ShapeError(
            f"{name} is {array.shape} {array.dtype} {order}, at {array.data.ptr:#x}; expected "
            f"{expected.shape} {expected.dtype} in C order, at a multiple of {ALIGNMENT} bytes"
        )


def _passed(arg: Any) -> Any:
    """What CuPy passes to a kernel: a tensor map by value, as the bytes that it is; all else is as it is."""
    if not isinstance(arg, MappedBuffer):
        return arg
    array: Any = arg.buffer
    return np.frombuffer(encoded(*arg.at(array.data.ptr)).tobytes(), "V128")


def _part(named: Callable[[str], Any], images: Images) -> Any:
    return named(images.buffer)[images.first : images.last]


def _module(code: Code, arch: int) -> Any:
    """Kernels, compiled for a GPU, as CuPy loads them."""
    cubin = build_cubin(code.source, dict(code.defines), nvcc_arch(arch))
    path = cache_dir() / "cupy" / f"{hashlib.sha256(cubin).hexdigest()[:32]}.cubin"
    if not path.is_file():
        try:
            write_atomically(path, cubin)
        except OSError as error:
            raise DeviceError(
                f"{path} cannot be written ({error.strerror}), and CuPy loads kernels from files; make room "
                "or set MINI_DNN_CACHE to another folder"
            ) from error
    return cupy.RawModule(path=str(path))
