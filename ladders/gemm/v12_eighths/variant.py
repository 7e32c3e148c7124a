"""gemm/v12_eighths: rows of a that start anywhere are read in place, every eighth one together."""

from dataclasses import dataclass, replace
from functools import cache

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "gemm/v10_small"  # takes what eighths do not make faster
EIGHT = 8  # rows of a from one to the next of an eighth; elements of 16 bits in 16 bytes
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
LINE = 64  # elements of 16 bits in a line of the cache
STAGED_BYTES = 2048  # of a warp: 16 rows of 64 columns of c on their way out
COPIERS = 256  # threads of a block that copies lines
COPIED = 4  # parts of eight elements that a thread of those has on their way
LARGEST = 1 << 27  # pitch: places in eight rows are ints
FEW_ROWS, SHORT = 512, 128  # rows, and terms of a sum, below which others have kernels for these

# One H100 or H200, as in gemm/v8_final.
AT_ONCE = {1: 132, 2: 66, 4: 30}  # clusters of so many blocks
FMA_CLOCK = 2048  # products and sums a clock of a multiprocessor's tensor cores
BYTES_CLOCK = 55  # that a multiprocessor takes in from L2
START_CLOCKS = 4350  # launch, first loads, last stores: what a product of 64 k takes
STORE_CLOCK = 16  # elements of c that leave a multiprocessor in a clock
ROWS_CLOCKS = 725  # to write 64 columns where rows of c start anywhere
SPLIT_CLOCKS, SPLIT_CLOCK = 1000, 8  # to hand over sums and add them up; and for how many of them one more
SHARE_CLOCKS = 600  # until all blocks of a cluster are there
HAND_CLOCKS, LOADER_CLOCKS, TURN_CLOCKS = 2500, 440, 2600  # of warpgroups that load by hand
PACK_CLOCKS, PACK_BYTES_CLOCK = 4000, 1800  # to copy odd operands to aligned lines


@dataclass(frozen=True)
class Tile:
    """A tile of c, and what blocks share."""

    rows: int  # of c in a block
    columns: int
    stages: int = 0  # of the ring
    share: int = 1  # blocks of a cluster that share columns of b
    split: int = 1  # those that share the k of a tile
    loaders: int = 0  # warpgroups that load by hand
    high: int = 0  # rows of an eighth that follow each other; 0: it is a tile of gemm/v8_final

    def clusters(self, p: GemmShape) -> int:
        """Clusters that the problem gives work to."""
        high = self.rows * self.share
        rows = EIGHT * ceil_div(ceil_div(p.m, EIGHT), self.high) * self.high if self.high else p.m
        return ceil_div(rows, high) * ceil_div(p.n, self.columns)

    def takes(self, p: GemmShape) -> bool:
        """Whether each block gets a step; clusters that split k start at once."""
        at_once = self.split == 1 or self.clusters(p) <= AT_ONCE[self.split]
        return at_once and ceil_div(p.k, TILE_K) >= self.split

    def clocks(self, p: GemmShape) -> float:
        """The model: rounds of tiles, each as long as its products or its loads, whichever take longer."""
        area, steps = self.rows * self.columns, ceil_div(ceil_div(p.k, TILE_K), self.split)
        rounds = ceil_div(self.clusters(p), AT_ONCE[self.share * self.split])
        by_rows = p.pitches[2] % EIGHT and self.split == 1
        store = self.columns / 64 * ROWS_CLOCKS if by_rows else area / self.split / STORE_CLOCK
        if self.loaders:
            turns = ceil_div(rounds * steps, self.loaders) * self.rows // 64
            clocks = HAND_CLOCKS + self.loaders * LOADER_CLOCKS + turns * TURN_CLOCKS + rounds * store
        else:
            products = area * TILE_K / FMA_CLOCK
            loads = (self.rows + self.columns / self.share) * TILE_K * 2 / BYTES_CLOCK
            # TODO
            clocks = START_CLOCKS + rounds * (steps * max(products, loads) + store)
            clocks += pack_clocks(p, "b" if self.high else "ab")
        if self.split > 1:
            clocks += SPLIT_CLOCKS + area / SPLIT_CLOCK
        return clocks + (self.share > 1) * SHARE_CLOCKS


OWN = (
    Tile(128, 256, 4, share=2, high=256),
    Tile(128, 256, 4, share=2, high=64),
)
OF_OTHERS = (
    Tile(128, 256, share=2),
    *(Tile(rows, columns) for rows, columns in ((128, 128), (64, 128), (64, 64))),
    *(Tile(64, columns, split=2) for columns in (64, 128)),
    *(Tile(side, side, split=4) for side in (64, 128)),
    *(Tile(side, side, loaders=loaders) for side, loaders in ((128, 2), (64, 1))),
    *(Tile(64, 64, split=split, loaders=3) for split in (1, 2, 4)),
)


