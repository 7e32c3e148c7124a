"""gemm/v7_specialised: a producer, two consumers, and blocks that process tile after tile."""

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Launch, TensorMap, Variant, ceil_div

ROWS, COLUMNS = 128, 256  # of c in a block
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
STAGES = 4
BAND = 16  # rows of tiles in a band; tiles are computed band after band
MULTIPROCESSORS = 132  # of an H100 or H200; a block each, because each takes nearly all shared memory
THREADS = ROWS // 64 * 128 + 32
UNIT = 8  # elements of 16 bits in 16 bytes, the smallest piece that the copy engine moves
STAGED_BYTES = 4096  # of a warp: two parts of 16 rows and 64 columns of c before they are stored


def refuses(p: GemmShape) -> str:
    """The text of the limits: wgmma multiplies 16 bits, and tensor copies need aligned lines."""
    if p.dtype == "fp32":
        return "it multiplies 16 bits, and dtype is fp32; gemm/v3 takes all types"
    for name, pitch in zip("ab", p.pitches, strict=False):
        if pitch % UNIT:
            return f"lines of {name} are {pitch} elements apart, and tensor copies need a multiple of {UNIT}"
    return ""


def by_tensor(p: GemmShape) -> bool:
    """Whether tensor copies store c. They cannot add c0, and they need aligned lines of 16 bits."""
    return p.out != "fp32" and p.beta == 0 and p.pitches[2] % UNIT == 0


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: tiles, types, layouts, and how c is stored."""
    a_turned, b_turned = (letter == "t" for letter in p.layout)
    return {
        **{"ROWS": ROWS, "COLUMNS": COLUMNS, "TILE_K": TILE_K, "STAGES": STAGES, "BAND": BAND},
        **{"THREADS": THREADS, "IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out]},
        **{"A_TURNED": a_turned, "B_TURNED": b_turned},
        **{"BY_TENSOR": by_tensor(p), "C_PAIRS": p.pitches[2] % 2 == 0},
    }


def tensor_map(p: GemmShape, name: str, box: tuple[int, int] = (64, 64)) -> TensorMap:
    """The tensor map of a, b or c: a batch of lines."""
    number = "abc".index(name)
    lines, pitch = p.arrays[name].shape[1], p.pitches[number]
    return TensorMap(name, (1, *box), (p.batch, lines, p.lengths[number]), (lines * pitch, pitch))


def plan(p: GemmShape) -> list[Launch]:
    """One launch with a block for each multiprocessor, or for each tile if there are fewer."""
    tiles = ceil_div(p.m, ROWS) * ceil_div(p.n, COLUMNS) * p.batch
    a, b = tensor_map(p, "a"), tensor_map(p, "b")
    c = tensor_map(p, "c", (16, 64)) if by_tensor(p) else a  # otherwise it is not used
    c0 = "c0" if p.beta else "c"  # without beta any buffer will do: it is not read
    args = (a, b, c, c0, "c", p.m, p.n, p.k, p.pitches[2], p.batch, float(p.alpha), float(p.beta))
    staged = ROWS // 16 * STAGED_BYTES if by_tensor(p) else 0
    shared = STAGES * (ROWS + COLUMNS) * TILE_K * 2 + staged
    return [Launch("gemm", (min(tiles, MULTIPROCESSORS),), (THREADS,), args, shared_bytes=shared)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v6_wgmma",
    precision="fp16",
    min_arch=90,
    idea="one warp copies, two warpgroups multiply, blocks are persistent: no barrier for the whole block",
)
