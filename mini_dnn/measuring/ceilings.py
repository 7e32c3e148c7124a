"""The limits of the hardware: measured rates of copies, and computed rates of arithmetic."""

from __future__ import annotations

import statistics

from mini_dnn.device.base import Device
from mini_dnn.running.timing import Timing, time_op

COPY_ITEMS = 1 << 28  # floats: 1 GiB, far more than any cache; fewer if other programs use the memory
HOST_ITEMS = 1 << 26
ITEM_BYTES = 4
TIMING = Timing(warm_up=3, repeats=20, max_repeats=20, cold_cache=False)
# FLOP per clock and multiprocessor by compute capability: fp32, and fp16 in tensor cores with fp32 sums (CUDA
# C++ Programming Guide, throughput of native arithmetic instructions; the architectures' white papers)
FLOP_PER_CLOCK = {
    75: (128, 1024),
    80: (128, 2048),
    86: (256, 1024),
    87: (256, 1024),
    89: (256, 1024),
    90: (256, 4096),
}


def copy_rates(device: Device) -> dict[str, float]:
    """Measure copies in GB/s: on the device (bytes read plus written), to and from page-locked memory."""
    free_items = device.free_bytes() // ITEM_BYTES
    items = max(HOST_ITEMS, min(COPY_ITEMS, free_items // 4))  # two arrays, half of the free memory
    source, target = device.empty("source", (items,)), device.empty("target", (items,))
    host = device.pinned((HOST_ITEMS,))
    host[:] = 0  # touches the pages, so that they exist
    part = device.part(source, 0, HOST_ITEMS)
    try:
        copy_ms = time_op(lambda: device.copy(target, source), device, TIMING)
        in_ms = time_op(lambda: device.copy_in(part, host), device, TIMING)
        out_ms = time_op(lambda: device.copy_out(part, host, wait=False), device, TIMING)
    finally:
        source.free()
        target.free()
    return {
        "copy_gbps": 2 * source.nbytes / statistics.median(copy_ms.samples_ms) / 1e6,
        "h2d_gbps": host.nbytes / statistics.median(in_ms.samples_ms) / 1e6,
        "d2h_gbps": host.nbytes / statistics.median(out_ms.samples_ms) / 1e6,
    }


def peak_tflops(arch: int, multiprocessors: int, clock_mhz: float) -> dict[str, float]:
    """Return the TFLOP/s at a clock rate, by operand precision.

    Unknown architectures give an empty result.
    """
    if arch not in FLOP_PER_CLOCK:
        return {}
    fp32, fp16 = (per_clock * multiprocessors * clock_mhz / 1e6 for per_clock in FLOP_PER_CLOCK[arch])
    return {"fp32_tflops": fp32, "tf32_tflops": fp16 / 2, "fp16_tflops": fp16}
