"""Copies of shipped kernels that compute the right result, each with one planted cause of slowness."""

from pathlib import Path

from mini_dnn.variant import find

SLOW = "// slow"  # marks the lines that the explanation has to find
DOWN_COLUMNS = (
    ("= pixel / Q, q = pixel % Q;", "= pixel % P, q = pixel / P;"),
    ("* W + q + s];", f"* W + q + s];  {SLOW}"),
    ("+ pixel] = acc;", f"+ p * Q + q] = acc;  {SLOW}"),
)
BY_COLUMNS = (
    ("x_tile[TILE_P + CHUNK_R - 1][PITCH]", "x_tile[PITCH][32]"),
    ("? plane[(long long)h * W + v] : 0.0f;", f"? plane[(long long)h * W + v] : 0.0f;  {SLOW}"),
    ("x_tile[i][j] =", "x_tile[j][i] ="),
    ("x_tile[ty + r][tx + s] * filter[r * S + s];", f"x_tile[tx + s][ty + r] * filter[r * S + s];  {SLOW}"),
)
OTHER_SIDE = """    } else {
      for (int k = C * R * S - 1; k >= 0; k--)
        acc += x[(((long long)n * C + k / (R * S)) * H + p + k / S % R) * W + q + k % S] *
               w[(long long)m * C * R * S + k];
    }
"""
BY_LANE = (
    ("float acc = 0.0f;", f"float acc = 0.0f;\n    if (threadIdx.x % 2 == 0) {{  {SLOW}"),
    ("    y[((long long)n", f"{OTHER_SIDE}    y[((long long)n"),
)
CHANGES = {  # by the kind of cause: the copied variant, and pairs of a text and its replacement
    "uncoalesced": ("m1/direct", DOWN_COLUMNS),
    "conflicts": ("m1/tiled_direct", BY_COLUMNS),
    "divergence": ("m1/direct", BY_LANE),
}


def plant(kind: str, folder: Path) -> Path:
    """Write the variant and return its folder."""
    name, changes = CHANGES[kind]
    text = find(name).source.read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{name} has changed: {old}"
        text = text.replace(old, new)
    folder.mkdir()
    (folder / "kernel.cu").write_text(text)
    (folder / "variant.py").write_text((find(name).folder / "variant.py").read_text())
    return folder


def slow_lines(folder: Path) -> set[int]:
    """The numbers of the marked lines."""
    lines = (folder / "kernel.cu").read_text().splitlines()
    return {number for number, line in enumerate(lines, 1) if SLOW in line}
