"""Devices: `open_device` opens a GPU through PyCUDA, or the CPU emulator."""

from __future__ import annotations

from mini_dnn.device.base import Device
from mini_dnn.errors import DeviceError, UsageError, meant

DEVICES = ("auto", "cuda", "emulator")
NO_GPU = " (no GPU: "  # part of a description; the reason and a closing bracket follow

__all__ = ["DEVICES", "NO_GPU", "Device", "check_name", "open_device"]


def open_device(name: str = "auto", index: int = 0) -> Device:
    """Open a device.

    Parameters
    ----------
    name
        ``"cuda"``, ``"emulator"``, or ``"auto"``: the GPU if there is one, and otherwise the emulator. The
        device's ``description`` says which one was chosen, and why no GPU is used.
    index
        The number of the GPU, if there are several.

    Raises
    ------
    DeviceError
        The named device cannot be opened. The message says what is missing.
    """
    check_name(name)
    if name == "emulator":
        return _emulator()
    from mini_dnn.device.cuda import CudaDevice

    try:
        return CudaDevice(index)
    except DeviceError as error:
        if name == "cuda":
            raise
        emulator = _emulator()
        emulator.description += f"{NO_GPU}{error})"
        return emulator


def check_name(name: str) -> None:
    """Raise an error if this is not the name of a device.

    Raises
    ------
    UsageError
        There is no such device. The message lists the names.
    """
    if name not in DEVICES:
        raise UsageError(f"no device '{name}'{meant(name, DEVICES)}; expected one of {', '.join(DEVICES)}")


def _emulator() -> Device:
    from mini_dnn.device.emulator import EmulatorDevice

    return EmulatorDevice()