def pack_clocks(p: GemmShape, names: str) -> float:
    """The model: what it takes to copy those of the operands whose lines start anywhere."""
    moved = 0
    for name in names:
        number, lines = "ab".index(name), p.arrays[name].shape[1]
        if p.pitches[number] % EIGHT:
            moved += 4 * lines * ceil_div(p.lengths[number], LINE) * LINE
    return PACK_CLOCKS + moved / PACK_BYTES_CLOCK if moved else 0


def possible(p: GemmShape) -> bool:
    """Whether a can be read by eighths: rows without gaps, because what lies beside a row is multiplied by 0."""
    lying = p.layout == "nn" and p.batch == 1 and p.pitches[0] == p.k and p.k % EIGHT > 0
    return lying and p.dtype != "fp32" and p.m >= EIGHT and max(p.pitches) < LARGEST


@cache
def choose(p: GemmShape) -> Tile | None:
    """The tile that the model finds fastest, if it is one of `OWN`."""
    if not possible(p) or p.m < FEW_ROWS or p.k < SHORT:
        return None
    tile = min((t for t in (*OF_OTHERS, *OWN) if t.takes(p)), key=lambda t: t.clocks(p))
    return tile if tile.high else None


def by_pieces(p: GemmShape) -> bool:
    """Whether c goes out through shared memory: as 16 bits to which nothing is added."""
    return p.out != "fp32" and not p.beta


def refuses(p: GemmShape) -> str:
    """What wgmma multiplies."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def b_pitch(p: GemmShape) -> int:
    """Elements from line to line of b, or of its copy: each of those starts with a line of the cache."""
    return ceil_div(p.n, LINE) * LINE if p.pitches[1] % EIGHT else p.pitches[1]


def scratch(p: GemmShape) -> dict[str, Array]:
    """The copy of b if its lines start anywhere."""
    if choose(p) is None or p.pitches[1] % EIGHT == 0:
        return {}
    return {"b_packed": Array((p.k, b_pitch(p)), p.arrays["b"].dtype)}


def defines(p: GemmShape) -> dict[str, int]:
    """The tile and the types, which the compiler has to know, and how c is written."""
    tile = choose(p) or OWN[0]
    return {
        **{"ROWS": tile.rows, "COLUMNS": tile.columns, "TILE_K": TILE_K, "STAGES": tile.stages},
        **{"SHARE": tile.share, "BAND": 16 // tile.share, "THREADS": threads(tile)},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out]},
        **{"HIGH": tile.high, "BY_PIECES": by_pieces(p), "BUFFERS": buffers(tile), "C_PAIRS": not by_pieces(p) and p.pitches[2] % 2 == 0},
        **{"COPIERS": COPIERS, "COPIED": COPIED},
    }


def buffers(tile: Tile) -> int:
    """Parts of c of a warp that are on their way out: what there is room for."""
    return 1 if tile.columns == 256 and window(tile) > TILE_K else 2


def window(tile: Tile) -> int:
    """Of k in a stage of b: more if eighths of a start at different places."""
    return TILE_K + (EIGHT if tile.high < tile.rows * tile.share else 0)


def threads(tile: Tile) -> int:
    """Of a block: warpgroups that multiply, and a warp that copies."""
    return tile.rows // 64 * 128 + 32


def eighths(buffer: str, p: GemmShape, pitch: int, box: tuple[int, int]) -> tuple[TensorMap, TensorMap]:
    """How tensor copies see rows: eight of them as one, which is aligned. The last ones may be fewer than eight."""
    more = TensorMap(buffer, box, (ceil_div(p.m, EIGHT), (p.m % EIGHT or EIGHT) * pitch), (EIGHT * pitch,))
    return more, replace(more, shape=(p.m // EIGHT, EIGHT * pitch))


def maps(p: GemmShape, tile: Tile) -> tuple[TensorMap, ...]:
    """How tensor copies see a, b and c."""
    b = TensorMap("b_packed" if scratch(p) else "b", (window(tile), 64), (p.k, p.n), (b_pitch(p),))
    a = eighths("a", p, p.k, (64, 64))
    return *a, b, *(eighths("c", p, p.pitches[2], (16, 64)) if by_pieces(p) else a)


def pack(p: GemmShape) -> list[Launch]:
    """The launch that copies b, if it has to be: of a second operand nothing."""
    if not scratch(p):
        return []
    blocks = ceil_div(p.k * ceil_div(p.n, EIGHT), COPIERS * COPIED)
    args = ("b", "b_packed", p.k, p.n, p.pitches[1], b_pitch(p), "b", "b_packed", 0, 0, 0, 0)
    return [Launch("repitch", (blocks,), (COPIERS,), args, early=True)]


def plan(p: GemmShape) -> list[Launch | Call]:
    """Clusters for the tiles of eighths, or a call."""
    tile = choose(p)
    if tile is None:
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    c0 = "c0" if p.beta else "c"  # what is not read
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
    idea="rows that start anywhere without a copy: every eighth one starts at the same place",
)
