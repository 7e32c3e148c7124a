"""networks/vit/layer_by_layer: each step is a launch, and all of them run on the GPU."""

import numpy as np

from mini_dnn.ops.vit import VitShape
from mini_dnn.plans.elements import BITS, each, each_warp
from mini_dnn.variant import Call, Gemm, Launch, Step, Variant

PRODUCT = "gemm/v3_registers"  # any variant of the operation gemm that supports fp32
ATTENTION = "attention/v2_coalesced"  # any variant of attention that supports fp32


def scratch(s: VitShape) -> dict[str, tuple[int, ...]]:
    """Patches, tokens, and the results of a block's steps."""
    lines = s.N * s.T
    return {
        "patches": (s.N * (s.T - 1), s.pixels),
        "embedded": (s.N * (s.T - 1), s.width),
        "tokens": (lines, s.width),
        "normal": (lines, s.width),
        "qkv": (lines, 3 * s.width),
        "mixed": (lines, s.width),
        "branch": (lines, s.width),
        "inner": (lines, s.inner),
    }


def plan(s: VitShape) -> list[Step | Call]:
    """The steps in the order of the network."""
    D, lines = s.width, s.N * s.T

    def norm(name: str, x: str, rows: int, pitch: int) -> Launch:
        """Normalise each line of ``x`` into ``normal``."""
        arrays = (x, f"{name}.weight", f"{name}.bias", "normal")
        return each_warp("normalise", rows, *arrays, rows, D, np.int64(pitch))

    def linear(name: str, x: str, y: str, rows: int) -> list[Step]:
        """``y = x weight^T + bias``."""
        outputs, inputs = s.weights[f"{name}.weight"]
        product = Gemm(x, f"{name}.weight", y, rows, outputs, inputs, layout="nt", impl=PRODUCT)
        return [product, each("add_bias", rows * outputs, y, f"{name}.bias", outputs, at=2)]

    steps: list[Step | Call] = [
        each("cut", s.N * (s.T - 1) * s.pixels, "images", "patches", s.channels, s.image, s.patch, at=2),
        Gemm(
            *("patches", "patches.linear.weight", "embedded", s.N * (s.T - 1), D, s.pixels),
            **{"layout": "nt", "impl": PRODUCT},
        ),
        each(
            *("place", lines * D, "embedded", "patches.linear.bias", "positions.class", "positions.position"),
            *("tokens", s.T, D),
            at=5,
        ),
    ]
    for block in s.blocks:
        attention, mlp = f"attention{block}", f"mlp{block}"
        steps += [
            norm(f"{attention}.norm", "tokens", lines, D),
            *linear(f"{attention}.heads.qkv", "normal", "qkv", lines),
            Call(ATTENTION, s.attention("fp32"), {"qkv": "qkv", "o": "mixed"}),
            *linear(f"{attention}.heads.out", "mixed", "branch", lines),
            each("add", lines * D, "tokens", "branch", at=2),
            norm(f"{mlp}.norm", "tokens", lines, D),
            *linear(f"{mlp}.up", "normal", "inner", lines),
            each("gelu", lines * s.inner, "inner"),
            *linear(f"{mlp}.down", "inner", "branch", lines),
            each("add", lines * D, "tokens", "branch", at=2),
        ]
    return [
        *steps,
        norm("norm", "tokens", s.N, s.T * D),  # of the class tokens alone: no others are needed
        *linear("head", "normal", "probabilities", s.N),
        each_warp("softmax", s.N, "probabilities", s.N, s.classes),
    ]


VARIANT = Variant(
    op="vit",
    plan=plan,
    scratch=scratch,
    defines=lambda s: {"IMAGES": BITS[s.dtype]},
    idea="one launch per step, with products and attention of the ladders, from images to probabilities",
)
