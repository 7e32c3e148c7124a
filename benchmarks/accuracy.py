"""Measure the accuracy of products of fp32 operands, on four kinds of data.

``python benchmarks/accuracy.py --impl gemm/cublas,gemm/v9 --size 4096 --out FILE.json``

There is one line for each variant and kind. Random rows of c are compared with float64. Errors are relative
to the sum of the products' magnitudes, ``|a| |b|``, because rounding errors are proportional to it. The
median is also given relative to the result itself.

- ``uniform``: values between 0 and 1
- ``normal``: normally distributed values
- ``graded``: normal values in lines whose magnitudes are up to 60 powers of two apart
- ``wide``: normal values whose magnitudes differ from element to element
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from command_line import add_impl, add_out, check_variants, head, parser_of, positive, write

from mini_dnn.cli import status_of
from mini_dnn.device import Device, open_device
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.running.runner import run
from mini_dnn.variant import find

ROWS = 32  # rows of c that are compared
Draw = Callable[[tuple[int, int], np.random.Generator, int], np.ndarray]


def graded(shape: tuple[int, int], rng: np.random.Generator, axis: int) -> np.ndarray:
    """Normal values in lines whose magnitudes are up to 60 powers of two apart."""
    lines = [n if i == axis else 1 for i, n in enumerate(shape)]
    return rng.standard_normal(shape) * np.exp2(rng.integers(-30, 30, lines))


KINDS: dict[str, Draw] = {
    "uniform": lambda shape, rng, axis: rng.random(shape),
    "normal": lambda shape, rng, axis: rng.standard_normal(shape),
    "graded": graded,
    "wide": lambda shape, rng, axis: rng.standard_normal(shape) * np.exp(2 * rng.standard_normal(shape)),
}


def errors(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """Errors of rows of c: median and largest, relative to ``|a| |b|``, and the median relative to c."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    off = np.abs(found - exact)
    with np.errstate(divide="ignore"):
        return {
            "median": float(np.median(off / size)),
            "largest": float((off / size).max()),
            "median_of_c": float(np.median(off / np.abs(exact))),
        }


def measure(size: int, impl: Sequence[str], device: Device) -> list[dict[str, Any]]:
    """Return the rows of the table for products of ``size`` x ``size`` matrices."""
    rng, problem, rows = np.random.default_rng(0), GemmShape(size, size, size), []
    for kind, draw in KINDS.items():
        a, b = (draw((size, size), rng, axis).astype(np.float32) for axis in (0, 1))
        chosen = np.sort(rng.choice(size, min(ROWS, size), replace=False))
        for name in impl:
            found = run(find(name), problem, {"a": a[None], "b": b[None]}, device).y[0, chosen]
            row = {"size": size, "kind": kind, "variant": name} | errors(found, a[chosen], b)
            rows.append(row)
            print(
                f"{size:6d} {kind:8s} {name:16s} median {row['median']:.2e} largest {row['largest']:.2e}, "
                f"of c {row['median_of_c']:.2e}",
                flush=True,
            )
    return rows


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = parser_of(__doc__)
    add_impl(parser, "gemm/cublas,gemm/v9_fp32")
    parser.add_argument(
        "--size", type=positive, action="append", required=True, help="m = n = k; may be repeated"
    )
    parser.add_argument("--device", default="cuda", help="cuda or emulator (default: %(default)s)")
    add_out(parser)
    given = parser.parse_args(words)
    check_variants(given.impl, "gemm")
    rows: list[dict[str, Any]] = []
    with closing(open_device(given.device)) as device:
        about = head(given.impl, device=device.description)
        for size in given.size:
            rows += measure(size, given.impl, device)
            write(given.out, {**about, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
