"""gemm/v6_wgmma: tensor copies load tiles, and products of a warpgroup read them from shared memory."""

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Launch, TensorMap, Variant, ceil_div

TILE = 128  # rows and columns of c in a block
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
STAGES = 3  # 96 KB: two blocks fit on a multiprocessor, and one multiplies while the other waits or stores
THREADS = 256
UNIT = 8  # elements of 16 bits in 16 bytes, the smallest piece that the copy engine moves


def refuses(p: GemmShape) -> str:
    """The text of the limits: wgmma multiplies 16 bits, and tensor copies need aligned lines."""
    if p.dtype == "fp32":
        return "it multiplies 16 bits, and dtype is fp32; gemm/v3 takes all types"
    for name, pitch in zip("ab", p.pitches, strict=False):
        if pitch % UNIT:
            return f"lines of {name} are {pitch} elements apart, and tensor copies need a multiple of {UNIT}"
    return ""


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: tiles, types, layouts, and whether elements of c are stored in pairs."""
    a_turned, b_turned = (letter == "t" for letter in p.layout)
    return {
        **{"TILE": TILE, "TILE_K": TILE_K, "STAGES": STAGES, "THREADS": THREADS},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "C_PAIRS": p.pitches[2] % 2 == 0},
        **{"A_TURNED": a_turned, "B_TURNED": b_turned},
    }


def operand(p: GemmShape, name: str) -> TensorMap:
    """The tensor map of an operand: a batch of lines, in boxes of 64 lines of 64 elements."""
    number = "ab".index(name)
    lines, pitch = p.arrays[name].shape[1], p.pitches[number]
    return TensorMap(name, (1, 64, 64), (p.batch, lines, p.lengths[number]), (lines * pitch, pitch))


def plan(p: GemmShape) -> list[Launch]:
    """One launch: a block for each tile of c, along the rows of tiles; the batch along y."""
    grid = (ceil_div(p.m, TILE) * ceil_div(p.n, TILE), p.batch)
    c0 = "c0" if p.beta else "c"  # without beta any buffer will do: it is not read
    maps = (operand(p, "a"), operand(p, "b"))
    args = (*maps, c0, "c", p.m, p.n, p.k, p.pitches[2], float(p.alpha), float(p.beta))
    return [Launch("gemm", grid, (THREADS,), args, shared_bytes=STAGES * 2 * TILE * TILE_K * 2)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v5_mma_async",
    precision="fp16",
    min_arch=90,
    idea="the copy engine loads whole tiles, and wgmma multiplies them directly from shared memory",
)
