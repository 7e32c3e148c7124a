"""Arrays of libraries with ``__dlpack__`` or ``__cuda_array_interface__``, and an array class with both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mini_dnn.device.base import Buffer
from mini_dnn.device.bindings import gpu_of
from mini_dnn.errors import ShapeError
from mini_dnn.interop import dlpack
from mini_dnn.interop.kinds import Gathered, More, Site, describe, refuse_mixed, refuse_order

INTERFACE = "__cuda_array_interface__"
GPUS = (dlpack.CUDA, dlpack.CUDA_MANAGED)


class Protocols:
    """Arrays that are accessed only through a protocol, such as those of Numba and JAX.

    If an array has both protocols, ``__dlpack__`` is used, because it orders the streams of both sides. A
    call uses the stream that the first ``__cuda_array_interface__`` names, or else the default stream.
    """

    def lies_on_gpu(self, array: Any) -> bool:
        """Whether its protocol says that it is on a GPU."""
        if hasattr(array, "__dlpack_device__"):
            return array.__dlpack_device__()[0] in GPUS
        return hasattr(array, INTERFACE)

    def gather(self, names: Sequence[str], arrays: Sequence[Any]) -> Gathered:
        """See `mini_dnn.interop.kinds.Kind`."""
        if not all(self.lies_on_gpu(array) for array in arrays):
            refuse_mixed(names, arrays)
        spoken = [_interface(name, array) for name, array in zip(names, arrays, strict=True)]
        streams = [entry["stream"] for entry in spoken if entry and entry.get("stream") is not None]
        stream = streams[0] if streams else dlpack.LEGACY_STREAM
        views = []
        for name, array, interface in zip(names, arrays, spoken, strict=True):
            view = _viewed(name, interface) if interface else dlpack.imported(array.__dlpack__(stream=stream))
            if not view.is_dense:
                refuse_order(names, arrays, array, "a copy in C order")
            views.append(view)
        gpus = {view.device[1] for view in views}
        if len(gpus) > 1:
            raise ShapeError(
                f"{', '.join(names)} are on the GPUs {sorted(gpus)}; the arrays of one call must be on one "
                "GPU"
            )
        metas = [meta for view in views for meta in (view.shape, view.dtype)]
        others = tuple(dict.fromkeys(other for other in streams if other != stream))
        more = More(others, (*arrays, *(view.capsule for view in views)))
        return gpus.pop(), stream, tuple(metas), [view.address for view in views], more

    def dtype(self, dtype: Any) -> str:
        """It is NumPy's name."""
        return str(dtype)

    def maker(self, shape: tuple[int, ...], dtype: str, site: Site) -> Callable[[], Any]:
        """See `mini_dnn.interop.kinds.Kind`."""
        return lambda: DeviceArray(shape, dtype, site)

    def address(self, array: Any) -> int:
        """The address of an array that was allocated."""
        return int(array.address)

    def written(self, arrays: Sequence[Any]) -> None:
        """Nothing to do."""


class DeviceArray:
    """An array on a GPU that other libraries can use in place, through either of two protocols.

    Parameters
    ----------
    shape, dtype
        Entries along each axis, and the name of the NumPy type.
    site
        Its GPU, and the stream that writes it. A consumer that uses ``__dlpack__`` passes a stream, which
        waits for that stream. A consumer that uses ``__cuda_array_interface__`` gets the stream, and has to
        wait itself.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str, site: Site) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._site = site
        with site.device.entered():
            self._buffer: Buffer = site.device.empty("a result", shape, dtype, fill=False)

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype.name}, gpu={self._site.gpu})"

    @property
    def address(self) -> int:
        """The address of its first element."""
        assert self._buffer.address is not None, "it is never freed"
        return self._buffer.address

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        """Its version 3: https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html."""
        if self.dtype.kind == "V":
            raise AttributeError(f"{INTERFACE} has no name for {self.dtype.name}; use __dlpack__")
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": self._site.stream or dlpack.LEGACY_STREAM,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self._site.gpu

    def __dlpack__(self, *, stream: int | None = None, **asked: Any) -> Any:
        if asked.get("copy") or asked.get("dl_device") not in (None, self.__dlpack_device__()):
            raise BufferError("a result of mini_dnn cannot be copied or moved to another device this way")
        device, own = self._site.device, self._site.stream
        consumer = dlpack.LEGACY_STREAM if stream is None else stream
        if consumer not in (-1, own):
            with device.entered():
                device.foreign_stream(consumer).follow(own)
        return dlpack.exported(self.address, self.shape, self.dtype.name, self.__dlpack_device__(), self)


def handed_over(array: DeviceArray, like: Any) -> Any:
    """A result as an array of the input's library, if that has an array namespace; otherwise unchanged.

    A library without one, such as Numba, can use the result through ``__cuda_array_interface__``.
    """
    namespace = getattr(like, "__array_namespace__", None)
    return array if namespace is None else namespace().from_dlpack(array)


def _interface(name: str, array: Any) -> Mapping[str, Any] | None:
    """The ``__cuda_array_interface__`` of an array; None if ``__dlpack__`` should be used.

    Arrays for results need the former, because only it says whether an array may be written.
    """
    if hasattr(array, "__dlpack__") and name != "out":
        return None
    found: Mapping[str, Any] | None = getattr(array, INTERFACE, None)
    if found is None or (name == "out" and found["data"][1]):
        raise ShapeError(
            f"{name} is {describe(array)}, which is read-only; pass an array of CuPy, PyTorch or "
            "Numba, or omit out="
        )
    if found.get("mask") is not None:
        raise ShapeError(f"{name} has a mask, which is not supported; pass the array without it")
    return found


def _viewed(name: str, interface: Mapping[str, Any]) -> dlpack.View:
    """What an array says by ``__cuda_array_interface__``."""
    dtype, shape = np.dtype(interface["typestr"]), tuple(interface["shape"])
    strides, address = interface.get("strides"), interface["data"][0]
    in_order = dlpack.dense(shape, dtype.itemsize)
    return dlpack.View(
        address=address,
        shape=shape,
        dtype=str(dtype),  # unlike its name, this includes a foreign byte order
        device=(dlpack.CUDA, gpu_of(address)),
        is_dense=strides is None or dlpack.same_order(shape, tuple(strides), in_order),
        capsule=None,
    )
