"""What a call from Python costs the host, beside a bare launch of the same kernel.

    python benchmarks/calls.py [--impl NAME] [--size 256] [--dtype float32] [--own-stream] [--out FILE]

Calls come in bursts that are shorter than the GPU's queue, so that the host never waits for the GPU; between
bursts it waits, which is not timed. A figure is the median of all bursts, per call. It exits with 1 if one of
our functions takes more than `MOST_US` above a bare launch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

BURST = 200  # calls; a GPU's queue takes about 1,000 launches
BURSTS = 100
WARM_UP = 20  # bursts
MOST_US = 10.0
Way = tuple[str, Callable[[], Any], bool]  # what it is, a call, and whether it is held to `MOST_US`
BARE = "bare launch"


@dataclass(frozen=True)
class Figure:
    """What one way to call costs."""

    library: str
    what: str
    us: float  # host time of a call, median
    spread_us: float  # half the distance between the quartiles
    is_ours: bool


def host_us(call: Callable[[], Any], wait: Callable[[], Any], bursts: int = BURSTS) -> tuple[float, float]:
    """Host time of a call in us: the median of the bursts, and half the distance between their quartiles."""
    found = []
    for burst in range(WARM_UP + bursts):
        wait()
        start = time.perf_counter()
        for _ in range(BURST):
            call()
        found.append((time.perf_counter() - start) * 1e6 / BURST)
        if burst < WARM_UP:
            found.clear()
    wait()
    first, middle, third = statistics.quantiles(found, n=4)
    return middle, (third - first) / 2


def prepared() -> Any:
    """The call that was prepared last."""
    from mini_dnn.interop.calls import CALLS

    *_, ready = CALLS.ready.values()
    return ready.prepared


def bare_launch() -> Callable[[], None]:
    """Its launches alone, with their arguments as they are."""
    launches = prepared()._work
    if len(launches) == 1:
        return launches[0]  # type: ignore[no-any-return]

    def launch() -> None:
        for give in launches:
            give()

    return launch


def with_cupy(impl: str, size: int, dtype: str) -> Iterator[Way]:
    """Ways to call with CuPy's arrays."""
    import cupy

    from mini_dnn import gemm

    a, b = (cupy.random.standard_normal((1, size, size), dtype=np.float32).astype(dtype) for _ in "ab")
    chosen = {"impl": impl} if impl else {}
    c = gemm(a, b, **chosen)
    yield BARE, bare_launch(), False
    yield "gemm(a, b, out=c)", partial(gemm, a, b, out=c, **chosen), True
    yield "gemm(a, b)", partial(gemm, a, b, **chosen), True
    yield from raw_kernel(a, b, c)
    yield "cupy.matmul(a, b)", partial(cupy.matmul, a, b), False
    yield "cupy.empty", partial(cupy.empty, (1, size, size), np.float32), False
    yield "current stream", cupy.cuda.get_current_stream, False


def raw_kernel(a: Any, b: Any, c: Any) -> Iterator[Way]:
    """CuPy's own launch of the kernel, and the front end that makes it; nothing where CuPy has no words."""
    from mini_dnn.errors import VariantError
    from mini_dnn.interop.cupy import load

    try:
        loaded = load(prepared().variant, prepared().problem)
    except VariantError as error:
        print(f"no RawKernel: {error}", file=sys.stderr)
        return
    step, *more = loaded.planned.steps
    yield "interop.cupy, out=c", partial(loaded, a, b, out=c), False
    if more:
        return
    named = {"a": a, "b": b, "c": c, "c0": c}
    plain = {int: np.int32, float: np.float32}
    if not all(isinstance(value, (str, int, float, np.generic)) for value in step.args):
        return  # tensor maps: the front end knows how to pass them
    args = tuple(named[v] if isinstance(v, str) else plain.get(type(v), type(v))(v) for v in step.args)
    grid, block = ((*sizes, 1, 1)[:3] for sizes in (step.grid, step.block))
    kernel = loaded.kernel(step)
    yield "RawKernel", partial(kernel, grid, block, args, shared_mem=step.shared_bytes), False


