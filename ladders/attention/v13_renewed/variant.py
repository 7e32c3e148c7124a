"""attention/v13_renewed: largest errors at 64 n + 1 tokens that are near those of cuDNN."""

from mini_dnn.ops.attention import AttentionShape
from mini_dnn.plans import odd_token
from mini_dnn.variant import Variant

MORE, FEWER = 136, 104  # registers of a thread that multiplies, and of any other thread


def defines(p: AttentionShape) -> dict[str, int]:
    """Sizes that are compile-time constants, and registers."""
    return odd_token.defines(p, MORE, FEWER)


VARIANT = Variant(
    op="attention",
    plan=odd_token.plan,
    defines=defines,
    refuses=odd_token.refuses,
    parent="attention/v12_accurate",
    precision="fp16",
    min_arch=90,
    idea="exponentials that are a large part of a row renew its reference",
)
