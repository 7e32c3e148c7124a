"""CuPy's arrays and PyTorch's tensors; see `mini_dnn.interop.kinds.Kind`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.interop.kinds import Gathered, Site, name_of, refuse_gpus, refuse_mixed, refuse_order

TORCH_CURE = "{name}.contiguous()"
NEGATIVE_CURE = "{name}.resolve_neg().contiguous()"  # a view whose numbers are negated when they are read


class Cupy:
    """CuPy's arrays."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._stream, self._current = cupy.cuda.get_current_stream, cupy.cuda.get_device_id

    def lies_on_gpu(self, array: Any) -> bool:
        """True for all CuPy arrays."""
        return True

    def gather(self, names: Sequence[str], arrays: Sequence[Any]) -> Gathered:
        """See `Kind`."""
        metas: list[Any] = []
        addresses: list[int] = []
        try:
            gpu = arrays[0].data.device_id
            for array in arrays:
                memory = array.data
                if not array.flags.c_contiguous:
                    refuse_order(
                        names, arrays, array, f"cupy.ascontiguousarray({name_of(names, arrays, array)})"
                    )
                if memory.device_id != gpu:
                    refuse_gpus(names, [a.data.device_id for a in arrays])
                metas += array.shape, array.dtype
                addresses.append(memory.ptr)
        except AttributeError:
            refuse_mixed(names, arrays)
        return gpu, self._stream(gpu).ptr, tuple(metas), addresses, None

    def dtype(self, dtype: Any) -> str:
        """It is NumPy's."""
        return str(dtype)  # unlike its name, this includes a foreign byte order

    def maker(self, shape: tuple[int, ...], dtype: str, site: Site) -> Callable[[], Any]:
        """See `Kind`."""
        empty, kind, gpu = self._cupy.empty, np.dtype(dtype), site.gpu

        def make() -> Any:
            if self._current() == gpu:
                return empty(shape, kind)
            with self._cupy.cuda.Device(gpu):
                return empty(shape, kind)

        try:
            empty(0, kind)
        except (TypeError, ValueError) as error:
            raise ShapeError(f"CuPy has no arrays of {dtype} for the result: {error}") from error
        return make

    def address(self, array: Any) -> int:
        """See `Kind`."""
        address: int = array.data.ptr
        return address

    def written(self, arrays: Sequence[Any]) -> None:
        """Nothing to do."""


class Torch:
    """PyTorch's tensors."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._tracks = torch, torch.is_grad_enabled
        # PyTorch's own compiler uses it; it is ten times as fast as the public function
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        self._stream = raw or (lambda gpu: torch.cuda.current_stream(gpu).cuda_stream)

    def lies_on_gpu(self, array: Any) -> bool:
        """Whether it is a CUDA tensor."""
        if array.is_cuda:
            return True
        if not array.is_cpu:
            raise ShapeError(
                f"a tensor is on the device '{array.device}'; expected an NVIDIA GPU or host memory: pass "
                "x.cuda() or x.cpu()"
            )
        return False

    def gather(self, names: Sequence[str], arrays: Sequence[Any]) -> Gathered:
        """See `Kind`."""
        metas: list[Any] = []
        addresses: list[int] = []
        tracks = self._tracks()
        try:
            gpu = arrays[0].get_device()
            for array in arrays:
                if array.get_device() != gpu:
                    self._refuse_devices(names, arrays)
                if not array.is_contiguous() or array.is_neg():
                    refuse_order(names, arrays, array, NEGATIVE_CURE if array.is_neg() else TORCH_CURE)
                if tracks and array.requires_grad:
                    refuse_gradient(name_of(names, arrays, array))
                metas += array.shape, array.dtype
                addresses.append(array.data_ptr())
        except AttributeError:
            refuse_mixed(names, arrays)
        return gpu, self._stream(gpu), tuple(metas), addresses, None

    def dtype(self, dtype: Any) -> str:
        """PyTorch's name without the module."""
        return str(dtype).removeprefix("torch.")

    def maker(self, shape: tuple[int, ...], dtype: str, site: Site) -> Callable[[], Any]:
        """See `Kind`."""
        torch = self._torch
        device = torch.device("cuda", site.gpu)
        # PyTorch is faster if the type and the device are those of a tensor. This one has no memory
        like = torch.empty(0, dtype=getattr(torch, dtype), device=device)
        return partial(like.new_empty, shape)

    def address(self, array: Any) -> int:
        """See `Kind`."""
        address: int = array.data_ptr()
        return address

    def written(self, arrays: Sequence[Any]) -> None:
        """Notify autograd, which may have saved one of them for a backward pass."""
        for array in arrays:
            if not array.is_inference():  # inference tensors have no version counter
                self._torch.autograd.graph.increment_version(array)

    @staticmethod
    def _refuse_devices(names: Sequence[str], arrays: Sequence[Any]) -> NoReturn:
        if not all(array.is_cuda for array in arrays):
            refuse_mixed(names, arrays)
        refuse_gpus(names, [array.get_device() for array in arrays])


def refuse_gradient(name: str) -> NoReturn:
    """Raise an error because a tensor requires a gradient."""
    raise ShapeError(
        f"{name} requires a gradient, but there is no backward pass; pass {name}.detach(), or call "
        "within torch.no_grad()"
    )
