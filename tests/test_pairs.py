"""Convolutions by warpgroup products on pairs of pixels: their layout, sizes and values."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from convolutions import solved
from emulator_kernels import Kernels
from sampling import some_of

from mini_dnn import conv2d, conv2d_relu_pool, quads
from mini_dnn.checking.schedules import SCHEDULES
from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.nn.pooling import MaxPool2d
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.ops.conv2d_relu_pool import ConvPoolShape
from mini_dnn.variant import Variant, ceil_div, find

CUSTOM, SPLIT, FUSED = "layers/custom", "m3/fp32_split", "layers/fused"
KINDS = ((CUSTOM, 0), (SPLIT, 0), (FUSED, 2), (FUSED, 4))  # and the size of the pool's windows
FORMS = ({}, {"PTX_NO_WGMMA": 1})  # products of a warpgroup, or products of single warps
EDGE_N = 24  # pairs of rows in a product at the edge


def defined(variant: Variant, **more: int) -> Variant:
    return replace(variant, defines=lambda s: {**variant.defines_for(s), **more})


def cut_as(name: str, bands: int, groups: int, **sizes: int) -> Variant:
    """The variant with ``bands`` bands per image, in tiles of ``groups`` pairs of rows."""
    settings: dict[str, int] = {"warps": 4, "blocks": 1} | sizes

    def tiling(s: ConvShape) -> quads.Tiling:
        pool = getattr(s, "pool", 0)
        return quads.cut(s, bands, groups=groups, split=name == SPLIT, pool=pool, **settings)  # type: ignore[arg-type]

    return replace(
        find(name),
        plan=lambda s: quads.plan(s, tiling(s)),
        scratch=lambda s: quads.scratch(s, tiling(s)),
        defines=lambda s: quads.defines(s, tiling(s)),
        compact=None,
    )


def random(rng: np.random.Generator, s: ConvShape) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal(s.x, np.float32), rng.standard_normal(s.w, np.float32)


def with_pool(s: ConvShape, pool: int) -> ConvShape:
    return ConvPoolShape(**s.fields, pool=pool) if pool else s


def compute(variant: Variant, x: np.ndarray, w: np.ndarray, pool: int, device: Device) -> np.ndarray:
    return conv2d_relu_pool(x, w, variant, device, pool=pool) if pool else conv2d(x, w, variant, device)


def pooled(y: np.ndarray, pool: int) -> np.ndarray:
    """The largest value of each window. If ``pool`` is 0, the result of the convolution."""
    return MaxPool2d(pool, ceil_mode=True).forward(y) if pool else y


def assert_right(variant: Variant, s: ConvShape, pool: int, device: Device) -> None:
    """Check that warpgroup products are used if the device has them, and that the result is right."""
    shape = with_pool(s, pool)
    assert variant.defines_for(shape)["GROUPS"] > 0
    result = solved(variant, shape, device)
    assert result.ok, f"{shape}: {result}"


# ---- The layout


@pytest.fixture(params=["checked", pytest.param("cuda", marks=pytest.mark.gpu)])
def either(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The emulator, which notices reads of missing data, or a GPU with warpgroup products."""
    if request.param == "checked":
        with closing(CheckedEmulator()) as device:
            yield device
        return
    device = request.getfixturevalue("cuda")
    if device.arch != 90:
        pytest.skip(f"products of a warpgroup need sm_90a, the device is sm_{device.arch}")
    yield device


def operands(pair_row: np.ndarray, pair: np.ndarray, R: int, S: int) -> np.ndarray:
    """B of the products for the columns n at these pairs: (..., n) gives (..., R + 1, steps, 16, n)."""
    r, s, k, _ = np.ogrid[: R + 1, : ceil_div(S + 1, 4), :16, :1]
    row = 2 * pair_row[..., None, None, None, :] + r
    column = 2 * pair[..., None, None, None, :] + 4 * s + k // 4
    return np.choose(k % 4, np.broadcast_arrays(row, column, 1, 2)).astype(np.float32)


def slots(band: int, Q: int, R: int, S: int, groups: int) -> int:
    return quads.pair_slots(ConvShape(1, 4, band + R - 1, Q + S - 1, 16, R, S), band, groups)


FILTERS = [(7, 7, 9), (1, 1, 3), (4, 6, 6), (2, 9, 3), (5, 3, 9)]  # R, S, GROUPS


@pytest.mark.parametrize(("R", "S", "groups"), FILTERS)
def test_sizes_are_the_kernels(R: int, S: int, groups: int, either: Device) -> None:
    """`pair_slots` and ``pairs::Layout`` count the same."""
    heights = range(2 * groups, 74, 2 * groups)
    cases = np.array([(band, Q) for band in heights for Q in range(1, 70)], np.int32)
    bands, columns, found = (np.ascontiguousarray(v) for v in (*cases.T, np.zeros(len(cases), np.int32)))
    kernels = Kernels(either, "pairs.cu", R=R, S=S, GROUPS=groups)  # type: ignore[arg-type]
    kernels("sizes", (1,), (1,), found, bands, columns, np.int32(len(cases)))
    assert found.tolist() == [slots(band, Q, R, S, groups) for band, Q in cases.tolist()]


