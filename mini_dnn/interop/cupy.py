"""Variants through CuPy alone: ``cupy.RawModule`` loads their kernels, and CuPy launches them.

PyCUDA is not needed, but nvcc is: some kernels need an architecture that CuPy does not request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import cupy
import numpy as np

from mini_dnn.device.cache import cache_dir
from mini_dnn.device.clusters import ALONE
from mini_dnn.device.cublas import WORKSPACE, Cublas
from mini_dnn.device.cuda_map import encoded
from mini_dnn.device.nvcc import build_cubin, nvcc_arch
from mini_dnn.errors import DeviceError, ShapeError, VariantError, reason
from mini_dnn.interop.kinds import describe
from mini_dnn.interop.refusals import check_apart
from mini_dnn.ops import Array
from mini_dnn.paths import write_atomically
from mini_dnn.running.execute import argument, no_buffer
from mini_dnn.running.prepared import ALIGNMENT
from mini_dnn.variant import Planned, Variant, find
from mini_dnn.variant.plan import Argument, Code, CopyToSymbol, Gemm, Images, Launch, Step
from mini_dnn.variant.planned import arch_needed
from mini_dnn.variant.tensor_map import TensorMap

SHARED_BYTES = 48 * 1024  # a larger size must be requested for each kernel
MAPS = 256  # tensor maps that are kept


class Loaded:
    """A variant that is compiled for one problem, on CuPy's current GPU.

    Calls are made on the same GPU. All work goes to CuPy's current stream, and scratch memory comes from
    CuPy's pool. If kernels have variables, such as filters in constant memory, all objects for the same
    variant and problem share them. Make such calls on one stream.

    Parameters
    ----------
    variant
        A variant with kernels.
    problem
        The problem that it is compiled for.

    Raises
    ------
    VariantError
        The variant runs on the host, refuses the problem, or needs launches that CuPy does not support.
    DeviceError
        There is no nvcc, the GPU lacks instructions, or its memory is too small.
    """

    def __init__(self, variant: Variant, problem: Any) -> None:
        if variant.host is not None:
            raise VariantError(f"{variant.name} runs on the host; use a variant with kernels")
        gpu = cupy.cuda.Device()
        self._gpu, arch = gpu.id, int(gpu.compute_capability)
        _check_arch(variant, arch)
        self.planned = variant.planned(problem, gpu.attributes["MaxSharedMemoryPerBlockOptin"])
        _check_arch(self.planned, arch)
        if not self.planned.fits(gpu.mem_info[0] + cupy.get_default_memory_pool().free_bytes(), True):
            raise DeviceError(
                f"{variant.name} needs {self.planned.scratch_bytes / 1e6:.1f} MB of scratch memory for "
                f"{problem}, or more blocks than a grid can have; use a smaller batch"
            )
        for launch in self.planned.launches:
            if launch.cluster_sizes != ALONE:
                raise VariantError(
                    f"{variant.name} launches clusters, which CuPy does not support; use another one"
                )
        for name, array in self.planned.arrays.items():
            _check_type(name, array)
        own = Code(self.planned.source, tuple(self.planned.defines.items()))
        self._modules: dict[Code | None, Any] = {None: _module(own, arch)}
        self._modules |= {code: _module(code, arch) for code in self.planned.codes}
        self._arrays = dict(problem.arrays)
        self._given, self._outputs = problem.named("in", "weight"), problem.named("out")
        self._maps: dict[tuple[TensorMap, int], Any] = {}  # encoded maps, by the addresses of their arrays
        self._cublas: dict[int, tuple[Cublas, Any]] = {}  # by stream, each with its own workspace
        self._kernels: dict[tuple[Code | None, str], Any] = {}
        for launch in self.planned.launches:
            loaded = self._modules[launch.code].get_function(launch.kernel)
            kernel = self._kernels.setdefault((launch.code, launch.kernel), loaded)
            if launch.shared_bytes > max(SHARED_BYTES, kernel.max_dynamic_shared_size_bytes):
                kernel.max_dynamic_shared_size_bytes = launch.shared_bytes
        self._steps = [self._made_ready(step) for step in (*self.planned.setup, *self.planned.steps)]

    def __call__(self, *arrays: Any, out: Any = None) -> Any:
        """Compute the operation for CuPy arrays in the order of the problem; return the result or results.

        Raises
        ------
        ShapeError
            An array does not fit the problem, is not in C order, is not aligned, or is on another GPU; or an
            array for a result overlaps another one.
        DeviceError
            The current GPU is another one.
        """
        if (current := cupy.cuda.get_device_id()) != self._gpu:
            raise DeviceError(
                f"{self.planned.name} was loaded for GPU {self._gpu}, and the current one is GPU {current}; "
                f"call it within 'with cupy.cuda.Device({self._gpu}):'"
            )
        results = out if isinstance(out, tuple) else () if out is None else (out,)
        results = results or tuple(cupy.empty(a.shape, a.dtype) for a in self._outputs.values())
        for what, names, found in (("the call", self._given, arrays), ("out=", self._outputs, results)):
            if len(found) != len(names):
                raise ShapeError(f"{what} needs the arrays {', '.join(names)}; found {len(found)}")
        buffers = dict(zip((*self._given, *self._outputs), (*arrays, *results), strict=True))
        for name, array in buffers.items():
            _check(name, array, self._arrays[name], self._gpu)
        if out is not None:
            which, held = (*self._given, *("out" for _ in results)), buffers.values()
            check_apart(which, [a.data.ptr for a in held], [a.nbytes for a in held], len(results))
        for name, expected in self.planned.scratch.items():
            buffers[name] = cupy.empty(expected.shape, expected.dtype)
        for step in self._steps:
            step(buffers)
        return results if len(results) > 1 else results[0]

    def _made_ready(self, step: Step) -> Callable[[dict[str, Any]], None]:
        """A function that runs the step with the arrays of these names."""
        match step:
            case Launch():
                return self._launch(step)
            case CopyToSymbol():
                symbol = self._modules[None].get_global(step.symbol)

                def copy(buffers: dict[str, Any]) -> None:
                    source = self._named(buffers, f"the copy to {step.symbol}", step.buffer)
                    symbol.copy_from_device_async(source.data, source.nbytes)

                return copy
            case Gemm():
                return partial(self._multiply, step)
        return lambda buffers: None  # copies from and to the host are not needed: the arrays are on the GPU

    def _launch(self, launch: Launch) -> Callable[[dict[str, Any]], None]:
        what, kernel = f"the launch of {launch.kernel}", self.kernel(launch)
        grid, block = ((*sizes, 1, 1)[:3] for sizes in (launch.grid, launch.block))

        def passed(value: Argument) -> Callable[[dict[str, Any]], Any]:
            if not isinstance(value, (str, Images, TensorMap)):
                scalar = argument(value, what, _no_array, _no_array)
                return lambda buffers: scalar

            def moving(buffers: dict[str, Any]) -> Any:
                named = partial(self._named, buffers, what)
                if not isinstance(value, TensorMap):
                    return argument(value, what, named, partial(_part, named))
                key = value, named(value.buffer).data.ptr
                if key not in self._maps:
                    if len(self._maps) >= MAPS:
                        self._maps.clear()
                    self._maps[key] = _passed(argument(value, what, named, _no_array))
                return self._maps[key]

            return moving

        args = [passed(value) for value in launch.args]
        return lambda buffers: kernel(
            grid, block, tuple(arg(buffers) for arg in args), shared_mem=launch.shared_bytes
        )

    def kernel(self, launch: Launch) -> Any:
        """The kernel of a launch, a ``cupy.RawKernel``."""
        return self._kernels[launch.code, launch.kernel]

    def _named(self, buffers: dict[str, Any], what: str, name: str) -> Any:
        """The array with this name, or a view of another array with this name."""
        owner = self.planned.owner(name)
        if owner not in buffers:
            raise no_buffer(owner, buffers, what)
        array = buffers[owner]
        shape = self.planned.views[name][1].shape if name in self.planned.views else array.shape
        return array if shape == array.shape else array.reshape(-1)[: prod(shape)].reshape(shape)

    def _multiply(self, step: Gemm, buffers: dict[str, Any]) -> None:
        """Multiply with cuBLAS, with one handle for each stream."""
        product = step.product
        a, b, c = (self._named(buffers, "the gemm", name) for name in (step.a, step.b, step.c))
        if limit := product.limit_for({"a": a, "b": b, "c": c}):
            raise VariantError(f"{self.planned.name} has a product that cuBLAS does not support: {limit}")
        stream = cupy.cuda.get_current_stream().ptr
        if stream not in self._cublas:
            workspace = cupy.empty(WORKSPACE, np.uint8)
            self._cublas[stream] = Cublas(stream, workspace.data.ptr), workspace
        at_a, at_b, at_c = a.data.ptr, b.data.ptr, c.data.ptr
        self._cublas[stream][0].multiply(product, at_a, at_b, at_c, a.dtype.name, c.dtype.name)


def load(impl: str | Variant, problem: Any) -> Loaded:
    """Load a variant, by its name or path, for a problem or for a text in the form of ``--shapes``.

    Raises
    ------
    VariantError, ShapeError, DeviceError
        See `Loaded`.
    """
    variant = impl if isinstance(impl, Variant) else find(impl)
    return Loaded(variant, variant.operation.parse(problem) if isinstance(problem, str) else problem)


def _check_arch(variant: Variant | Planned, arch: int) -> None:
    if needed := arch_needed(variant, arch):
        raise DeviceError(f"{variant.name} needs a GPU of {needed}; this one is sm_{arch}")


def _check_type(name: str, array: Array) -> None:
    """Refuse an array of a type that CuPy does not have: bfloat16 in most versions."""
    try:
        cupy.empty((0,), array.dtype)
    except TypeError as error:
        raise VariantError(
            f"{name} is {array.dtype}, and this version of CuPy has no such arrays; use another type, or "
            "call the operation with tensors of PyTorch"
        ) from error


def _check(name: str, array: Any, expected: Array, gpu: int) -> None:
    """Refuse an array that kernels cannot use in place."""
    if not isinstance(array, cupy.ndarray):
        raise ShapeError(f"{name} is {describe(array)}; expected a CuPy array")
    if array.data.device_id != gpu:
        raise ShapeError(
            f"{name} is on GPU {array.data.device_id}, and the variant was loaded for GPU {gpu}; copy it "
            "there"
        )
    fits = (array.shape, array.dtype.name) == (expected.shape, expected.dtype)
    if not fits or not array.flags.c_contiguous or array.data.ptr % ALIGNMENT:
        order = "in C order" if array.flags.c_contiguous else "not in C order"
        raise ShapeError(
            f"{name} is {array.shape} {array.dtype} {order}, at {array.data.ptr:#x}; expected "
            f"{expected.shape} {expected.dtype} in C order, at a multiple of {ALIGNMENT} bytes"
        )


def _passed(arg: Any) -> Any:
    """A tensor map in the form in which CuPy passes it to a kernel: by value, as bytes."""
    array: Any = arg.buffer
    return np.frombuffer(encoded(*arg.at(array.data.ptr)).tobytes(), "V128")


def _no_array(name: object) -> Any:
    raise AssertionError(f"expected an array, found the scalar {name!r}")


def _part(named: Callable[[str], Any], images: Images) -> Any:
    return named(images.buffer)[images.first : images.last]


def _module(code: Code, arch: int) -> Any:
    """Compile kernels for a GPU, and load them with CuPy."""
    cubin = build_cubin(code.source, dict(code.defines), nvcc_arch(arch))
    path = cache_dir() / "cupy" / f"{hashlib.sha256(cubin).hexdigest()[:32]}.cubin"
    if not path.is_file():
        try:
            write_atomically(path, cubin)
        except OSError as error:
            raise DeviceError(
                f"{path} cannot be written ({reason(error)}), and CuPy loads kernels from files; free "
                "some space, or set MINI_DNN_CACHE to another folder"
            ) from error
    return cupy.RawModule(path=str(path))
