"""Copies memory behind y to the host: it may belong to others."""
# expect: Images of 'y'

from mini_dnn.variant import ConvShape, CopyOut, Images, Variant


def plan(s: ConvShape) -> list[CopyOut]:
    """One copy."""
    return [CopyOut(Images("y", s.N, 1000 * s.N))]


VARIANT = Variant(op="conv2d", plan=plan, idea="none of its own")