@pytest.mark.parametrize(("R", "S", "groups"), FILTERS)
def test_products_find_their_pairs(R: int, S: int, groups: int, either: Device) -> None:
    """All lie within `pair_slots`, even if a sanitizer treats an operand as one contiguous range."""
    kernels = Kernels(either, "pairs.cu", R=R, S=S, GROUPS=groups)  # type: ignore[arg-type]
    for tiles, Q in [(1, 1), (1, 15), (2, 16), (1, 17), (2, 18), (1, 34), (3, 21), (4, 6), (6, 12)]:
        band, (full, rest) = 2 * groups * tiles, divmod(ceil_div(Q, 2), 8)
        group, tile, n = np.ogrid[:full, :tiles, : 8 * groups]
        main = operands(*np.broadcast_arrays(tile * groups + n // 8, 8 * group + n % 8), R, S)
        column, tile, n = np.ogrid[:rest, : ceil_div(band // 2, EDGE_N), :EDGE_N]
        row, pair = np.broadcast_arrays(EDGE_N * tile + n, 8 * full + column)
        edge = operands(row, pair, R, S)
        found = [np.zeros(v.size or 1, np.float32) for v in (main, edge)]  # a buffer is never empty
        end, size = np.zeros(1, np.int32), slots(band, Q, R, S, groups)
        kernels("operands", (1,), (128,), *found, end, np.int32(band), np.int32(Q), shared=16 * size)
        assert 0 < end <= size
        np.testing.assert_array_equal(found[0][: main.size].reshape(main.shape), main)
        in_band = np.broadcast_to((row < band // 2)[..., None, None, None, :], edge.shape)
        np.testing.assert_array_equal(found[1][: edge.size].reshape(edge.shape)[in_band], edge[in_band])


# ---- Whole convolutions


def of_columns(Q: int, pool: int) -> ConvShape:
    """Two bands in tiles of 3 pairs of rows. The last band is one row high."""
    return ConvShape(2, 3 + Q % 2, int(np.lcm(6, max(pool, 1))) + 3, Q + 3, 20, 3, 4)


@pytest.mark.parametrize("step", [11, pytest.param(5, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", [*KINDS, (FUSED, 1)], ids=str)
def test_columns(kind: tuple[str, int], step: int, device: Device) -> None:
    """The edge alone, and all remainders of groups of 8 pairs of columns, shared by the kinds."""
    name, pool = kind
    for Q in range(1 + [*KINDS, (FUSED, 1)].index(kind) % step, 35, step):
        assert_right(cut_as(name, 2, groups=3), of_columns(Q, pool), pool, device)


@pytest.mark.parametrize(("name", "pool"), KINDS)
def test_columns_by_warps(name: str, pool: int, device: Device) -> None:
    """The launches are the same without warpgroup products."""
    for Q in (7, 23):
        variant = defined(cut_as(name, 2, groups=3), PTX_NO_WGMMA=1)
        assert_right(variant, of_columns(Q, pool), pool, device)


TILES = {  # pairs of rows per tile; without warpgroups, the largest number of rows of quads per strip
    CUSTOM: {"groups": 9, "max_rows": 10},
    SPLIT: {"groups": 6, "max_rows": 3},
    FUSED: {"groups": 9, "max_rows": 12},
}


@pytest.mark.parametrize("one_of", [4, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(("turn", "defines"), some_of(range(len(KINDS)), FORMS, one_of=2), ids=str)
def test_rows(turn: int, one_of: int, defines: dict, device: Device) -> None:
    """The rows past the last band are none, some, or nearly all of a tile."""
    name, pool = KINDS[turn]
    tile = 2 * TILES[name]["groups"]
    cases = [(P, ceil_div(P, tile)) for P in (1, 2, 3, tile - 1, tile, tile + 1, 2 * tile, 2 * tile + 1)]
    if not defines:  # tiles one below the other; 53 rows need two products at the edge
        cases += [(P, 1) for P in (tile + 1, 2 * tile - 2, 53)]
    for P, bands in cases[turn % one_of :: one_of]:
        variant = defined(cut_as(name, bands, **TILES[name]), **defines)
        assert_right(variant, ConvShape(2, 4, P + 1, 23, 20, 2, 3), pool, device)


SHAPES = [  # C, H, W, M, R, S
    (4, 50, 44, 16, 7, 7),  # several bands of several tiles
    (3, 13, 22, 1, 1, 1),
    (4, 20, 37, 5, 2, 5),
    (4, 24, 40, 16, 6, 6),
    (3, 21, 30, 20, 7, 4),
    (4, 26, 17, 33, 4, 7),
    (3, 23, 45, 17, 5, 3),
    (4, 19, 31, 16, 15, 3),  # as many rows as the registers allow
    (3, 10, 60, 6, 1, 29),  # as many columns as they allow
]


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: tuple, device: Device) -> None:
    """The shapes are divided as the variants divide them."""
    name, pool = KINDS[SHAPES.index(shape) % len(KINDS)]
    assert_right(find(name), ConvShape(2, *shape), pool, device)


@pytest.mark.parametrize("kind", [(CUSTOM, 0), (SPLIT, 0), (FUSED, 4)])
def test_buffers(kind: tuple[str, int], device: Device, rng: np.random.Generator) -> None:
    """Each output is the same sum in the same order, however the work is divided, copied and buffered."""
    name, pool = kind
    s = ConvShape(3, 4, 41, 40, 7, 5, 5)  # rows in units of 16 bytes
    x, w = random(rng, s)
    cuts = [(1, 1, 1, 4), (2, 2, 1, 8), (3, 0, 2, 12)]  # bands, inputs, outputs, warps
    variants = [cut_as(name, b, groups=3, inputs=i, outputs=o, warps=v, max_rows=4) for b, i, o, v in cuts]
    assert_right(variants[0], s, pool, device)
    y = compute(variants[0], x, w, pool, device)
    for variant in (*variants[1:], defined(variants[1], PTX_NO_BULK=1)):
        np.testing.assert_array_equal(compute(variant, x, w, pool, device), y)


@pytest.mark.parametrize(("C", "kind"), some_of((3, 4), KINDS, one_of=2))
def test_nothing_in_checked_mode(C: int, kind: tuple[str, int]) -> None:
    """Products at the edge alone and others, in all orders of threads."""
    name, pool = kind
    variant = find(name)
    with closing(CheckedEmulator()) as device:
        for W in (15, 31):
            s = ConvShape(2, C, 24, W, 18, 3, 4)
            for order in range(len(SCHEDULES)):
                device.set_schedule(order, seed=1)
                assert_right(variant, s, pool, device)


# ---- Values that are no numbers


@pytest.mark.parametrize(("name", "pool"), KINDS)
def test_nan_stays_in_its_image(name: str, pool: int, device: Device, rng: np.random.Generator) -> None:
    """Buffers are reused, but no NaN reaches another image, and the maximum does not hide it."""
    s = ConvShape(30, 4, 2 * TILES[name]["groups"] + 2, 23, 20, 2, 3)
    x, w = random(rng, s)
    variant = cut_as(name, 2, **TILES[name])
    right = compute(variant, x, w, pool, device)
    x[::2] = np.nan
    y = compute(variant, x, w, pool, device)
    assert np.isnan(y[::2]).all()
    np.testing.assert_array_equal(y[1::2], right[1::2])


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("defines", FORMS, ids=str)
def test_what_infinity_reaches(
    kind: tuple[str, int], defines: dict, device: Device, rng: np.random.Generator
) -> None:
    """Infinity affects all outputs that it is a term of, and some others whose pairs meet it with zeros of A.

    In fp32 it affects no others, because a band with an infinity is summed without tensor cores.
    """
    name, pool = kind
    pixels = [(0, 0), (2, 1), (5, 6), (6, 15), (3, 17), (4, 18), (1, 22), (8, 25)]
    s = replace(of_columns(23, pool), N=len(pixels))
    x, w = random(rng, s)
    variant = defined(cut_as(name, 2, groups=3), **defines)
    right = compute(variant, x, w, pool, device)
    p, q = np.ogrid[: s.P, : s.Q]
    must, may = np.zeros((2, s.N, 1, s.P, s.Q))
    for n, (h, v) in enumerate(pixels):
        x[n, 1, h, v] = np.nan if pool else np.inf  # ReLU turns -inf into 0
        must[n] = np.isin(h - p, np.arange(s.R)) & np.isin(v - q, np.arange(s.S))
        # from the first of the pixels that are computed together; single warps meet fewer, because S is 4
        down, along = h - p // 2 * 2, v - q // 2 * 2
        may[n] = np.isin(down, np.arange(s.R + 1)) & np.isin(along, np.arange(4 * ceil_div(s.S + 1, 4)))
    y = compute(variant, x, w, pool, device)
    must, may = (np.broadcast_to(pooled(v, pool) > 0, y.shape) for v in (must, may))
    assert not np.isfinite(y[must]).any()
    if variant.precision == "fp32":
        np.testing.assert_allclose(y[~must], right[~must], rtol=1e-3, atol=1e-5)
    else:
        np.testing.assert_array_equal(y[~may], right[~may])
