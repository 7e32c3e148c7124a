"""networks/resnet18/v5_fused: a launch a convolution, with all that follows it; batch norm folded."""

from mini_dnn.plans import implicit, residual
from mini_dnn.variant import Variant

TILES = residual.late(implicit.TILES)

VARIANT = Variant(
    op="resnet",
    plan=lambda s: residual.plan(s, TILES, early=False),
    setup=residual.setup,
    scratch=residual.scratch,
    defines=lambda s: residual.kernels(s, TILES),
    refuses=residual.refuses,
    parent="networks/resnet18/v4_tensor_cores",
    precision="fp16",
    min_arch=90,
    idea="batch norm lies in the weights; bias, residual, shortcut and ReLU are part of a convolution",
)
