"""The tiles of gemm/v8_final, and the model of the time that chooses one."""

from dataclasses import dataclass
from functools import cache

from mini_dnn.ops.gemm import GemmShape
from mini_dnn.variant import ceil_div

TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
LINE = 64  # elements of 16 bits in a line of the cache
UNIT = 8  # elements of 16 bits that the copy engine moves at least

# One H100 or H200; a block a multiprocessor, as each takes nearly all shared memory. A cluster lies within a
# GPC, into which not every number of blocks fits.
AT_ONCE = {1: 132, 2: 66, 4: 30}
FMA_CLOCK = 2048  # products and sums a clock of a multiprocessor's tensor cores
BYTES_CLOCK = 55  # that a multiprocessor takes in from L2
START_CLOCKS = 4350  # launch, first loads, last stores: what a product of 64 k takes
STORE_CLOCK = 16  # elements of c that leave a multiprocessor in a clock
ROWS_CLOCKS = 725  # to write 64 columns where rows of c start anywhere: all warps at once
SPLIT_CLOCKS, SPLIT_CLOCK = 1000, 8  # to hand over sums and add them up; and for how many of them one more
SHARE_CLOCKS = 600  # until all blocks of a cluster are there
HAND_CLOCKS, LOADER_CLOCKS = 2500, 440  # what START_CLOCKS is by hand, and more for each warpgroup that loads
TURN_CLOCKS = 2600  # until 64 rows and 64 columns of a step have come through registers
HAND_PITCH = 1 << 24  # beyond that, places in a box do not fit an int
SMALL_CLOCKS = 3070  # what START_CLOCKS is for small tiles
SMALL_BYTES_CLOCK = 23  # that the threads of a multiprocessor load from L2
PART_BYTES_CLOCK = 1000  # of parts of k in memory, until they have been added
PACK_CLOCKS = 4000  # to copy odd operands to aligned lines: a launch of its own
PACK_BYTES_CLOCK = 1800  # of all multiprocessors, read and written
MHZ = 1755


@dataclass(frozen=True)
class Tile:
    """A tile of c, how many steps of k are on their way, and what a cluster shares.

    Parameters
    ----------
    rows, columns
        Of c in a block.
    stages
        Of the ring.
    share
        Blocks below each other that share columns of b.
    split
        Blocks of a cluster that share the k of a tile.
    parts
        Blocks that share it in memory: a second launch adds their sums.
    loaders
        Warpgroups that load operands by hand, wherever their lines start; 0: the copy engine does it.
    small
        Four warps copy and multiply with `mma.sync`, so that a tile may have fewer rows than `wgmma` has.
    """

    rows: int
    columns: int
    stages: int
    share: int = 1
    split: int = 1
    parts: int = 1
    loaders: int = 0
    small: bool = False

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.share * self.split

    @property
    def step_bytes(self) -> int:
        """Of a stage."""
        return (self.rows + self.columns) * TILE_K * 2

    def clusters(self, p: GemmShape) -> int:
        """Clusters that the problem gives work to."""
        return ceil_div(p.m, self.rows * self.share) * ceil_div(p.n, self.columns) * p.batch * self.parts

    def padded(self, p: GemmShape) -> tuple[int, int]:
        """Rows and columns of c in whole tiles."""
        rows = self.rows * self.share
        return ceil_div(p.m, rows) * rows, ceil_div(p.n, self.columns) * self.columns

    def takes(self, p: GemmShape) -> bool:
        """Whether the tile is made for the operands' lines, and each block that shares k gets a step."""
        lines = odd_lines(p)
        if (self.loaders and (not lines or max(p.pitches) >= HAND_PITCH)) or (self.small and lines):
            return False
        # clusters that split k take one tile each, and must be there at once to be of use
        if self.split > 1 and self.clusters(p) > AT_ONCE[self.cluster]:
            return False
        return ceil_div(p.k, TILE_K) >= self.split * self.parts

    def microseconds(self, p: GemmShape) -> float:
        """The model: rounds of tiles, each as long as its products or its loads, whichever take longer."""
        rounds = ceil_div(self.clusters(p), AT_ONCE[self.cluster])
        steps = ceil_div(ceil_div(p.k, TILE_K), self.split * self.parts)
        store = self.rows * self.columns / self.split / STORE_CLOCK
        if p.pitches[2] % UNIT and self.split == self.parts == 1:
            store = self.columns / 64 * ROWS_CLOCKS
        if self.small:
            clocks = SMALL_CLOCKS + rounds * steps * self.step_bytes / SMALL_BYTES_CLOCK
        elif self.loaders:
            turns = ceil_div(rounds * steps, self.loaders) * self.rows // 64
            clocks = HAND_CLOCKS + self.loaders * LOADER_CLOCKS + turns * TURN_CLOCKS + rounds * store
        else:
            products = self.rows * self.columns * TILE_K / FMA_CLOCK
            loads = (self.rows + self.columns / self.share) * TILE_K * 2 / BYTES_CLOCK
            clocks = START_CLOCKS + rounds * (steps * max(products, loads) + store) + pack_clocks(p)
        if self.split > 1:
            clocks += SPLIT_CLOCKS + self.rows * self.columns / SPLIT_CLOCK
        if self.parts > 1:
            rows, columns = self.padded(p)
            clocks += 4 * self.parts * rows * columns * p.batch / PART_BYTES_CLOCK
        return (clocks + (self.share > 1) * SHARE_CLOCKS) / MHZ


TILES = (
    Tile(128, 256, 4, share=2),
    Tile(128, 128, 6),
    Tile(64, 128, 8),
    Tile(64, 64, 8),
    Tile(64, 128, 6, split=2),
    Tile(64, 128, 8, parts=4),
    Tile(64, 64, 8, split=2),
    Tile(64, 64, 8, split=4),
    Tile(128, 128, 5, split=4),
    Tile(128, 128, 6, loaders=2),
    Tile(64, 64, 4, loaders=1),
    Tile(64, 64, 8, loaders=3),
    Tile(64, 64, 8, split=2, loaders=3),
    Tile(64, 64, 8, split=4, loaders=3),
    Tile(16, 16, 9, small=True),
    Tile(16, 32, 9, small=True),
)


@cache
def choose(p: GemmShape) -> Tile:
    """The tile that the model finds fastest; the first of several."""
    possible = [tile for tile in TILES if tile.takes(p)]
    return min(possible, key=lambda tile: tile.microseconds(p))


def is_vector(p: GemmShape) -> bool:
    """Whether an operand is a vector: then nothing of the other one is used twice."""
    return p.m == 1 or p.n == 1


def odd_lines(p: GemmShape) -> list[str]:
    """Operands whose lines do not start at multiples of 16 bytes."""
    return (
        [] if is_vector(p) else [name for name, pitch in zip("ab", p.pitches, strict=False) if pitch % UNIT]
    )


def pack_clocks(p: GemmShape) -> float:
    """The model: what it takes to copy odd operands."""
    found = odd_lines(p)
    moved = sum(4 * p.arrays[name].shape[1] * packed_pitch(p, name) * p.batch for name in found)
    return PACK_CLOCKS + moved / PACK_BYTES_CLOCK if found else 0


def packed_pitch(p: GemmShape, name: str) -> int:
    """Elements from line to line of a copy: each starts with a line of the cache, and L2 reads none twice."""
    return ceil_div(p.lengths["ab".index(name)], LINE) * LINE
