"""gemm/w1_rounds: experiment."""
import os
from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Launch, TensorMap, Variant, ceil_div
TILE_K = 64
SHARED = 231000
FORCE = None  # rows, columns, share

def parts(rows, columns, least=4):
    """stages, pieces, buffers"""
    best = None
    step = (rows + columns) * 128
    for pieces, buffers in ((1, 1), (2, 2), (2, 1), (4, 2), (4, 1)):
        if rows % (16 * pieces): continue
        c = rows // pieces * buffers * columns // pairs(columns) * 2
        stages = min(8, (SHARED - c) // step)
        # three stages and all of c first; then four with half
        score = (min(stages, least), buffers / pieces)
        if best is None or score > best[0]: best = (score, stages, pieces, buffers)
    return best[1:]

def pairs(columns):
    return 2 if columns == 256 else 1

def threads(columns):
    return 384 if columns == 256 else columns * 2 + 64

def choose(p):
    return FORCE or (192, 192, (1, 1), 0, 4)

def defines(p):
    rows, columns, (share_b, share_a), eighths, least = choose(p)
    share = share_a * share_b
    stages, pieces, buffers = parts(rows, columns, least)
    return {"ROWS": rows, "COLUMNS": columns, "TILE_K": TILE_K, "STAGES": stages, "SHARE_A": share_a, "SHARE_B": share_b, "HALVES": eighths, "BAND": max(1, 16 // share_b),
            "PIECE": rows // pieces, "BUFFERS": buffers, "ROUNDS": 1, "PAIRS": pairs(columns), "AHEAD": 0, "BLOCKS": 1, "SPLIT": 1, "WIDE": 0, "WHOLE": 0, "THREADS": threads(columns),
            "IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "B_TURNED": p.layout[1] == "t"}

def plan(p):
    rows, columns, (share_b, share_a), eighths, least = choose(p)
    share = share_a * share_b
    stages, pieces, buffers = parts(rows, columns, least)
    boxes = {"a": (1, rows // share_a, 64), "b": (1, 64 // share_b, 64), "c": (1, rows // pieces, 64)}
    maps = []
    for (name, box), pitch, length in zip(boxes.items(), p.pitches, p.lengths, strict=True):
        lines = p.arrays[name].shape[1]
        if eighths and name != "b":
            maps.append(TensorMap(name, box, (2, lines // 2, length), (pitch, 2 * pitch)))
        else:
            maps.append(TensorMap(name, box, (p.batch, lines, length), (lines * pitch, pitch)))
    m, batch = (p.m // 2, 2) if eighths else (p.m, p.batch)
    tiles = ceil_div(m, rows * share_b) * ceil_div(p.n, columns * share_a) * batch
    room = {1: 132, 2: 66, 4: 30, 8: 15}[share]
    clusters = ceil_div(tiles, ceil_div(tiles, room))
    shared = stages * (rows + columns) * 128 + rows // pieces * buffers * columns // pairs(columns) * 2
    return [Launch("gemm_rounds", (clusters * share,), (threads(columns),), (*maps, m, p.n, p.k, batch, float(p.alpha)), shared, cluster=share, early=True)]

VARIANT = Variant(op="gemm", plan=plan, defines=defines, parent="gemm/v10_small", precision="fp16", min_arch=90, idea="experiment")
