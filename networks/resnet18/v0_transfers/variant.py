"""networks/resnet18/v0_transfers: each layer is a kernel, and its result is copied to the host and back."""

from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.plans import residual_layers
from mini_dnn.variant import Call, RoundTrip, Step, Variant

CONVOLUTION = "conv2d_padded/v0_naive"  # any variant of the operation that supports fp32 nchw


def plan(s: ResNetShape) -> list[Step | Call]:
    """The layers in their order. All results but the scores are copied to the host and back."""
    steps = [(step, RoundTrip(buffer)) for step, buffer in residual_layers.layers(s, CONVOLUTION)]
    return [part for pair in steps for part in pair][:-1]


VARIANT = Variant(
    op="resnet",
    plan=plan,
    setup=residual_layers.setup,
    scratch=residual_layers.scratch,
    defines=residual_layers.defines,
    idea="one layer at a time on the GPU: each result is copied to the host, and back for the next layer",
)
