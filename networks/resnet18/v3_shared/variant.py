"""networks/resnet18/v3_shared: convolutions with tiles in shared memory."""

from mini_dnn.plans import residual_layers
from mini_dnn.variant import Variant

CONVOLUTION = "conv2d_padded/v1_shared"  # any variant of the operation that supports fp32 nchw

VARIANT = Variant(
    op="resnet",
    plan=lambda s: residual_layers.steps(s, CONVOLUTION),
    setup=residual_layers.setup,
    scratch=residual_layers.scratch,
    defines=residual_layers.defines,
    parent="networks/resnet18/v2_layers",
    idea="convolutions are products of matrices in shared tiles, still in fp32",
)
