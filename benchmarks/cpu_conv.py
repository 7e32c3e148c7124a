"""Compare the course network's two convolutions on the CPU: ours in NumPy, and PyTorch's.

``python benchmarks/cpu_conv.py [--batch N] [--repeats K] [--backward] [--out FILE.json]``

Both run alternately in one process, with their default numbers of threads, so that the machine's load affects
both equally. The first repeat is a warm-up and is not counted. Each result is compared with float64 on a few
images before anything is timed. Without PyTorch, only our convolutions are timed. All arrays are fp32.
"""

import hashlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from command_line import add_out, parser_of, positive, write
from numpy.lib.stride_tricks import sliding_window_view
from rich.console import Console
from rich.table import Table

from mini_dnn.cli import status_of
from mini_dnn.errors import CheckError
from mini_dnn.measuring.machine import commit, cpu_name, load
from mini_dnn.nn import numpy_conv
from mini_dnn.ops.conv2d import LAYERS, ConvShape

try:
    import torch
except ModuleNotFoundError:
    torch = None

CHECKED_IMAGES = 4
Calls = dict[str, Callable[[], np.ndarray]]  # "ours" and, if it is installed, "torch"


def shapes(batch: int) -> dict[str, ConvShape]:
    """The two convolutions of the course network."""
    return {name: layer.with_batch(batch) for name, layer in LAYERS.items()}


def forward_calls(x: np.ndarray, w: np.ndarray) -> Calls:
    """How each one computes y."""
    calls: Calls = {"ours": lambda: numpy_conv.conv2d_forward(x, w)}
    if torch is not None:
        tx, tw = torch.from_numpy(x), torch.from_numpy(w)

        def torch_forward() -> np.ndarray:
            with torch.inference_mode():
                return torch.nn.functional.conv2d(tx, tw).numpy()

        calls["torch"] = torch_forward
    return calls


