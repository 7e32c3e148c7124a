"""networks/resnet18/v5_fused: one launch per convolution with all that follows it; batch norm is folded."""

from mini_dnn.plans import implicit, residual
from mini_dnn.variant import Variant

VARIANT = Variant(
    **residual.fields(residual.late(implicit.TILES), early=False),
    parent="networks/resnet18/v4_tensor_cores",
    idea="batch norms are folded into weights; bias, residual, shortcut and ReLU are part of a convolution",
)
