"""NVIDIA's own Python bindings of the driver, for launches and graphs that PyCUDA does not support."""

from __future__ import annotations

from typing import Any

from mini_dnn.errors import DeviceError


def load_driver() -> Any:
    """Import ``cuda.bindings.driver``.

    Raises
    ------
    DeviceError
        cuda-bindings is missing.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceError(
            f"cuda-bindings cannot be imported ({error}), and launches on a GPU need it; "
            "pip install -e '.[gpu]' adds it"
        ) from error
    return driver


def reason(driver: Any, status: Any) -> str:
    """Return why a call failed, such as ``"out of memory (CUDA error 2)"``, or an empty string."""
    if status == driver.CUresult.CUDA_SUCCESS:
        return ""
    _, text = driver.cuGetErrorString(status)
    return f"{text.decode() if text else 'no reason is known'} (CUDA error {int(status)})"


def gpu_of(address: int) -> int:
    """Return the index of the GPU whose memory contains an address.

    Raises
    ------
    DeviceError
        The address is not on a GPU.
    """
    driver = load_driver()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    status, index = driver.cuPointerGetAttribute(attribute, address)
    if failed := reason(driver, status):
        raise DeviceError(f"the address {address:#x} belongs to no GPU: {failed}")
    return int(index)