def backward_calls(x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> dict[str, Calls]:
    """How each one computes dw and dx."""
    N, C, H, W = x.shape
    R, S = w.shape[2:]
    dw: Calls = {"ours": lambda: numpy_conv.conv2d_backward_weight(x, dy, R, S)}
    dx: Calls = {"ours": lambda: numpy_conv.conv2d_backward_input(w, dy, H, W)}
    if torch is not None:
        tx, tw, tdy = (torch.from_numpy(a) for a in (x, w, dy))
        dw["torch"] = lambda: torch.nn.grad.conv2d_weight(tx, tw.shape, tdy).numpy()
        dx["torch"] = lambda: torch.nn.grad.conv2d_input((N, C, H, W), tw, tdy).numpy()
    return {"dw": dw, "dx": dx}


def check(x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> None:
    """Compare every call with float64 on the first images.

    Raises
    ------
    CheckError
        A result is not finite, or its error is larger than that of fp32 sums of that length.
    """
    x, dy = x[:CHECKED_IMAGES], dy[:CHECKED_IMAGES]
    R, S = w.shape[2:]
    P, Q = dy.shape[2:]
    windows = sliding_window_view(x.astype(np.float64), (R, S), axis=(2, 3))
    dx = np.zeros(x.shape)
    for r, s in np.ndindex(R, S):
        dx[:, :, r : r + P, s : s + Q] += np.einsum("nmpq,mc->ncpq", dy, w[:, :, r, s].astype(np.float64))
    wanted = {
        "y": np.einsum("ncpqrs,mcrs->nmpq", windows, w, optimize=True),
        "dw": np.einsum("ncpqrs,nmpq->mcrs", windows, dy, optimize=True),
        "dx": dx,
    }
    for result, calls in {"y": forward_calls(x, w), **backward_calls(x, w, dy)}.items():
        for who, call in calls.items():
            error = np.abs(call() - wanted[result]).max()
            bound = 1e-5 * np.abs(wanted[result]).max()
            if not error <= bound:
                raise CheckError(
                    f"{result} of {who} is off float64 by {error:.2e}; at most {bound:.2e} is fp32"
                )


def time_alternating(calls: Calls, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each call. The calls take turns, and the first round is not counted."""
    seconds: dict[str, list[float]] = {who: [] for who in calls}
    for repeat in range(repeats + 1):
        for who, call in calls.items():
            start = time.perf_counter()
            result = call()
            elapsed = time.perf_counter() - start
            del result  # freed while the clock is stopped, for both
            if repeat:
                seconds[who].append(elapsed)
    return seconds


def measure(batch: int, repeats: int, backward: bool) -> dict[str, dict[str, list[float]]]:
    """Check, then time every operation. Return the seconds by operation and program."""
    rng = np.random.default_rng(0)
    seconds = {}
    for name, shape in shapes(batch).items():
        x, w, dy = (rng.standard_normal(size, dtype=np.float32) for size in (shape.x, shape.w, shape.y))
        check(x, w, dy)
        seconds[f"{name} forward"] = time_alternating(forward_calls(x, w), repeats)
        if backward:
            for result, calls in backward_calls(x, w, dy).items():
                seconds[f"{name} {result}"] = time_alternating(calls, repeats)
    total: dict[str, list[float]] = {}
    for who in seconds["conv1 forward"]:
        parts = [times[who] for operation, times in seconds.items() if operation.endswith("forward")]
        total[who] = [sum(part) for part in zip(*parts, strict=True)]
    seconds["forward, both"] = total
    return seconds


def summarise(times: dict[str, list[float]]) -> dict[str, Any]:
    """The median and range of each program, and the ratio of the medians."""
    row: dict[str, Any] = {
        who: {"median_s": statistics.median(s), "min_s": min(s), "max_s": max(s)} for who, s in times.items()
    }
    row["ratio"] = row["ours"]["median_s"] / row["torch"]["median_s"] if "torch" in row else None
    return row


def provenance(repeats: int, *modules: ModuleType) -> dict[str, Any]:
    """Describe the machine and the software of a measurement of functions in these modules."""
    return {
        "cpu": cpu_name(),
        **load(),
        "numpy": np.__version__,
        "torch": torch.__version__ if torch is not None else None,
        "torch_threads": torch.get_num_threads() if torch is not None else None,
        **commit(),
        "source_sha256": hashlib.sha256(
            b"".join(Path(str(module.__file__)).read_bytes() for module in modules)
        ).hexdigest(),
        "warm_up": 1,
        "repeats": repeats,
    }


def print_table(rows: dict[str, dict[str, Any]], facts: dict[str, Any]) -> None:
    """Print a line for each operation: median (min-max) in seconds."""
    torch_title = f"PyTorch {facts['torch']}" if facts["torch"] else "PyTorch (not installed)"
    title = f"{facts['cpu']}, {facts['cores']} cores, batch {facts['batch']:,}, median (min-max), s"
    table = Table("operation", f"NumPy {facts['numpy']}", torch_title, "ratio", title=title)
    for operation, row in rows.items():
        cells = [
            f"{t['median_s']:.3f} ({t['min_s']:.3f}-{t['max_s']:.3f})" if t else "-"
            for t in (row["ours"], row.get("torch"))
        ]
        table.add_row(operation, *cells, f"{row['ratio']:.2f}" if row["ratio"] else "-")
    Console().print(table)


def main(words: Sequence[str] | None = None) -> int:
    """Parse the flags, measure, print, and write the requested file."""
    parser = parser_of(__doc__)
    parser.add_argument("--batch", type=positive, default=10_000, help="batch size (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=positive, default=7, help="timed rounds after one warm-up (default: %(default)s)"
    )
    parser.add_argument("--backward", action="store_true", help="time the two gradients as well")
    add_out(parser)
    args = parser.parse_args(words)
    if torch is None:
        print("PyTorch is not installed here: ours is timed alone (pip install torch for the comparison)")
    rows = {op: summarise(t) for op, t in measure(args.batch, args.repeats, args.backward).items()}
    facts = provenance(args.repeats, numpy_conv) | {"batch": args.batch}
    print_table(rows, facts)
    write(args.out, {**facts, "operations": rows})
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
