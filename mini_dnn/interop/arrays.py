"""Finds the library to which an array belongs."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

from mini_dnn.interop.kinds import Kind
from mini_dnn.interop.native import Cupy, Torch
from mini_dnn.interop.protocols import Protocols


def kind_of(array: Any) -> Kind | None:
    """The `Kind` of an array on a GPU; None for an array in host memory, or for anything else."""
    kind_of_type: Any = _kind_of_type  # to mypy, types have no hash
    kind: Kind | None = kind_of_type(type(array))
    return kind if kind is not None and kind.lies_on_gpu(array) else None


@cache
def _kind_of_type(kind: type) -> Kind | None:
    """The `Kind` that arrays of this type may have; None for NumPy arrays, and for types themselves."""
    if issubclass(kind, np.ndarray | np.generic | type):
        return None
    for module, name, known in (("cupy", "ndarray", Cupy), ("torch", "Tensor", Torch)):
        library = sys.modules.get(module)  # a program with such an array has already imported its library
        if library is not None and issubclass(kind, getattr(library, name)):
            return known(library)
    return Protocols()
