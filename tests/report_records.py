"""Made-up results files for tests: none of the figures was measured."""

import itertools
import json
from pathlib import Path
from typing import Any

from mini_dnn import ops
from mini_dnn.device.code_hash import code_hash
from mini_dnn.device.sources import source_hash
from mini_dnn.measuring.strict import checksum
from mini_dnn.report.board import Board, boards
from mini_dnn.report.load import load
from mini_dnn.variant import find, names

GPU = "Test GPU (sm_90), CUDA 13.0"
STATE = {
    "driver": "580.1",
    "sm_mhz": 1980,
    "memory_mhz": 3201,
    "temperature_c": 45,
    "power_w": 210.5,
    "throttle_reasons": "0x1",  # idle: no throttling
}
CEILINGS = {"copy_gbps": 4270.0, "fp32_tflops": 60.0, "fp16_tflops": 700.0, "h2d_gbps": 55.0}
WHOLE = "networks/lenet/whole"
BATCHES = (1, 10, 100, 1_000, 10_000, 100_000)  # of growth runs
LAYERS = ops.find("conv2d").course
VARIANTS = names("conv2d")


def fake_row(variant: str, batch: int, problem: str, op_ms: float | None, **changes: Any) -> dict[str, Any]:
    found = find(variant) if variant in names() else None
    op = changes.get("op", found.op if found else "conv2d")
    shape = ops.find(op).course[problem].with_batch(batch)
    return {
        "op": op,
        "problem": problem,
        "variant": variant,
        "parent": found.parent if found else None,
        "precision": found.precision if found else "fp32",
        "source_hash": None if not found or found.host else source_hash(found.source),
        "code_hash": None if not found or found.host else code_hash(found.source),
        "batch": batch,
        "shape": shape.fields,
        "flops": shape.flops,
        "min_bytes": shape.min_bytes,
        "op_ms": op_ms,
        "op_ms_min": op_ms,
        "op_ms_max": op_ms,
        "op_ms_quartiles": None,
        "median_error": 0.0031,
        "settled": True,
        "repeats": 40,
        "parts": 1,
        "layer_ms": 120.0 + (op_ms or 0),
        "compile_ms": 3.0,
        "max_error": 1.25e-6,
        "error_of_bound": 0.2,
        "accuracy": 0.8714,
        "state": STATE,
    } | changes


