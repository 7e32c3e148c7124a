"""Vision transformers of any size.

Patches become tokens. Blocks of attention and of two linear layers follow, and then the classes.

Sources: A. Dosovitskiy et al., "An Image is Worth 16x16 Words", arXiv:2010.11929; H. Touvron et al.,
"Training data-efficient image transformers", arXiv:2012.12877, for the tiny one. Each branch begins with a
norm, and GELU has its tanh form.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mini_dnn.errors import ShapeError
from mini_dnn.nn.layer import Layer
from mini_dnn.nn.layers import Linear, Softmax
from mini_dnn.nn.network import Network
from mini_dnn.nn.tokens import ClassToken, PatchEmbedding, Positions
from mini_dnn.nn.transformer import GELU, LayerNorm, MultiHeadAttention, Residual

HEAD_WIDTHS = (32, 64, 128)  # that attention variants support


@dataclass(frozen=True)
class VitSizes:
    """The sizes of a transformer.

    Parameters
    ----------
    image, patch
        The rows and columns of an image, and of a patch.
    channels
        The channels of an image.
    width
        The length of a token.
    depth
        The number of blocks.
    heads
        The number of attention heads in each block. width / heads is 32, 64 or 128.
    mlp_ratio
        The width between a block's two linear layers, divided by ``width``.
    classes
        The number of classes.

    Raises
    ------
    ShapeError
        The sizes do not match.
    """

    image: int
    patch: int
    channels: int
    width: int
    depth: int
    heads: int
    mlp_ratio: int
    classes: int

    def __post_init__(self) -> None:
        if min(vars(self).values()) < 1:
            raise ShapeError(f"all sizes of a transformer are 1 or more; found {self}")
        if self.image % self.patch:
            raise ShapeError(
                f"patches of {self.patch} do not fill an image of {self.image}: use a divisor of it"
            )
        if self.width % self.heads or self.width // self.heads not in HEAD_WIDTHS:
            raise ShapeError(
                f"{self.heads} heads share a width of {self.width}: each must have "
                f"{', '.join(map(str, HEAD_WIDTHS))}, because the attention kernels support no others"
            )

    @property
    def tokens(self) -> int:
        """The number of tokens: patches, and the class token."""
        return (self.image // self.patch) ** 2 + 1

    @property
    def head_width(self) -> int:
        """The length of a query, key or value."""
        return self.width // self.heads


TINY = VitSizes(224, 16, 3, 192, 12, 3, 4, 1000)  # DeiT's ViT-tiny/16
BASE = VitSizes(224, 16, 3, 768, 12, 12, 4, 1000)  # ViT-B/16
PRESETS = {
    "fashion-mnist": VitSizes(28, 4, 1, 96, 4, 3, 2, 10),
    "cifar10": VitSizes(32, 4, 3, 96, 6, 3, 2, 10),
    **{f"tiny-{side}": replace(TINY, image=side) for side in (224, 384, 512)},
    **{f"base-{side}": replace(BASE, image=side) for side in (224, 384, 512)},
}


def build(sizes: VitSizes, rng: np.random.Generator, dtype: npt.DTypeLike = np.float32) -> Network:
    """Build the network, (N, channels, image, image) to (N, classes) probabilities, initialised from ``rng``.

    Each block is two branches: ``attention1`` (norm, heads) and ``mlp1`` (norm, up, gelu, down), and so on.
    """
    s = sizes
    layers: dict[str, Layer] = {
        "patches": PatchEmbedding(s.channels, s.patch, s.width, rng, dtype),
        "positions": Positions(s.tokens, s.width, rng, dtype),
    }
    for block in range(1, s.depth + 1):
        heads = MultiHeadAttention(s.width, s.heads, rng, dtype)
        layers[f"attention{block}"] = Residual({"norm": LayerNorm(s.width, dtype), "heads": heads})
        inner = s.mlp_ratio * s.width
        layers[f"mlp{block}"] = Residual(
            {
                "norm": LayerNorm(s.width, dtype),
                "up": Linear(s.width, inner, rng, dtype, gain=1),
                "gelu": GELU(),
                "down": Linear(inner, s.width, rng, dtype, gain=1),
            }
        )
    layers |= {
        "token": ClassToken(),  # before the norm, which changes each token separately
        "norm": LayerNorm(s.width, dtype),
        "head": Linear(s.width, s.classes, rng, dtype, gain=0.1),
        "softmax": Softmax(),
    }
    return Network(layers)
