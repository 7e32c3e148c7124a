"""Tensor maps for a GPU: the driver encodes them, and kernels receive them by value."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mini_dnn.device.bindings import load_driver, reason
from mini_dnn.device.tensor_map import MapGeometry
from mini_dnn.errors import LaunchError


@lru_cache(maxsize=4096)
def encoded(address: int, geometry: MapGeometry) -> np.void:
    """Return the 128 bytes that a kernel receives as a ``ptx::TensorMap``.

    Raises
    ------
    DeviceError
        cuda-bindings is missing.
    LaunchError
        The driver refuses the map, as it does for GPUs older than Hopper.
    """
    api = load_driver()
    shape, box = geometry.shape[::-1], geometry.box[::-1]  # innermost axis first
    kind, swizzle, promotion = geometry.driver_names
    memory = (
        getattr(api.CUtensorMapDataType, kind),
        len(shape),
        address,
        [api.cuuint64_t(side) for side in shape],
        [api.cuuint64_t(pitch) for pitch in geometry.pitches[::-1]],
    )
    how = (
        api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(api.CUtensorMapSwizzle, swizzle),
        getattr(api.CUtensorMapL2promotion, promotion),
        api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if geometry.windows is None:
        every = [api.cuuint32_t(1)] * len(shape)
        status, tensor_map = api.cuTensorMapEncodeTiled(
            *memory, [api.cuuint32_t(side) for side in box], every, *how
        )
    else:
        (lower, upper), stride = geometry.corners, geometry.windows[1]
        every = [api.cuuint32_t(step) for step in (1, stride, stride, 1)]
        status, tensor_map = api.cuTensorMapEncodeIm2col(
            *memory, [lower] * 2, [upper] * 2, box[0], box[1], every, *how
        )
    if failed := reason(api, status):
        raise LaunchError(f"the driver makes no tensor map of {geometry} at {address:#x}: {failed}")
    return np.void(np.array([int(word) for word in tensor_map.opaque], np.uint64).tobytes())
