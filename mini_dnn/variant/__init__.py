"""Variants: see `mini_dnn.variant.variant`. The names that ``variant.py`` files import come from here."""

from mini_dnn.ops.shapes import ConvShape, LenetBatch
from mini_dnn.variant.plan import CopyIn, CopyOut, CopyToSymbol, Gemm, Images, Launch, Step
from mini_dnn.variant.variant import (
    COMPUTE_TYPES,
    PRECISIONS,
    SHORT_NAMES,
    HostFunction,
    Sweep,
    Variant,
    ceil_div,
    find,
    names,
    network_names,
)

__all__ = [
    "COMPUTE_TYPES",
    "PRECISIONS",
    "SHORT_NAMES",
    "ConvShape",
    "CopyIn",
    "CopyOut",
    "CopyToSymbol",
    "Gemm",
    "HostFunction",
    "Images",
    "Launch",
    "LenetBatch",
    "Step",
    "Sweep",
    "Variant",
    "ceil_div",
    "find",
    "names",
    "network_names",
]
