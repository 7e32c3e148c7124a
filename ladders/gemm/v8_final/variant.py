"""gemm/v8_final: clusters, split sums, small tiles, odd pitches and vectors, by a model of the time."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Launch, TensorMap, Variant, ceil_div

TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
LINE = 64  # elements of 16 bits in a cache line
UNIT = 8  # elements of 16 bits in 16 bytes, the smallest piece that the copy engine moves
STAGED_BYTES = 4096  # of a warp: two parts of 16 rows and 64 columns of c before they are stored
COPIERS = 256  # threads of a block that copies lines, or multiplies by a vector
COPIED = 4  # parts of eight elements that such a thread has in flight
DIRECT, BY_TENSOR, BY_ROWS = range(3)  # how c is stored

# One H100 or H200. There is one block per multiprocessor, because each takes nearly all shared memory. The
# blocks of a cluster are in one GPC, so clusters of four cannot use all multiprocessors.
AT_ONCE = {1: 132, 2: 66, 4: 30}  # resident clusters, by the number of their blocks
FMA_CLOCK = 2048  # multiply-adds per clock of a multiprocessor's tensor cores
BYTES_CLOCK = 55  # bytes per clock that a multiprocessor receives from L2
START_CLOCKS = 4350  # launch, first loads and last stores: the time of a product with k = 64
STORE_CLOCK = 16  # elements of c that a multiprocessor stores per clock
ROWS_CLOCKS = 725  # to store 64 columns if rows of c start anywhere; all warps store at once
SPLIT_CLOCKS, SPLIT_CLOCK = 1000, 8  # to exchange and add sums: once, and sums per additional clock
SHARE_CLOCKS = 600  # until all blocks of a cluster have started
HAND_CLOCKS, LOADER_CLOCKS = 2500, 440  # instead of START_CLOCKS if threads load, and for each such warpgroup
TURN_CLOCKS = 2600  # to load 64 rows and 64 columns of a step through registers
HAND_PITCH = 1 << 24  # from this pitch on, offsets in a box do not fit in an int
PACK_CLOCKS = 4000  # for the launch that copies odd operands to aligned lines
PACK_BYTES_CLOCK = 1800  # bytes per clock that it reads and writes, on all multiprocessors
MHZ = 1755  # the clock rate for which these numbers hold


@dataclass(frozen=True)
class Tile:
    """A tile of c, the number of stages of its ring, and what the blocks of a cluster share."""

    rows: int
    columns: int
    stages: int  # of the ring
    share: int = 1  # blocks below each other that share columns of b
    split: int = 1  # blocks that share the k of a tile
    loaders: int = 0  # warpgroups that load operands whose lines may start anywhere; 0: the copy engine loads

    @property
    def cluster(self) -> int:
        """The number of blocks of a cluster."""
        return self.share * self.split

    @property
    def step_bytes(self) -> int:
        """The number of bytes of a stage."""
        return (self.rows + self.columns) * TILE_K * 2

    def clusters(self, p: GemmShape) -> int:
        """The number of clusters that have work."""
        return ceil_div(p.m, self.rows * self.share) * ceil_div(p.n, self.columns) * p.batch

    def microseconds(self, p: GemmShape) -> float:
        """The model of the time: rounds of tiles, each as long as its products or its loads."""
        rounds = ceil_div(self.clusters(p), AT_ONCE[self.cluster])
        steps = ceil_div(ceil_div(p.k, TILE_K), self.split)
        store = self.rows * self.columns / self.split / STORE_CLOCK
        if p.pitches[2] % UNIT and self.split == 1:
            store = self.columns / 64 * ROWS_CLOCKS
        if self.loaders:
            turns = ceil_div(rounds * steps, self.loaders) * self.rows // 64
            clocks = HAND_CLOCKS + self.loaders * LOADER_CLOCKS + turns * TURN_CLOCKS + rounds * store
        else:
            products = self.rows * self.columns * TILE_K / FMA_CLOCK
            loads = (self.rows + self.columns / self.share) * TILE_K * 2 / BYTES_CLOCK
            clocks = START_CLOCKS + rounds * (steps * max(products, loads) + store) + pack_clocks(p)
        if self.split > 1:
            clocks += SPLIT_CLOCKS + self.rows * self.columns / SPLIT_CLOCK
        return (clocks + (self.share > 1) * SHARE_CLOCKS) / MHZ


TILES = (
    Tile(128, 256, 4, share=2),
    Tile(128, 128, 6),
    Tile(64, 128, 8),
    Tile(64, 64, 8),
    Tile(64, 128, 6, split=2),
    Tile(64, 64, 8, split=2),
    Tile(64, 64, 8, split=4),
    Tile(128, 128, 5, split=4),
    Tile(128, 128, 6, loaders=2),
    Tile(64, 64, 4, loaders=1),
    Tile(64, 64, 8, loaders=3),
    Tile(64, 64, 8, split=2, loaders=3),
    Tile(64, 64, 8, split=4, loaders=3),
)


@cache
def choose(p: GemmShape) -> Tile:
    """The tile that the model predicts to be fastest, or the first of several."""
    by_hand = bool(odd_lines(p)) and max(p.pitches) < HAND_PITCH
    possible = [t for t in TILES if by_hand or not t.loaders]
    possible = [t for t in possible if ceil_div(p.k, TILE_K) >= t.split and t.clusters(p) <= at_once(t)]
    return min(possible, key=lambda t: t.microseconds(p))


def at_once(tile: Tile) -> float:
    """The most clusters. Clusters that split k have one tile each, and all must be resident at once."""
    return AT_ONCE[tile.cluster] if tile.split > 1 else float("inf")


def is_vector(p: GemmShape) -> bool:
    """Whether an operand is a vector. Each element of the other one is then used only once."""
    return p.m == 1 or p.n == 1


def refuses(p: GemmShape) -> str:
    """The text of the limit: wgmma multiplies elements of 16 bits."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def odd_lines(p: GemmShape) -> list[str]:
    """Operands whose lines do not start at multiples of 16 bytes."""
    return (
        [] if is_vector(p) else [name for name, pitch in zip("ab", p.pitches, strict=False) if pitch % UNIT]
    )


