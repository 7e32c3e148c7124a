"""The course's two convolutions by cuDNN, through PyTorch, on the GPU that mini_dnn is measured on.

Run it where PyTorch with CUDA is installed: ``python benchmarks/peers.py --out FILE.json``.
Times are medians between events, with a cold L2 cache, after a warm-up in which cuDNN tries its algorithms.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mini_dnn.bench import write
from mini_dnn.course import LAYERS
from mini_dnn.machine import commit
from mini_dnn.reference import conv2d_float64
from mini_dnn.shapes import ConvShape

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16}
FORMATS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
TOLERANCE = {"fp32": 1e-5, "tf32": 2e-3, "fp16": 2e-3}  # of ||y - reference|| / ||reference||
CHECKED = 64  # images that are compared with float64
WARM_UP, REPEATS = 5, 20


def measure(layer: str, shape: ConvShape, precision: str, order: str) -> dict[str, Any]:
    """One convolution by cuDNN: checked, then timed."""
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    rng = np.random.default_rng(0)
    x_host, w_host = rng.standard_normal(shape.x, np.float32), rng.standard_normal(shape.w, np.float32)
    options = {"dtype": DTYPES[precision], "memory_format": FORMATS[order]}
    x = torch.from_numpy(x_host).cuda().to(**options)
    w = torch.from_numpy(w_host).cuda().to(**options)
    flush = torch.empty(
        2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.uint8, device="cuda"
    )
    with torch.inference_mode():
        for _ in range(WARM_UP):
            y = torch.nn.functional.conv2d(x, w)
        expected = conv2d_float64(x_host[:CHECKED], w_host)
        error = np.linalg.norm(y[:CHECKED].double().cpu().numpy() - expected) / np.linalg.norm(expected)
        if not error < TOLERANCE[precision]:
            raise SystemExit(f"cuDNN {precision} {order} {layer}: error {error:.2e} against float64")
        samples = []
        for _ in range(REPEATS):
            flush.zero_()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            torch.nn.functional.conv2d(x, w)
            end.record()
            end.synchronize()
            samples.append(start.elapsed_time(end))
    return {
        "peer": "cuDNN",
        "precision": precision,
        "order": order,
        "layer": layer,
        "batch": shape.N,
        "op_ms": statistics.median(samples),
        "op_ms_min": min(samples),
        "op_ms_max": max(samples),
        "repeats": REPEATS,
        "relative_error": float(error),
    }


def main() -> None:
    """Measure all combinations, print them, and write them if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results there, as JSON")
    args = parser.parse_args()
    rows = []
    for precision, order in itertools.product(DTYPES, FORMATS):
        pair = [measure(name, shape, precision, order) for name, shape in LAYERS.items()]
        rows += pair
        times = [row["op_ms"] for row in pair]
        print(
            f"cuDNN {precision} {order}  {times[0]:8.3f} + {times[1]:.3f} = {sum(times):.3f} ms", flush=True
        )
    if args.out:
        record = {
            "schema": "peers-1",
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            **commit(),
            "device": torch.cuda.get_device_name(0),
            "versions": {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()},
            "rows": rows,
        }
        write(record, args.out)
        print(f"written to {args.out}")


if __name__ == "__main__":
    main()
