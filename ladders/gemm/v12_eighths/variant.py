"""gemm/v12_eighths: draft."""

import os

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Call, Launch, Record, TensorMap, Variant, Wait, ceil_div

OTHERS = "gemm/v10_small"
TILE_K, LINE, UNIT, COPIERS, COPIED, STAGED_BYTES = 64, 64, 8, 256, 4, 4096
ROWS, COLUMNS, STAGES = 128, 256, 4
SHARE = 2
THREADS = 288
DIRECT, BY_TENSOR, BY_ROWS = range(3)
CHUNKS = int(os.environ.get("ODD_CHUNKS", "1"))
STREAM = int(os.environ.get("ODD_STREAM", "0"))
FORCE = int(os.environ.get("ODD_FORCE", "0"))


def mine(p):
    if p.dtype == "fp32" or p.layout != "nn" or p.batch > 1 or p.lda or p.k % UNIT == 0 or p.m < 8:
        return False
    return FORCE or min(p.m, p.n, p.k) > 2000


def store(p):
    if p.out == "fp32" or p.beta:
        return DIRECT
    return BY_TENSOR if p.pitches[2] % UNIT == 0 and p.m % 8 == 0 else BY_ROWS


def refuses(p):
    return "16 bits" if p.dtype == "fp32" else ""


def packed_pitch(p):
    return ceil_div(p.n, LINE) * LINE


def scratch(p):
    if mine(p) and p.pitches[1] % UNIT:
        return {"b_packed": Array((p.k, packed_pitch(p)), p.arrays["b"].dtype)}
    return {}


def defines(p):
    return {
        **{"ROWS": ROWS, "COLUMNS": COLUMNS, "TILE_K": TILE_K, "STAGES": STAGES},
        **{"SHARE": SHARE, "BAND": 16 // SHARE, "THREADS": THREADS},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out]},
        **{"STORE": store(p), "BY_TENSOR": BY_TENSOR, "BY_ROWS": BY_ROWS},
        **{"COPIERS": COPIERS, "COPIED": COPIED, "C_PAIRS": store(p) == DIRECT and p.pitches[2] % 2 == 0},
    }


def plan(p):
    if not mine(p):
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    pitch, (more, left) = p.k, (ceil_div(p.m, 8), p.m % 8 or 8)
    a_more = TensorMap("a", (64, 64), (more, left * pitch), (8 * pitch,))
    a_less = TensorMap("a", (64, 64), (p.m // 8, 8 * pitch), (8 * pitch,))
    odd = bool(p.pitches[1] % UNIT)
    b_pitch = packed_pitch(p) if odd else p.pitches[1]
    b = TensorMap("b_packed" if odd else "b", (1, 64, 64), (1, p.k, p.n), (p.k * b_pitch, b_pitch))
    c = a_less
    if store(p) == BY_TENSOR:
        c = TensorMap("c", (1, 16, 64), (8, p.m // 8, p.n), (p.pitches[2], 8 * p.pitches[2]))
    of_n = ceil_div(p.n, COLUMNS)
    edges = [min(p.n, of_n * i // CHUNKS * COLUMNS) for i in range(CHUNKS)] + [p.n]
    steps, c0 = [], "c0" if p.beta else "c"
    for i, (start, end) in enumerate(zip(edges[:-1], edges[1:], strict=True)):
        if odd:
            blocks = ceil_div(p.k * ceil_div(end - start, UNIT), COPIERS * COPIED)
            args = ("b", "b_packed", p.k, start, end, p.pitches[1], b_pitch)
            stream = STREAM if i else 0
            if STREAM and i == 1:
                steps += [Record("first", 0), Wait("first", STREAM)]
            copy = [Launch("copy_columns", (blocks,), (COPIERS,), args, stream=stream, early=True)]
            if STREAM and i:
                copy += [Record(f"chunk{i}", STREAM)]
                steps[-1:] = [steps[-1], *copy]  # after the product before it
                steps += [Wait(f"chunk{i}", 0)]
            else:
                steps += copy
        tiles = 8 * ceil_div(ceil_div(p.m, 8), SHARE * ROWS) * ceil_div(end - start, COLUMNS)
        clusters = ceil_div(tiles, ceil_div(tiles, {1: 132, 2: 66}[SHARE]))
        args = (a_more, a_less, b, c, c0, "c", p.m, p.n, p.k, p.pitches[2], start, end, float(p.alpha), float(p.beta))
        staged = 0 if store(p) == DIRECT else ROWS // 16 * STAGED_BYTES
        shared = STAGES * (ROWS + COLUMNS) * TILE_K * 2 + staged
        steps.append(
            Launch("gemm_eighths", (clusters * SHARE,), (THREADS,), args, shared_bytes=shared, cluster=SHARE, early=True)
        )
    return steps


VARIANT = Variant(
    op="gemm", plan=plan, scratch=scratch, defines=defines, refuses=refuses, parent="gemm/v8_final",
    precision="fp16", min_arch=90, idea="draft",
)
