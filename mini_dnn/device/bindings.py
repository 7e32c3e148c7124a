"""The driver's functions that PyCUDA lacks, by cuda-bindings."""

from __future__ import annotations

from typing import Any

from mini_dnn.errors import DeviceError


def driver(what: str) -> Any:
    """The module of the driver's functions.

    Parameters
    ----------
    what
        What needs it, for the message: ``"CUDA graphs need it"``.

    Raises
    ------
    DeviceError
        cuda-bindings is missing.
    """
    try:
        from cuda.bindings import driver as found
    except ImportError as error:
        raise DeviceError(
            f"cuda-bindings cannot be imported ({error}), and {what}; pip install -e '.[gpu]' adds it"
        ) from error
    return found