def fake_record(rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    timing = {"warm_up": 5, "repeats": 20, "max_repeats": 500, "precision": 0.005, "budget_s": 5.0}
    return {
        "schema": 3,
        "started": "2025-01-01T10:00:00+00:00",
        "commit": "0123456789abcdef",
        "dirty": False,
        "device": {"name": GPU, "cpu": "Test CPU", "state": STATE},
        "data": "synthetic",
        "versions": {"python": "3.11"},
        "method": timing | {"cold_cache": True},
        "rows": rows,
    } | changes


def as_schema(schema: int, record: dict[str, Any]) -> dict[str, Any]:
    """Convert a record to an older schema, which knew one operation and used layers as its problems."""
    rows = []
    for row in record["rows"]:
        new = {"op", "problem", "settled"} | ({"code_hash"} if schema == 1 else set())
        rows.append({name: row[name] for name in row if name not in new} | {"layer": row["problem"]})
    sweeps = [
        {name: one[name] for name in one if name not in ("op", "problem")} | {"layer": one["problem"]}
        for one in record.get("sweeps", [])
    ]
    return record | {"schema": schema, "rows": rows, "sweeps": sweeps}


def fake_streams() -> dict[str, Any]:
    spans = []
    for part, (stream, kind, length) in itertools.product(
        range(6), [(0, "copy_in", 2.2), (1, "kernel", 0.1), (2, "copy_out", 2.0)]
    ):
        start = part * 2.4 + stream * 2.3
        times = {"start_ms": start, "end_ms": start + length}
        spans.append({"kind": kind, "stream": part % 3, "label": f"x[{part}]", **times})
    return {"hidden_fraction": 0.93, "spans": spans}


def fake_sweep(problem: str) -> dict[str, Any]:
    xs, ys = [128, 256, 512, 1024], [1, 2, 4]
    op_ms: list[list[float | None]] = [[8 / y + abs(x - 512) / 200 for x in xs] for y in ys]
    op_ms[0][3] = None
    axes = {"x_name": "TILE_COLS", "x_values": xs, "y_name": "THREAD_COLS", "y_values": ys}
    where = {"op": "conv2d", "problem": problem, "batch": 10000}
    return {"variant": "m3/sweep", **where, "op_ms": op_ms, "best": [512, 4], **axes}


def fake_full() -> dict[str, Any]:
    """Variants of conv2d, each faster than the one before, with streams, sweeps and ceilings."""
    rows = []
    for batch in (100, 1000, 10000):
        for at, variant in enumerate(VARIANTS):
            for layer, whole in (("conv1", 9000.0), ("conv2", 17000.0)):
                op_ms = whole / 1500 ** min(1, at) / 1.1**at * batch / 10000
                if variant == "m3/constant_memory":
                    op_ms *= 3  # slower than its parent
                extra = {"streams": fake_streams()} if variant == "m3/restrict" else {}
                rows.append(fake_row(variant, batch, layer, op_ms, **extra))
    return fake_record(rows, memory=CEILINGS, sweeps=[fake_sweep("conv1"), fake_sweep("conv2")])


def fake_peers() -> dict[str, Any]:
    rows = [
        _run_row("library", "cuDNN", "fp32", "NCHW", layer, op_ms)
        for layer, op_ms in (("conv1", 7.0), ("conv2", 5.0))
    ]
    return {
        "schema": "peers-2",
        "started": "2025-01-01T10:00:00+00:00",
        "device": "Test GPU",
        "versions": {"torch": "2.9.1+cu130", "cudnn": 91900},
        "rows": rows,
    }


def fake_run() -> dict[str, Any]:
    """Our kernels and libraries: one layer in two settings, one library with half of the layers."""
    rows = [
        _run_row("floor", "bytes alone", "", "", "conv1", 0.33),
        _run_row("floor", "bytes alone", "", "", "conv2", 0.25),
        _run_row("ours", "layers/custom", "fp16", "NCHW", "conv1", 0.34),
        _run_row("ours", "layers/custom", "fp16", "NCHW", "conv2", 0.26),
        _run_row("library", "cuDNN", "fp32", "NCHW", "conv1", 7.0),
        _run_row("library", "cuDNN", "fp32", "NCHW", "conv2", 4.0, setting="one"),
        _run_row("library", "cuDNN", "fp32", "NCHW", "conv2", 4.5, setting="another"),
        _run_row("library", "cuDNN", "fp32", "NHWC", "conv1", 6.0),
        _run_row("library", "cuDNN", "fp32", "NHWC", "conv2", 5.0),
        _run_row("library", "CuPy", "fp32", "NCHW", "conv1", 20.0),
        _run_row("library", "PyTorch eager", "fp32", "NCHW", "network", 12.0),
    ]
    missing = {"peer": "torch.compile", "what": "network", "reason": "CheckError: far off", "wrong": True}
    return {
        "schema": "peers-2",
        "started": "2025-01-01T10:00:00+00:00",
        "device": "Test GPU",
        "versions": {"torch": "2.9.1+cu130", "cudnn": 91900, "cupy": "14.0.0"},
        "rows": rows,
        "skipped": [missing],
    }


def _run_row(
    kind: str, peer: str, precision: str, order: str, what: str, op_ms: float, setting: str = ""
) -> dict[str, Any]:
    return {
        "kind": kind,
        "peer": peer,
        "what": what,
        "precision": precision,
        "order": order,
        "setting": setting,
        "batch": 10000,
        "op_ms": op_ms,
        "relative_error": 1e-7,
    }


def fake_growth(variant: str, problem: str, batch: int, op_ms: float, **changes: Any) -> dict[str, Any]:
    """A row of a growth run."""
    operation = find(variant).operation
    flops = operation.course[problem].with_batch(batch).flops
    where = {"op": operation.name, "problem": problem, "batch": batch, "parts": 1, "flops": flops}
    return {**_about(variant), **where, "op_ms": op_ms} | changes


def fake_serving(**changes: Any) -> dict[str, Any]:
    us = {"p50_us": 71.28, "p90_us": 80.5, "p99_us": 95.0, "max_us": 240.0, "op_ms": 0.0555, "requests": 2000}
    rates = {
        "images_per_s": 1_850_000.4,
        "batch_ms": 5.4,
        "copy_ms": 5.25,
        "op_ms": 2.1,
        "over_longer": 1.0286,
    }
    growth = [
        fake_growth(name, problem, n, at * (0.01 + n / 5e3))
        for name, problem, at in (("layers/custom", "conv1", 0.5), (WHOLE, "float32", 1.0))
        for n in BATCHES
    ]
    shared = fake_record([])
    del shared["rows"]
    return {
        **shared,
        "schema": "serving-2",
        "memory": {"h2d_gbps": 55.0},
        "latency": [{**_about(WHOLE), "send": "float32", "graph": graph, **us} for graph in (True, False)],
        "growth": growth,
        "throughput": [{**_about(WHOLE), "send": "uint8", "batch": 10000, "batches": 20, **rates}],
    } | changes


def _about(variant: str) -> dict[str, Any]:
    """The fields that all rows of serving have in common."""
    code = code_hash(find(variant).source)
    quality = {
        "max_error": 1e-6,
        "state": STATE,
        "op_ms_quartiles": None,
        "median_error": 0.001,
        "settled": True,
        "repeats": 40,
    }
    return {"variant": variant, "code_hash": code, **quality}


def stored(folder: Path, record: dict[str, Any], name: str = "results.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(record))
    return path


def board_of(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> Board:
    return boards(load([stored(folder, fake_record(rows, **changes))]))[0]


def both(variant: str, one: float, two: float, **changes: Any) -> list[dict[str, Any]]:
    return [fake_row(variant, 10000, layer, ms, **changes) for layer, ms in (("conv1", one), ("conv2", two))]


def small(**changes: Any) -> dict[str, Any]:
    """A results file with two rows and a sweep."""
    rows = both("m1/direct", 5.0, 9.0, streams=fake_streams())
    sweeps = [fake_sweep("conv1")]
    return fake_record(rows, schema=4, memory=dict(CEILINGS), sweeps=sweeps) | changes


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """The content with a checksum, as this version writes it."""
    content = json.loads(json.dumps(content))
    try:
        return content | {"sha256": checksum(content)}
    except ValueError:  # with infinity there is no checksum
        return content