def with_torch(impl: str, size: int, dtype: str) -> Iterator[Way]:
    """Ways to call with PyTorch's tensors."""
    import torch

    import mini_dnn.interop.torch
    from mini_dnn import gemm

    a, b = (torch.randn(1, size, size, device="cuda").to(getattr(torch, dtype)) for _ in "ab")
    chosen = {"impl": impl} if impl else {}
    c = gemm(a, b, **chosen)
    yield BARE, bare_launch(), False
    yield "gemm(a, b, out=c)", partial(gemm, a, b, out=c, **chosen), True
    yield "gemm(a, b)", partial(gemm, a, b, **chosen), True
    operator = getattr(torch.ops, mini_dnn.interop.torch.NAMESPACE).gemm.default
    yield "torch.ops.mini_dnn.gemm(a, b)", partial(operator, a, b, **chosen), False
    yield "torch.matmul(a, b)", partial(torch.matmul, a, b), False
    yield "torch.empty", partial(torch.empty, (1, size, size), device=a.device), False
    yield "current stream", torch.cuda.current_stream, False


@contextmanager
def waiting(library: str, own_stream: bool) -> Iterator[Callable[[], Any]]:
    """What waits for the GPU; meanwhile the library's stream is the default one, or another one."""
    if library == "CuPy":
        import cupy

        with cupy.cuda.Stream(non_blocking=True) if own_stream else nullcontext():
            yield cupy.cuda.Device().synchronize
    else:
        import torch

        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()) if own_stream else nullcontext():
            yield torch.cuda.synchronize


def measured(
    impl: str, size: int, dtype: str, libraries: Sequence[str], own_stream: bool = False
) -> list[Figure]:
    """Figures of all ways, of each library together."""
    found = []
    for library in libraries:
        ways = {"CuPy": with_cupy, "PyTorch": with_torch}[library]
        with waiting(library, own_stream) as wait:
            for what, call, is_ours in ways(impl, size, dtype):
                found.append(Figure(library, what, *host_us(call, wait), is_ours))
    return found


def table(figures: Sequence[Figure]) -> str:
    """The figures as people read them."""
    bare = {figure.library: figure.us for figure in figures if figure.what == BARE}
    lines = [f"{'library':9} {'what':32} {'us a call':>9} {'+-':>5} {'above a bare launch':>20}"]
    for f in figures:
        above = f"{f.us - bare[f.library]:20.2f}" if f.what != BARE else ""
        lines.append(f"{f.library:9} {f.what:32} {f.us:9.2f} {f.spread_us:5.2f} {above}".rstrip())
    return "\n".join(lines)


def too_slow(figures: Sequence[Figure], most_us: float = MOST_US) -> list[str]:
    """Ours that cost more than they may."""
    bare = {figure.library: figure.us for figure in figures if figure.what == BARE}
    return [
        f"{f.what} of {f.library}: {f.us - bare[f.library]:.2f} us above a bare launch; at most {most_us:g}"
        for f in figures
        if f.is_ours and f.us - bare[f.library] > most_us
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 if a call costs too much."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--impl", default="", help="a variant of gemm; default: the best one")
    parser.add_argument("--size", type=int, default=256, help="rows, columns, and terms of a sum")
    parser.add_argument("--dtype", default="float16", choices=["float16", "float32"], help="of a and b")
    parser.add_argument("--libraries", nargs="+", default=["CuPy", "PyTorch"], choices=["CuPy", "PyTorch"])
    parser.add_argument("--own-stream", action="store_true", help="on a stream that is not the default one")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    asked = parser.parse_args(arguments)
    figures = measured(asked.impl, asked.size, asked.dtype, asked.libraries, asked.own_stream)
    print(table(figures))
    if asked.out:
        asked.out.write_text(json.dumps([asdict(figure) for figure in figures], indent=1) + "\n")
    slow = too_slow(figures)
    print("\n".join(slow), file=sys.stderr)
    return bool(slow)


if __name__ == "__main__":
    sys.exit(main())
