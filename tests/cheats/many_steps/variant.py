"""A plan of ten thousand launches."""
# expect: steps; at most|bytes; the limit

from mini_dnn.variant import ConvShape, Launch, Variant


def plan(s: ConvShape) -> list[Launch]:
    """A list that takes long to judge."""
    return [Launch("conv", (1,), (1,), ("x",))] * 10_000


VARIANT = Variant(op="conv2d", plan=plan, idea="none of its own")
