"""networks/resnet18/v2_layers: each layer is a kernel, and all of them run on the GPU."""

from mini_dnn.plans import residual_layers
from mini_dnn.variant import Variant

CONVOLUTION = "conv2d_padded/v0_naive"  # any variant of the operation that supports fp32 nchw

VARIANT = Variant(
    op="resnet",
    plan=lambda s: residual_layers.steps(s, CONVOLUTION),
    setup=residual_layers.setup,
    scratch=residual_layers.scratch,
    defines=residual_layers.defines,
    parent="networks/resnet18/v1_conv_bn",
    idea="images are copied to the GPU once, and scores are copied back: all other results stay there",
)
