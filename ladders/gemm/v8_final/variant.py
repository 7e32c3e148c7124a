"""gemm/v8_final: clusters, split sums, small tiles, odd pitches and vectors, by a model of the time."""

import numpy as np

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.plans.gemm_tiles import (
    AT_ONCE,
    TILE_K,
    UNIT,
    Tile,
    choose,
    is_vector,
    odd_lines,
    packed_pitch,
)
from mini_dnn.variant import Launch, TensorMap, Variant, ceil_div

STAGED_BYTES = 4096  # of a warp: two parts of 16 rows and 64 columns of c on their way out
COPIERS = 256  # threads of a block that copies lines, or multiplies by a vector
COPIED = 4  # units that a thread of those has on their way
SMALL_THREADS = 128  # of a block with a small tile
DIRECT, BY_TENSOR, BY_ROWS = range(3)  # how c goes out


def refuses(p: GemmShape) -> str:
    """What wgmma multiplies."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def odd(p: GemmShape) -> list[str]:
    """Operands that are copied, so that their lines start at multiples of 16 bytes."""
    found = odd_lines(p)
    return [] if found and choose(p).loaders else found


def scratch(p: GemmShape) -> dict[str, Array]:
    """Copies of the odd operands, and sums of parts of k."""
    found = {}
    for name in odd(p):
        array = p.arrays[name]
        found[f"{name}_packed"] = Array((p.batch, array.shape[1], packed_pitch(p, name)), array.dtype)
    if not is_vector(p) and (tile := choose(p)).parts > 1:
        found["partial"] = Array((p.batch, tile.parts, *tile.padded(p)), "float32")
    return found


def store(p: GemmShape) -> int:
    """How c goes out: tensor copies need aligned lines of 16 bits, and cannot add."""
    direct = p.out == "fp32" or p.beta or is_vector(p)
    if direct or choose(p).small or choose(p).split * choose(p).parts > 1:
        return DIRECT
    return BY_TENSOR if p.pitches[2] % UNIT == 0 and not choose(p).loaders else BY_ROWS


def defines(p: GemmShape) -> dict[str, int]:
    """The tile, types and layouts, which the compiler has to know, and how c is written."""
    tile = choose(p)
    a_turned, b_turned = (letter == "t" for letter in p.layout)
    return {
        **{"ROWS": tile.rows, "COLUMNS": tile.columns, "TILE_K": TILE_K, "STAGES": tile.stages},
        **{"SHARE": tile.share, "SPLIT": tile.split, "BAND": 16 // tile.share, "THREADS": threads(tile)},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "A_TURNED": a_turned, "B_TURNED": b_turned},
        **{"STORE": store(p), "BY_TENSOR": BY_TENSOR, "BY_ROWS": BY_ROWS, "LOADERS": tile.loaders},
        **{"PARTS": tile.parts, "SMALL": tile.small},
        **{"COPIERS": COPIERS, "COPIED": COPIED},
        # the same for all problems that do not look at them: fewer kernels to compile
        "C_PAIRS": store(p) == DIRECT and p.pitches[2] % 2 == 0,
        "PARTS_OF_K": parts_of_k(p) if is_vector(p) else 1,
        "X_EIGHTS": is_vector(p) and matrix(p)[1] % UNIT == 0,
        "V_EIGHTS": is_vector(p) and vector_eights(p),
    }


def threads(tile: Tile) -> int:
    """Of a block: warpgroups that multiply, and a warp that copies or warpgroups that load."""
    return SMALL_THREADS if tile.small else tile.rows // 64 * 128 + (tile.loaders * 128 or 32)


def operand(p: GemmShape, name: str) -> TensorMap:
    """How tensor copies see an operand, or its copy: lines in boxes of 64 by 64 elements."""
    number, lines = "ab".index(name), p.arrays[name].shape[1]
    packed = name in odd(p)
    pitch = packed_pitch(p, name) if packed else p.pitches[number]
    buffer = f"{name}_packed" if packed else name
    return TensorMap(buffer, (1, 64, 64), (p.batch, lines, p.lengths[number]), (lines * pitch, pitch))


def pack(p: GemmShape) -> list[Launch]:
    """The launch that copies odd operands, if there are any."""
    args: tuple[str | int, ...] = ()
    blocks = 0
    for name in odd(p):
        number, lines = "ab".index(name), p.arrays[name].shape[1] * p.batch
        pitch = packed_pitch(p, name)
        args += (name, f"{name}_packed", lines, p.lengths[number], p.pitches[number], pitch)
        blocks += ceil_div(lines * ceil_div(p.lengths[number], UNIT), COPIERS * COPIED)
    if len(odd(p)) == 1:  # of the other one nothing
        args += (*args[:2], 0, 0, 0, 0)
    return [Launch("repitch", (blocks,), (COPIERS,), args, early=True)] if blocks else []


def matrix(p: GemmShape) -> tuple[str, int]:
    """Which operand is the matrix where the other one is a vector, and its pitch."""
    return ("b", p.pitches[1]) if p.m == 1 else ("a", p.pitches[0])


def vector_step(p: GemmShape) -> int:
    """Elements from one term to the next in the operand that is a vector."""
    number = 0 if p.m == 1 else 1  # a row of a, or a column of b
    beside = p.layout[number] == "nt"[number]
    return 1 if beside else p.pitches[number]


def vector_eights(p: GemmShape) -> bool:
    """Whether eight terms of the vector can be read at once, in each entry of the batch."""
    number = 0 if p.m == 1 else 1
    entry = p.arrays["ab"[number]].shape[1] * p.pitches[number]
    return vector_step(p) == 1 and (p.batch == 1 or entry % UNIT == 0)


def parts_of_k(p: GemmShape) -> int:
    """Blocks of a cluster that share the k of a product with a vector: each has 256 terms or more."""
    return next((parts for parts in (8, 4, 2) if p.k >= 256 * parts), 1)


def by_vector(p: GemmShape) -> Launch:
    """The launch where an operand is a vector."""
    x, pitch = matrix(p)
    v = "a" if x == "b" else "b"
    lines = p.n if x == "b" else p.m
    lying = dict(zip("ab", p.layout, strict=True))
    v_step = vector_step(p)
    c_step = 1 if x == "b" else p.pitches[2]  # elements from one sum to the next
    entries = [p.arrays[name].shape[1] * p.pitches["abc".index(name)] for name in (x, v, "c")]
    c0 = "c0" if p.beta else "c"  # what is not read
    numbers = (*(np.int64(count) for count in entries), float(p.alpha), float(p.beta))
    args = (x, v, c0, "c", lines, p.k, pitch, v_step, c_step, *numbers)
    in_rows = (x == "a") == (lying[x] == "n")
    if in_rows:
        return Launch("sum_rows", (ceil_div(lines, COPIERS // 32), p.batch), (COPIERS,), args, early=True)
    parts = parts_of_k(p)
    grid = (ceil_div(lines, 64) * parts, p.batch)
    return Launch("sum_columns", grid, (COPIERS,), args, cluster=parts, early=True)


def plan(p: GemmShape) -> list[Launch]:
    """Odd operands are copied, then a cluster for each tile, or as many as there is room for."""
    if is_vector(p):
        return [by_vector(p)]
    tile = choose(p)
    c0 = "c0" if p.beta else "c"  # what is not read
    factors = (p.batch, float(p.alpha), float(p.beta))
    if tile.small:
        args = ("a", "b", c0, "c", p.m, p.n, p.k, *p.pitches, float(p.alpha), float(p.beta))
        sums = SMALL_THREADS // 32 * tile.rows * (tile.columns + UNIT) * 4
        shared = max(tile.stages * tile.step_bytes, sums)
        return [
            Launch("gemm_small", (tile.clusters(p),), (SMALL_THREADS,), args, shared_bytes=shared, early=True)
        ]
    if tile.loaders:
        kernel, args = "gemm_by_hand", ("a", "b", c0, "c", p.m, p.n, p.k, *p.pitches, *factors)
    else:
        a, b, c = operand(p, "a"), operand(p, "b"), operand(p, "a")
        if store(p) == BY_TENSOR:
            c = TensorMap("c", (1, 16, 64), (p.batch, p.m, p.n), (p.m * p.pitches[2], p.pitches[2]))
        kernel, args = "gemm", (a, b, c, c0, "c", p.m, p.n, p.k, p.pitches[2], *factors)
        args += ("partial" if tile.parts > 1 else "c",)  # what is not read
    tiles = tile.clusters(p)
    clusters = ceil_div(tiles, ceil_div(tiles, AT_ONCE[tile.cluster]))  # no more than rounds need
    staged = 0 if store(p) == DIRECT else tile.rows // 16 * STAGED_BYTES
    handed = (tile.split - 1) * tile.rows * tile.columns // tile.split * 4
    shared = tile.stages * tile.step_bytes + staged + handed
    launch = Launch(
        *(kernel, (clusters * tile.cluster,), (threads(tile),), args),
        **{"shared_bytes": shared, "cluster": tile.cluster, "early": True},
    )
    return [*pack(p), launch, *add(p, tile)]


def add(p: GemmShape, tile: Tile) -> list[Launch]:
    """The launch that adds parts of k, if there are any."""
    if tile.parts == 1:
        return []
    rows, columns = tile.padded(p)
    c0 = "c0" if p.beta else "c"  # what is not read
    sizes = (p.batch * p.m, p.m, p.n, rows * columns, columns, p.pitches[2])
    args = ("partial", c0, "c", *sizes, float(p.alpha), float(p.beta))
    grid = (ceil_div(p.batch * p.m * ceil_div(p.n, 4), COPIERS),)
    return [Launch("add_parts", grid, (COPIERS,), args, early=True)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    scratch=scratch,
    defines=defines,
    refuses=refuses,
    parent="gemm/v7_specialised",
    precision="fp16",
    min_arch=90,
    idea="the best tile, cluster, loads and stores for every shape, chosen by a model of the time",
)
