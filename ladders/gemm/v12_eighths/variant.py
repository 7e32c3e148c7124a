"""gemm/v12_eighths: rows of a that start anywhere are read in place, every eighth row in the same tile."""

from dataclasses import dataclass, replace
from functools import cache

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "gemm/v11_ahead"  # computes what the kernel here does not make faster
EIGHT = 8  # the distance between rows of an eighth; elements of 16 bits in 16 bytes
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
LINE = 64  # elements of 16 bits in a cache line
STAGED_BYTES = 2048  # of a warp: 16 rows of 64 columns of c before they are stored
COPIERS = 256  # threads of a block that copies lines
COPIED = 4  # parts of eight elements that such a thread has in flight
LARGEST = 1 << 27  # pitches are below this, because offsets in eight rows are ints
LEAST = (512, 256, 128)  # least rows, columns and terms; other rungs have kernels for smaller products

AT_ONCE = {1: 132, 2: 66}  # resident clusters on an H100 or H200, by the number of their blocks
PACK_CLOCKS, PACK_BYTES_CLOCK = 4000, 1800  # for copies of odd operands: once, and bytes per clock
MARGIN = 1.03  # by which eighths must be faster, as the model is not exact


@dataclass(frozen=True)
class Clocks:
    """The model of a tile, fitted to the times of 138 of 200 random products on an H200."""

    start: int  # launch, first loads, last stores
    round: int  # stores, and first loads
    step: int  # of 64 k in a round
    each: float  # of 64 k for each cluster, because all of them share L2 and power
    pack: float  # the fraction of the time for copies of odd operands


@dataclass(frozen=True)
class Tile:
    """A tile of c in a block, and what the blocks of a cluster share."""

    rows: int
    columns: int
    clocks: Clocks
    share: int = 1  # blocks of a cluster that share columns of b
    stages: int = 0  # of the ring
    high: int = 0  # rows of an eighth that follow each other, or 0 for a tile of gemm/v8_final

    def clusters(self, p: GemmShape) -> int:
        """The number of clusters that have work."""
        rows = EIGHT * ceil_div(ceil_div(p.m, EIGHT), self.high) * self.high if self.high else p.m
        return ceil_div(rows, self.rows * self.share) * ceil_div(p.n, self.columns)

    def estimate(self, p: GemmShape) -> float:
        """The model of the time: clocks for copies, and for rounds of tiles."""
        clocks, clusters, steps = self.clocks, self.clusters(p), ceil_div(p.k, TILE_K)
        rounds = ceil_div(clusters, AT_ONCE[self.share])
        work = steps * (rounds * clocks.step + clusters * clocks.each) + rounds * clocks.round
        return clocks.start + clocks.pack * pack_clocks(p, "b" if self.high else "ab") + work


OWN = (
    Tile(128, 256, Clocks(4500, 5200, 840, 4.1, 0.87), share=2, stages=4, high=256),
    Tile(128, 256, Clocks(4100, 6600, 880, 3.6, 0.84), share=2, stages=4, high=64),
)
OF_OTHERS = (
    Tile(128, 256, Clocks(3100, 6300, 770, 5.3, 0.77), share=2),
    Tile(128, 128, Clocks(7050, 1590, 235, 3.8, 0.5)),
    Tile(64, 128, Clocks(4400, 1500, 450, 0, 0.8)),
    Tile(64, 64, Clocks(4400, 700, 300, 0, 0.8)),
)


def pack_clocks(p: GemmShape, names: str) -> float:
    """The model of the time for copies of the named operands, if their lines start anywhere."""
    moved = 0
    for name in names:
        number, lines = "ab".index(name), p.arrays[name].shape[1]
        if p.pitches[number] % EIGHT:
            moved += 4 * lines * ceil_div(p.lengths[number], LINE) * LINE
    return PACK_CLOCKS + moved / PACK_BYTES_CLOCK if moved else 0


def possible(p: GemmShape) -> bool:
    """Whether a can be read by eighths. Its rows have no gaps, because a gap would be multiplied by 0."""
    lying = p.layout == "nn" and p.batch == 1 and p.pitches[0] == p.k and p.k % EIGHT > 0
    return lying and p.dtype != "fp32" and p.m >= EIGHT and max(p.pitches) < LARGEST


@cache
def choose(p: GemmShape) -> Tile | None:
    """The fastest tile of `OWN` by the model, or None if another rung is about as fast."""
    enough = all(size >= least for size, least in zip((p.m, p.n, p.k), LEAST, strict=True))
    if not enough or not possible(p):
        return None
    tile = min(OWN, key=lambda t: t.estimate(p))
    return tile if tile.estimate(p) * MARGIN < min(t.estimate(p) for t in OF_OTHERS) else None


