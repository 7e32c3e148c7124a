"""Variants: folders with a ``kernel.cu`` and a ``variant.py`` that describes the launches.

A variant is data. ``variant.py`` files import the names of this module.
"""

from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.ops.conv2d_relu_pool import ConvPoolShape
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.ops.problem import Array
from mini_dnn.variant.folders import (
    SHORT_NAMES,
    climbed,
    default_of,
    find,
    has_variants,
    mine,
    names,
    operation_of,
    own,
    preferred,
)
from mini_dnn.variant.plan import (
    Call,
    CopyIn,
    CopyOut,
    CopyToSymbol,
    Gemm,
    Images,
    Launch,
    Record,
    RoundTrip,
    Step,
    Wait,
)
from mini_dnn.variant.planned import Planned
from mini_dnn.variant.tensor_map import TensorMap
from mini_dnn.variant.variant import COMPUTE_TYPES, HostFunction, Sweep, Variant, ceil_div

__all__ = [
    "COMPUTE_TYPES",
    "SHORT_NAMES",
    "Array",
    "Call",
    "ConvPoolShape",
    "ConvShape",
    "CopyIn",
    "CopyOut",
    "CopyToSymbol",
    "Gemm",
    "HostFunction",
    "Images",
    "Launch",
    "LenetBatch",
    "Planned",
    "Record",
    "RoundTrip",
    "Step",
    "Sweep",
    "TensorMap",
    "Variant",
    "Wait",
    "ceil_div",
    "climbed",
    "default_of",
    "find",
    "has_variants",
    "mine",
    "names",
    "operation_of",
    "own",
    "preferred",
]
