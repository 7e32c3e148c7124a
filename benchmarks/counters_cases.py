"""Kernels for which the emulator's counters are compared with those of Nsight Compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.device.base import Device, LaunchConfig
from mini_dnn.variant import find

SOURCE = Path(__file__).with_name("counters.cu")
BLOCKS, THREADS = 2, 64
FLOATS = 1 << 15  # of each array

# Each small kernel, with the values of its argument s.
PROBES = {
    "strided": (1, 2, 3, 8, 32),
    "shifted": (0, 1, 8),
    "stored_strided": (1, 5),
    "wide8": (1, 2),
    "wide16": (1, 3),
    "narrow1": (1, 3),
    "narrow2": (1, 4),
    "three": (1,),
    "broadcast": (5,),
    "reversed": (127,),
    "gathered": (37,),
    "transposed": (16,),
    "first_lanes": (5,),
    "every_other": (2,),
    "two_ways": (4,),
    "trips": (5,),
    "nested_trips": (6,),
    "halo": (9,),
    "leave_early": (77,),
    "atomic_each": (1, 2),
    "atomic_old": (1,),
    "atomic_same": (3,),
    "shared_atomic": (1, 4, 32),
    "shared4": (1, 2, 3, 8, 32, 33),
    "shared8": (1, 2, 4, 5),
    "shared16": (1, 2, 3, 4),
    "shared1": (1, 4, 31),
    "shared2": (1, 2, 16),
    "shared4_divided": (2, 32),
    "shared8_divided": (2, 4, 32),
    "shared16_divided": (2, 4, 8, 32),
    "shared4_xor": (5,),
    "shared16_xor": (1, 4),
    "shared8_mixed": (1, 16),
    "shared16_mixed": (1, 8),
    "shared4_first": (5,),
    "shared8_first": (5, 16, 20),
    "shared16_first": (5, 8, 16),
    "shared_stores": (1, 2, 33),
    "shared_stores16": (1, 2),
    "many_fmas": (8,),
    "special": (8,),
    "products": (4,),
    "matrices": (1, 4, 5),
    "matrix": (1, 4),
    "copied16": (1, 2),
    "copied4": (1, 3),
    "constant_same": (3,),
    "constant_each": (1, 2),
}

# Variants of all ladders, each at a problem that is also short on the emulator.
LADDERS = (
    ("m1/direct", "2,3,19,37,5,3,5"),
    ("m1/tiled_direct", "2,3,19,37,5,3,5"),
    ("m2/unroll_gemm", "2,3,19,37,5,3,5"),
    ("m3/fusion", "2,3,19,37,5,3,5"),
    ("m3/restrict", "2,3,19,37,5,3,5"),
    ("m3/register_tiling", "2,3,19,37,5,3,5"),
    ("m3/constant_memory", "2,3,19,37,5,3,5"),
    ("m3/stack_1", "2,3,19,37,5,3,5"),
    ("m3/sliding_window", "2,3,19,37,5,3,5"),
    ("m3/fp16", "2,3,19,37,5,3,5"),
    ("m3/tensor_cores_fp16", "2,3,19,37,5,3,5"),
    ("layers/custom", "2,1,20,20,4,5,5"),
    ("softmax/v0_naive", "130,50"),
    ("softmax/v1_warp", "130,50"),
    ("gemm/v0_naive", "64,96,80"),
    ("gemm/v1_coalesced", "64,96,80"),
    ("gemm/v2_tiled", "64,96,80"),
    ("gemm/v3_registers", "64,96,80"),
    ("gemm/v4_wmma", "64,96,80,fp16"),
    ("gemm/v5_mma_async", "128,128,128,fp16"),
    ("gemm/v6_wgmma", "128,128,128,fp16"),
    ("linear/v0_naive", "3,5,72,40,gelu,none,1,0,fp16"),
    ("linear/v1_tiles", "3,5,72,40,gelu,none,1,0,fp16"),
    ("attention/v0_naive", "1,2,65,64"),
    ("attention/v1_shared", "1,2,65,64"),
    ("attention/v2_coalesced", "1,2,65,64"),
    ("attention/v3_wmma", "1,2,65,64"),
    ("attention/v4_warps", "1,2,65,64"),
    ("attention/v5_rows", "1,2,65,64"),
    ("attention/v6_k_coalesced", "1,2,65,64"),
    ("attention/v7_online", "1,2,65,64"),
    ("conv2d_padded/v0_naive", "2,3,11,9,5,7,2,3,1,0,fp32,nchw"),
    ("conv2d_padded/v1_shared", "2,3,11,9,5,7,2,3,1,0,fp32,nchw"),
    ("conv2d_padded/v2_wmma", "2,24,5,7,40,3,1,1,1,1,fp16,nhwc"),
)


@dataclass(frozen=True)
class Probe:
    """A launch of a small kernel."""

    kernel: str
    s: int

    @property
    def name(self) -> str:
        """The name of the launch: ``"strided 2"``."""
        return f"{self.kernel} {self.s}"


def probes() -> list[Probe]:
    """All small launches in order."""
    return [Probe(kernel, s) for kernel, values in PROBES.items() for s in values]


def launch_probes(device: Device, first: int = 0, last: int | None = None) -> None:
    """Launch small kernels one after the other."""
    module = device.compile(SOURCE, {})
    x, y = (device.empty(name, (FLOATS,)) for name in "xy")
    for buffer in (x, y):
        device.copy_in(buffer, np.zeros(FLOATS, np.float32))
    for probe in probes()[first:last]:
        device.launch(module, probe.kernel, LaunchConfig((BLOCKS,), (THREADS,)), (x, y, np.int32(probe.s)))
    device.synchronize()


def ladder_cases(first: int = 0, last: int | None = None) -> Iterator[tuple[Any, Any]]:
    """Variants and their problems."""
    for name, shape in LADDERS[first:last]:
        variant = find(name)
        yield variant, variant.operation.parse(shape)
