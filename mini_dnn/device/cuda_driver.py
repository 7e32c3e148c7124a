"""Import PyCUDA's interface to the driver, and list the GPUs."""

from __future__ import annotations

from typing import Any

from mini_dnn.errors import DeviceError


def load_pycuda() -> Any:
    """Import ``pycuda.driver``.

    Raises
    ------
    DeviceError
        PyCUDA is missing.
    """
    try:
        import pycuda.driver as driver
    except ImportError as error:
        raise DeviceError(
            f"PyCUDA cannot be imported ({error}); on a machine with the CUDA toolkit and driver, "
            "pip install -e '.[gpu]' adds it"
        ) from error
    return driver


def bus_ids() -> list[str]:
    """Return the PCI bus ids of all GPUs, in the order of their numbers, without opening a GPU.

    Raises
    ------
    DeviceError
        PyCUDA or the driver is missing, or there is no GPU.
    """
    cuda = load_pycuda()
    try:
        cuda.init()
        found = [cuda.Device(index).pci_bus_id() for index in range(cuda.Device.count())]
    except cuda.Error as error:
        raise DeviceError(f"the GPUs cannot be counted: {error}") from error
    if not found:
        raise DeviceError("the driver reports no GPU")
    return found
