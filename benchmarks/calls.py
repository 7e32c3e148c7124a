"""Measure the host time of a call from Python, compared with a bare launch of the same kernel.

``python benchmarks/calls.py --size 256 --dtype float16 --out FILE.json``

Calls are made in bursts that are shorter than the GPU's queue, so that the host never waits for the GPU.
Between bursts it waits, which is not timed. A figure is the median time per call over all bursts. The exit
status is 1 if one of our functions takes more than `MOST_US` longer than a bare launch.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from command_line import add_out, check_variants, gpu_library, head, parser_of, positive, pytorch, write

from mini_dnn.cli import status_of

BURST = 200  # calls; the GPU's queue holds about 1,000 launches
BURSTS = 100
WARM_UP = 20  # bursts
MOST_US = 10.0
Way = tuple[str, Callable[[], Any], bool]  # description, call, and whether the limit `MOST_US` applies
BARE = "bare launch"


@dataclass(frozen=True)
class Figure:
    """The cost of one way to call."""

    library: str
    what: str
    us: float  # median host time of a call
    spread_us: float  # half the distance between the quartiles
    is_ours: bool


def host_us(call: Callable[[], Any], wait: Callable[[], Any], bursts: int = BURSTS) -> tuple[float, float]:
    """Return the host time of a call in us: the median over bursts, and half of the interquartile range."""
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
    """Return a function that only issues its launches with unchanged arguments."""
    launches = prepared()._work
    if len(launches) == 1:
        return launches[0]  # type: ignore[no-any-return]

    def launch() -> None:
        for give in launches:
            give()

    return launch


def cupy_module() -> Any:
    """Return the module cupy: see `gpu_library`."""
    return gpu_library("cupy", "CuPy", "Install it, or leave it out with --libraries PyTorch")


def versions_of(libraries: Sequence[str]) -> dict[str, str]:
    """Return the versions of the libraries, after checking that they can use a GPU.

    Raises
    ------
    UsageError
        One of them is not installed, or cannot.
    """
    modules = {"CuPy": cupy_module, "PyTorch": pytorch}
    return {library: str(modules[library]().__version__) for library in libraries}


def device_name() -> str:
    """The GPU whose calls were measured."""
    from mini_dnn.interop.calls import CALLS

    return CALLS.device(0).description


def with_cupy(impl: str, size: int, dtype: str) -> Iterator[Way]:
    """Yield ways to call with CuPy's arrays."""
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
    """Yield CuPy's own launch of the kernel, if CuPy supports it, and our front end that issues it."""
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
        return  # CuPy cannot pass tensor maps without our front end
    own = loaded.planned.owner  # the product may be a call of another variant, which has names of its own
    args = tuple(named[own(v)] if isinstance(v, str) else plain.get(type(v), type(v))(v) for v in step.args)
    grid, block = ((*sizes, 1, 1)[:3] for sizes in (step.grid, step.block))
    kernel = loaded.kernel(step)
    yield "RawKernel", partial(kernel, grid, block, args, shared_mem=step.shared_bytes), False


def with_torch(impl: str, size: int, dtype: str) -> Iterator[Way]:
    """Yield ways to call with PyTorch's tensors."""
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
    """Yield a function that waits for the GPU.

    Inside, the library's stream is the default one, or another one.
    """
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
    """Measure all ways, one library after the other."""
    found = []
    for library in libraries:
        ways = {"CuPy": with_cupy, "PyTorch": with_torch}[library]
        with waiting(library, own_stream) as wait:
            for what, call, is_ours in ways(impl, size, dtype):
                found.append(Figure(library, what, *host_us(call, wait), is_ours))
    return found


def table(figures: Sequence[Figure]) -> str:
    """Format the figures as a table."""
    bare = {figure.library: figure.us for figure in figures if figure.what == BARE}
    lines = [f"{'library':9} {'what':32} {'us a call':>9} {'+-':>5} {'above a bare launch':>20}"]
    for f in figures:
        above = f"{f.us - bare[f.library]:20.2f}" if f.what != BARE else ""
        lines.append(f"{f.library:9} {f.what:32} {f.us:9.2f} {f.spread_us:5.2f} {above}".rstrip())
    return "\n".join(lines)


def too_slow(figures: Sequence[Figure], most_us: float = MOST_US) -> list[str]:
    """Our calls that exceed the limit."""
    bare = {figure.library: figure.us for figure in figures if figure.what == BARE}
    return [
        f"{f.what} of {f.library}: {f.us - bare[f.library]:.2f} us above a bare launch; at most {most_us:g}"
        for f in figures
        if f.is_ours and f.us - bare[f.library] > most_us
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write. Return 1 if a call costs too much."""
    parser = parser_of(__doc__)
    parser.add_argument("--impl", default="", help="a variant of gemm (default: the best one)")
    parser.add_argument("--size", type=positive, default=256, help="m = n = k (default: %(default)s)")
    dtypes = ["float16", "float32"]
    parser.add_argument("--dtype", default=dtypes[0], choices=dtypes, help="default: %(default)s")
    libraries = ["CuPy", "PyTorch"]
    parser.add_argument("--libraries", nargs="+", default=libraries, choices=libraries, help="default: both")
    parser.add_argument("--own-stream", action="store_true", help="use another stream than the default one")
    add_out(parser)
    asked = parser.parse_args(arguments)
    impl = [asked.impl] if asked.impl else []
    if impl:
        check_variants(impl, "gemm")
    about = head(impl, size=asked.size, dtype=asked.dtype, own_stream=asked.own_stream)
    about["versions"] |= versions_of(asked.libraries)
    figures = measured(asked.impl, asked.size, asked.dtype, asked.libraries, asked.own_stream)
    print(table(figures))
    rows = [asdict(figure) for figure in figures]
    write(asked.out, {"device": device_name(), **about, "rows": rows})
    slow = too_slow(figures)
    for line in slow:
        print(line, file=sys.stderr)
    return bool(slow)


if __name__ == "__main__":
    sys.exit(status_of(main))
