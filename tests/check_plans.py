"""Plans for the kernels in the corpus of wrong kernels, each of which names its plan."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import ceil_div
from mini_dnn.variant.plan import CopyToSymbol, Launch, Step
from mini_dnn.variant.tensor_map import TensorMap

TILE = 16
THREADS = 64

Plan = Callable[[ConvShape], Sequence[Step]]


def arguments(s: ConvShape) -> tuple[str | int, ...]:
    return ("x", "w", "y", s.N, s.C, s.H, s.W, s.M, s.R, s.S)


def direct(pixels: Callable[[int, int], int] = ceil_div) -> Plan:
    return lambda s: [Launch("conv", (pixels(s.P * s.Q, THREADS), s.M, s.N), (THREADS,), arguments(s))]


def gemm(tile: int, block: tuple[int, ...]) -> Plan:
    return lambda s: [Launch("conv", (ceil_div(s.cols, tile), ceil_div(s.M, tile)), block, arguments(s))]


def tiled(halo: int) -> Plan:
    def plan(s: ConvShape) -> list[Step]:
        tiles = ceil_div(s.P, TILE) * ceil_div(s.Q, TILE)
        shared_bytes = 4 * (TILE + halo * (s.R - 1)) * (TILE + halo * (s.S - 1))
        return [Launch("conv", (tiles, s.M, s.N), (TILE, TILE), arguments(s), shared_bytes)]

    return plan


def tiled_and_filter(s: ConvShape) -> list[Step]:
    (launch,) = tiled(halo=1)(s)
    assert isinstance(launch, Launch)
    return [replace(launch, shared_bytes=launch.shared_bytes + 4 * s.R * s.S)]


def changed(**changes: object) -> Plan:
    """The launch of ``direct`` with some fields changed."""
    return lambda s: [replace(step, **changes) for step in direct()(s)]  # type: ignore[type-var, arg-type]


def last_argument(*value: str | float) -> Plan:
    return lambda s: [Launch("conv", (s.P * s.Q, s.M, s.N), (THREADS,), (*arguments(s)[:-1], *value))]  # type: ignore[arg-type]


def constant(s: ConvShape) -> list[Step]:
    return [CopyToSymbol("w_const", "w"), *direct()(s)]


def split(s: ConvShape) -> list[Step]:
    args = ("x", "w", "part", "y", s.N, s.C, s.H, s.W, s.M, s.R, s.S)
    return [Launch("conv", (ceil_div(s.N * s.M * s.P * s.Q, THREADS), s.C), (THREADS,), args)]


def reduce(s: ConvShape) -> list[Step]:
    """One block per output."""
    return [Launch("conv", (s.P * s.Q, s.M, s.N), (THREADS,), arguments(s))]


def wgmma(s: ConvShape) -> list[Step]:
    """One block per 64 output channels of 24 pixels."""
    return [Launch("conv", (ceil_div(s.cols, 24), ceil_div(s.M, 64)), (128,), arguments(s))]


def cluster(s: ConvShape) -> list[Step]:
    """Clusters of two blocks."""
    blocks = 2 * ceil_div(s.P * s.Q, 2 * THREADS)
    return [Launch("conv", (blocks, s.M, s.N), (THREADS,), arguments(s), cluster=2)]


def tensor(s: ConvShape) -> list[Step]:
    """A plan with a tensor map in which a plane of x is a row of a matrix."""
    planes = TensorMap("x", (1, s.H * s.W), (s.N * s.C, s.H * s.W), swizzle=0)
    return [Launch("conv", (ceil_div(s.P * s.Q, THREADS), s.M, s.N), (THREADS,), (planes, *arguments(s)[1:]))]


def tensor_store(s: ConvShape) -> list[Step]:
    """Results are written to rows whose pitch suits tensor copies, and are copied from there to y."""
    pixels, pitch = s.P * s.Q, scratch(s)["rows"][1]
    rows = TensorMap("rows", (1, THREADS), (s.N * s.M, pixels), swizzle=0)
    grid, numbers = (ceil_div(pixels, THREADS), s.M, s.N), arguments(s)[3:]
    return [
        Launch("conv", grid, (THREADS,), (rows, "x", "w", *numbers)),
        Launch("gather", (s.N * s.M,), (THREADS,), ("rows", "y", pixels, pitch)),
    ]


def scratch(s: ConvShape) -> dict[str, tuple[int, ...]]:
    return {"part": (s.C, s.N, s.M, s.P, s.Q), "rows": (s.N * s.M, ceil_div(s.P * s.Q, 4) * 4)}


PLANS: dict[str, Plan] = {
    "direct": direct(),
    "direct_floor": direct(lambda a, b: a // b),
    "gemm": gemm(TILE, (TILE, TILE)),
    "wmma": gemm(TILE, (32,)),
    "tiled": tiled(halo=1),
    "tiled_no_halo": tiled(halo=0),
    "constant": constant,
    "split": split,
    "tiled_and_filter": tiled_and_filter,
    "direct_early": changed(early=True),
    "direct_huge_block": changed(block=(2048,)),
    "direct_misspelled": changed(kernel="convolve"),
    "direct_argument_missing": last_argument(),
    "direct_float_argument": last_argument(5.0),
    "reduce": reduce,
    "wgmma": wgmma,
    "cluster": cluster,
    "tensor": tensor,
    "tensor_store": tensor_store,
}