def odd(p: GemmShape) -> list[str]:
    """Operands that are copied to aligned lines: the odd ones, unless threads load them."""
    found = odd_lines(p)
    return [] if found and choose(p).loaders else found


def pack_clocks(p: GemmShape) -> float:
    """The model of the time for copies of odd operands, in clocks."""
    found = odd_lines(p)
    moved = sum(4 * p.arrays[name].shape[1] * packed_pitch(p, name) * p.batch for name in found)
    return PACK_CLOCKS + moved / PACK_BYTES_CLOCK if found else 0


def packed_pitch(p: GemmShape, name: str) -> int:
    """The pitch of a copy. Lines start with a cache line, so no cache line belongs to two of them."""
    return ceil_div(p.lengths["ab".index(name)], LINE) * LINE


def scratch(p: GemmShape) -> dict[str, Array]:
    """Copies of the odd operands."""
    found = {}
    for name in odd(p):
        array = p.arrays[name]
        found[f"{name}_packed"] = Array((p.batch, array.shape[1], packed_pitch(p, name)), array.dtype)
    return found


def store(p: GemmShape) -> int:
    """How c is stored. Tensor copies need aligned lines of 16 bits, and cannot add c0."""
    if p.out == "fp32" or p.beta or is_vector(p) or choose(p).split > 1:
        return DIRECT
    return BY_TENSOR if p.pitches[2] % UNIT == 0 and not choose(p).loaders else BY_ROWS


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: the tile, types, layouts, and how c is stored."""
    tile = choose(p)
    a_turned, b_turned = (letter == "t" for letter in p.layout)
    return {
        **{"ROWS": tile.rows, "COLUMNS": tile.columns, "TILE_K": TILE_K, "STAGES": tile.stages},
        **{"SHARE": tile.share, "SPLIT": tile.split, "BAND": 16 // tile.share, "THREADS": threads(tile)},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "A_TURNED": a_turned, "B_TURNED": b_turned},
        **{"STORE": store(p), "BY_TENSOR": BY_TENSOR, "BY_ROWS": BY_ROWS, "LOADERS": tile.loaders},
        **{"COPIERS": COPIERS, "COPIED": COPIED},
        # the same for all problems that do not use them, so that fewer kernels are compiled
        "C_PAIRS": store(p) == DIRECT and p.pitches[2] % 2 == 0,
        "PARTS_OF_K": parts_of_k(p) if is_vector(p) else 1,
        "X_EIGHTS": is_vector(p) and matrix(p)[1] % UNIT == 0,
        "V_EIGHTS": is_vector(p) and vector_eights(p),
    }


def threads(tile: Tile) -> int:
    """Threads of a block: warpgroups that multiply, and a warp that copies or warpgroups that load."""
    return tile.rows // 64 * 128 + (tile.loaders * 128 or 32)


def operand(p: GemmShape, name: str) -> TensorMap:
    """The tensor map of an operand or of its copy: lines, in boxes of 64 by 64 elements."""
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
    if len(odd(p)) == 1:  # the other operand is not copied
        args += (*args[:2], 0, 0, 0, 0)
    return [Launch("repitch", (blocks,), (COPIERS,), args, early=True)] if blocks else []


def matrix(p: GemmShape) -> tuple[str, int]:
    """The operand that is the matrix if the other one is a vector, and its pitch."""
    return ("b", p.pitches[1]) if p.m == 1 else ("a", p.pitches[0])


def vector_step(p: GemmShape) -> int:
    """The distance between two terms of the vector, in elements."""
    number = 0 if p.m == 1 else 1  # a row of a, or a column of b
    beside = p.layout[number] == "nt"[number]
    return 1 if beside else p.pitches[number]


def vector_eights(p: GemmShape) -> bool:
    """Whether eight terms of the vector can be read at once, in each entry of the batch."""
    number = 0 if p.m == 1 else 1
    entry = p.arrays["ab"[number]].shape[1] * p.pitches[number]
    return vector_step(p) == 1 and (p.batch == 1 or entry % UNIT == 0)


def parts_of_k(p: GemmShape) -> int:
    """The number of blocks that share the k of a product with a vector. Each has 256 terms or more."""
    return next((parts for parts in (8, 4, 2) if p.k >= 256 * parts), 1)


def by_vector(p: GemmShape) -> Launch:
    """The launch for a product with a vector."""
    x, pitch = matrix(p)
    v = "a" if x == "b" else "b"
    lines = p.n if x == "b" else p.m
    lying = dict(zip("ab", p.layout, strict=True))
    v_step = vector_step(p)
    c_step = 1 if x == "b" else p.pitches[2]  # elements from one sum to the next
    entries = [p.arrays[name].shape[1] * p.pitches["abc".index(name)] for name in (x, v, "c")]
    c0 = "c0" if p.beta else "c"  # without beta any buffer will do: it is not read
    numbers = (*(np.int64(count) for count in entries), float(p.alpha), float(p.beta))
    args = (x, v, c0, "c", lines, p.k, pitch, v_step, c_step, *numbers)
    in_rows = (x == "a") == (lying[x] == "n")
    if in_rows:
        return Launch("sum_rows", (ceil_div(lines, COPIERS // 32), p.batch), (COPIERS,), args, early=True)
    parts = parts_of_k(p)
    grid = (ceil_div(lines, 64) * parts, p.batch)
    return Launch("sum_columns", grid, (COPIERS,), args, cluster=parts, early=True)


def plan(p: GemmShape) -> list[Launch]:
    """The copy of odd operands, then a cluster for each tile, or as many as are resident at once."""
    if is_vector(p):
        return [by_vector(p)]
    tile = choose(p)
    c0 = "c0" if p.beta else "c"  # without beta any buffer will do: it is not read
    factors = (p.batch, float(p.alpha), float(p.beta))
    if tile.loaders:
        kernel, args = "gemm_by_hand", ("a", "b", c0, "c", p.m, p.n, p.k, *p.pitches, *factors)
    else:
        a, b, c = operand(p, "a"), operand(p, "b"), operand(p, "a")
        if store(p) == BY_TENSOR:
            c = TensorMap("c", (1, 16, 64), (p.batch, p.m, p.n), (p.m * p.pitches[2], p.pitches[2]))
        kernel, args = "gemm", (a, b, c, c0, "c", p.m, p.n, p.k, p.pitches[2], *factors)
    tiles = tile.clusters(p)
    clusters = ceil_div(tiles, ceil_div(tiles, AT_ONCE[tile.cluster]))  # no more than rounds need
    staged = 0 if store(p) == DIRECT else tile.rows // 16 * STAGED_BYTES
    handed = (tile.split - 1) * tile.rows * tile.columns // tile.split * 4
    shared = tile.stages * tile.step_bytes + staged + handed
    launch = Launch(
        *(kernel, (clusters * tile.cluster,), (threads(tile),), args),
        **{"shared_bytes": shared, "cluster": tile.cluster, "early": True},
    )
    return [*pack(p), launch]


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