def by_pieces(p: GemmShape) -> bool:
    """Whether c is stored through shared memory: it has 16 bits, and c0 is not added."""
    return p.out != "fp32" and not p.beta


def refuses(p: GemmShape) -> str:
    """The text of the limit: wgmma multiplies elements of 16 bits."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def b_pitch(p: GemmShape) -> int:
    """The pitch of b, or of its copy, whose lines start with a cache line."""
    return ceil_div(p.n, LINE) * LINE if p.pitches[1] % EIGHT else p.pitches[1]


def scratch(p: GemmShape) -> dict[str, Array]:
    """The copy of b if its lines start anywhere."""
    if choose(p) is None or p.pitches[1] % EIGHT == 0:
        return {}
    return {"b_packed": Array((p.k, b_pitch(p)), p.arrays["b"].dtype)}


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: the tile, types, and how c is stored."""
    tile = choose(p) or OWN[0]
    return {
        **{"ROWS": tile.rows, "COLUMNS": tile.columns, "TILE_K": TILE_K, "STAGES": tile.stages},
        **{"SHARE": tile.share, "BAND": 16 // tile.share, "THREADS": threads(tile)},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out]},
        **{
            "HIGH": tile.high,
            "BY_PIECES": by_pieces(p),
            "BUFFERS": buffers(tile),
            "C_PAIRS": not by_pieces(p) and p.pitches[2] % 2 == 0,
        },
        **{"COPIERS": COPIERS, "COPIED": COPIED},
    }


def buffers(tile: Tile) -> int:
    """The number of buffers of a warp for parts of c: as many as fit."""
    return 1 if tile.columns == 256 and window(tile) > TILE_K else 2


def window(tile: Tile) -> int:
    """The terms of a stage of b: more if the eighths of a tile start at different places."""
    return TILE_K + (EIGHT if tile.high < tile.rows * tile.share else 0)


def threads(tile: Tile) -> int:
    """Threads of a block: warpgroups that multiply, and a warp that copies."""
    return tile.rows // 64 * 128 + 32


def eighths(buffer: str, p: GemmShape, pitch: int, box: tuple[int, int]) -> tuple[TensorMap, TensorMap]:
    """Tensor maps with eight rows as one aligned row. The last one may have fewer, or is left out."""
    more = TensorMap(buffer, box, (ceil_div(p.m, EIGHT), (p.m % EIGHT or EIGHT) * pitch), (EIGHT * pitch,))
    return more, replace(more, shape=(p.m // EIGHT, EIGHT * pitch))


def maps(p: GemmShape, tile: Tile) -> tuple[TensorMap, ...]:
    """The tensor maps of a, b and c."""
    b = TensorMap("b_packed" if scratch(p) else "b", (window(tile), 64), (p.k, p.n), (b_pitch(p),))
    a = eighths("a", p, p.k, (64, 64))
    return *a, b, *(eighths("c", p, p.pitches[2], (16, 64)) if by_pieces(p) else a)


def pack(p: GemmShape) -> list[Launch]:
    """The launch that copies b if its lines start anywhere. There is no second operand."""
    if not scratch(p):
        return []
    blocks = ceil_div(p.k * ceil_div(p.n, EIGHT), COPIERS * COPIED)
    args = ("b", "b_packed", p.k, p.n, p.pitches[1], b_pitch(p), "b", "b_packed", 0, 0, 0, 0)
    return [Launch("repitch", (blocks,), (COPIERS,), args, early=True)]


def plan(p: GemmShape) -> list[Launch | Call]:
    """The copy of b if it is needed, and clusters for the tiles; or a call of another rung."""
    tile = choose(p)
    if tile is None:
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    c0 = "c0" if p.beta else "c"  # without beta any buffer will do: it is not read
    args = (*maps(p, tile), c0, "c", p.m, p.n, p.k, p.pitches[2], float(p.alpha), float(p.beta))
    tiles = tile.clusters(p)
    clusters = ceil_div(tiles, ceil_div(tiles, AT_ONCE[tile.share]))  # no more than rounds need
    staged = tile.rows // 16 * buffers(tile) * STAGED_BYTES if by_pieces(p) else 0
    shared = tile.stages * (tile.rows * TILE_K + tile.columns * window(tile)) * 2 + staged
    launch = Launch(
        *("gemm_eighths", (clusters * tile.share,), (threads(tile),), args),
        **{"shared_bytes": shared, "cluster": tile.share, "early": True},
    )
    return [*pack(p), launch]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    scratch=scratch,
    defines=defines,
    refuses=refuses,
    parent="gemm/v8_final",
    precision="fp16",
    min_arch=90,
    idea="rows that are not aligned are read without a copy: every eighth row has the same offset",
)
