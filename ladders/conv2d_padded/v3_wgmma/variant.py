"""conv2d_padded/v3_wgmma: the copy engine loads windows, warpgroups multiply, and clusters share sums."""

from mini_dnn.ops.conv2d_padded import PaddedShape
from mini_dnn.plans import implicit
from mini_dnn.plans.implicit import Layer, Names
from mini_dnn.variant import Launch, Variant


def refuses(p: PaddedShape) -> str:
    """The text of the limits of the copy engine and the tensor cores."""
    return Layer(p).fault


def defines(p: PaddedShape) -> dict[str, int]:
    """The size of the tile."""
    tile = implicit.choose(Layer(p))
    sizes = {"TILE_ROWS": tile.rows, "TILE_COLUMNS": tile.columns, "TILE_STAGES": tile.stages}
    return sizes | {"TILE_SPLIT": tile.split, "BLOCKS": tile.blocks}


def plan(p: PaddedShape) -> list[Launch]:
    """One launch with a cluster for each tile, or with as many blocks as are resident at once."""
    layer, names = Layer(p), Names("x", "w", "bias", "y", "residual" if p.residual else "")
    return [implicit.launch(layer, implicit.choose(layer), names, "convolve", early=True)]


VARIANT = Variant(
    op="conv2d_padded",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="conv2d_padded/v2_wmma",
    precision="fp16",
    min_arch=90,
    idea="the copy engine loads the pixels of the windows, while warpgroups multiply earlier ones",
)
