"""How close an op time comes to the roofline: the longer of moving the bytes and doing the arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Roof:
    """An op time compared with the device's ceilings."""

    fraction: float  # of the roofline that is reached; a lower bound if `missing` names a ceiling
    bound: str  # "memory" or "compute": the closer ceiling
    missing: str = ""  # the type whose compute ceiling is unknown


def roof(
    op_ms: float, flops: int, min_bytes: int, compute_type: str, ceilings: Mapping[str, float]
) -> Roof | None:
    """Compare an op time with the roofline. Return None if the copy rate is unknown.

    Parameters
    ----------
    op_ms
        Milliseconds.
    flops, min_bytes
        FLOPs and bytes of the problem.
    compute_type
        One of `mini_dnn.variant.COMPUTE_TYPES`. ``"3xfp16"`` stands for three products of halves each.
    ceilings
        ``copy_gbps``, ``fp32_tflops`` and so on: see `mini_dnn.measuring.ceilings`.
    """
    if "copy_gbps" not in ceilings:
        return None
    memory_ms = min_bytes / (ceilings["copy_gbps"] * 1e6)
    products, _, unit = compute_type.rpartition("x")  # "3xfp16", or only "fp16"
    peak_tflops = ceilings.get(f"{unit}_tflops")
    if peak_tflops is None:
        return Roof(memory_ms / op_ms, "memory", missing=unit)
    compute_ms = int(products or 1) * flops / (peak_tflops * 1e9)
    return Roof(max(memory_ms, compute_ms) / op_ms, "memory" if memory_ms >= compute_ms else "compute")
