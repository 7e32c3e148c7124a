"""networks/vit/fused: five launches per transformer block, in halves, with fused products."""

from typing import Any

import numpy as np

from mini_dnn.ops.linear import LinearShape
from mini_dnn.ops.linear_shape import ceil_groups
from mini_dnn.ops.vit import VitShape
from mini_dnn.plans.elements import BITS, THREADS
from mini_dnn.variant import Array, Call, Launch, Step, Variant, ceil_div

LINEAR = "linear/v2_ahead"
ATTENTION = "attention/v11_odd_token"


def padded(s: VitShape) -> int:
    """The number of halves of a patch in memory. Lines start at multiples of 16 bytes."""
    return ceil_div(s.pixels, 8) * 8


def folded(s: VitShape) -> dict[str, str]:
    """The linear layers that follow a norm, each with the name of that norm."""
    found = {}
    for block in s.blocks:
        found[f"attention{block}.heads.qkv"] = f"attention{block}.norm"
        found[f"mlp{block}.up"] = f"mlp{block}.norm"
    return {**found, "head": "norm"}


def plain(s: VitShape) -> list[str]:
    """The names of the other linear layers."""
    of_blocks = [(f"attention{block}.heads.out", f"mlp{block}.down") for block in s.blocks]
    return ["patches.linear", *(name for names in of_blocks for name in names)]


def scratch(s: VitShape) -> dict[str, Any]:
    """Tokens, results of a block's steps, class tokens after the last attention, weights in halves."""

    def halves(*shape: int) -> Array:
        return Array(shape, "float16")

    def of_weights(name: str) -> Array:
        n, k = s.weights[f"{name}.weight"]
        return halves(n, ceil_div(k, 8) * 8)

    lines, D, groups = s.N * s.T, s.width, ceil_groups(s.width)
    found: dict[str, Any] = {
        "patches": halves(lines, padded(s)),
        "tokens": halves(lines, D),
        "moments": (lines, groups, 2),
        "qkv": halves(lines, 3 * D),
        "mixed": halves(lines, D),
        "inner": halves(lines, s.inner),
        "last": halves(s.N, D),
        "last_moments": (s.N, groups, 2),
        "positions": halves(s.T, D),
        **{f"{name}.half": of_weights(name) for name in (*plain(s), *folded(s))},
    }
    return found | {f"{name}.shifted": s.weights[f"{name}.bias"] for name in folded(s)}


def setup(s: VitShape) -> list[Step]:
    """The weights in halves with the norms folded in, and one table of class token and positions."""
    steps: list[Step] = []
    for name in plain(s):
        n, k = s.weights[f"{name}.weight"]
        pitch = ceil_div(k, 8) * 8
        args = (f"{name}.weight", f"{name}.half", np.int64(n * pitch), k, pitch)
        steps.append(Launch("halve", (ceil_div(n * pitch, THREADS),), (THREADS,), args))
    for name, norm in folded(s).items():
        n, k = s.weights[f"{name}.weight"]
        given = (f"{name}.weight", f"{name}.bias", f"{norm}.weight", f"{norm}.bias")
        made = (f"{name}.half", f"{name}.shifted")
        steps.append(Launch("fold", (ceil_div(n * 32, THREADS),), (THREADS,), (*given, *made, n, k)))
    table = ("positions.position", "positions.class", "patches.linear.bias", "positions", s.T, s.width)
    return [*steps, Launch("place", (ceil_div(s.T * s.width, THREADS),), (THREADS,), table)]


def linear(s: VitShape, name: str, x: str, y: str, added: str = "", **fields: Any) -> Call:
    """A call of the linear layer ``name`` with its operands.

    Parameters
    ----------
    x, y
        Buffers of all tokens. With T=1 in ``fields`` they are buffers of class tokens, one per image.
    added
        The buffer of the residual. If there is one, the moments of y are computed for the norm that comes
        next.
    fields
        Fields of the problem.
    """
    n, k = s.weights[f"{name}.weight"]
    norm = name in folded(s)
    fields = {"T": s.T, "residual": "full" if added else "none", "moments": bool(added)} | fields
    problem = LinearShape(N=s.N, n=n, k=ceil_div(k, 8) * 8, norm=norm, **fields)
    moments = "moments" if problem.T == s.T else "last_moments"
    arrays = {"x": x, "w": f"{name}.half", "bias": f"{name}.{'shifted' if norm else 'bias'}", "y": y}
    arrays |= {"x_moments": moments} if norm else {}
    arrays |= {"residual": added, "y_moments": moments} if added else {}
    return Call(LINEAR, problem, arrays)


def plan(s: VitShape) -> list[Step | Call]:
    """The patches, five launches per transformer block, the head, and softmax."""
    # The second is the distance, in halves, from one class token to the next
    eights, apart = s.N * s.T * padded(s) // 8, s.T * s.width
    sizes = (s.channels, s.image, s.patch, s.T, padded(s))
    images = ("images", "patches", np.int64(eights), *sizes)
    steps: list[Step | Call] = [
        Launch("cut", (ceil_div(eights, THREADS),), (THREADS,), images),
        linear(s, "patches.linear", "patches", "tokens", "positions", residual="shared"),
    ]
    for block in s.blocks:
        attention, mlp = f"attention{block}.heads", f"mlp{block}"
        steps += [
            linear(s, f"{attention}.qkv", "tokens", "qkv"),
            Call(ATTENTION, s.attention("fp16"), {"qkv": "qkv", "o": "mixed"}),
        ]
        if block < s.depth:
            steps += [
                linear(s, f"{attention}.out", "mixed", "tokens", "tokens"),
                linear(s, f"{mlp}.up", "tokens", "inner", act="gelu"),
                linear(s, f"{mlp}.down", "inner", "tokens", "tokens"),
            ]
        else:  # only the class tokens are needed from here on
            steps += [
                linear(s, f"{attention}.out", "mixed", "last", "tokens", T=1, ldx=apart, ldr=apart),
                linear(s, f"{mlp}.up", "last", "inner", T=1, act="gelu"),
                linear(s, f"{mlp}.down", "inner", "last", "last", T=1),
            ]
    softmax = ("probabilities", s.N, s.classes)
    return [
        *steps,
        linear(s, "head", "last", "probabilities", T=1, out="fp32"),
        Launch("softmax", (ceil_div(s.N * 32, THREADS),), (THREADS,), softmax, early=True),
    ]


VARIANT = Variant(
    op="vit",
    plan=plan,
    setup=setup,
    scratch=scratch,
    defines=lambda s: {"IMAGES": BITS[s.dtype]},
    parent="networks/vit/layer_by_layer",
    precision="fp16",
    min_arch=90,
    idea="operations between products are part of a product; the last block computes only class tokens",
)
