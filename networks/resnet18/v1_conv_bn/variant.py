"""networks/resnet18/v1_conv_bn: no copy between a convolution and its norm."""

from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.plans import residual_layers
from mini_dnn.variant import Call, Launch, RoundTrip, Step, Variant

CONVOLUTION = "conv2d_padded/v0_naive"  # any variant of the operation that supports fp32 nchw


def plan(s: ResNetShape) -> list[Step | Call]:
    """The layers in the order of the network. The output of each norm is copied to the host and back."""
    steps: list[Step | Call] = []
    for step, buffer in residual_layers.layers(s, CONVOLUTION):
        steps.append(step)
        if isinstance(step, Launch) and step.kernel == "batch_norm":
            steps.append(RoundTrip(buffer))
    return steps


VARIANT = Variant(
    op="resnet",
    plan=plan,
    setup=residual_layers.setup,
    scratch=residual_layers.scratch,
    defines=residual_layers.defines,
    parent="networks/resnet18/v0_transfers",
    idea="no copy between a convolution and its norm: 20 results are copied instead of 68",
)
