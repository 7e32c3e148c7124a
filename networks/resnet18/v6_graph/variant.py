"""networks/resnet18/v6_graph: launches that begin early, and clusters that share sums where tiles are few."""

from mini_dnn.plans import implicit, residual
from mini_dnn.variant import Variant

TILES = implicit.TILES

VARIANT = Variant(
    op="resnet",
    plan=lambda s: residual.plan(s, TILES, early=True),
    setup=residual.setup,
    scratch=residual.scratch,
    defines=lambda s: residual.kernels(s, TILES),
    refuses=residual.refuses,
    parent="networks/resnet18/v5_fused",
    precision="fp16",
    min_arch=90,
    idea="the next layer's weights are on their way before this layer ends; few tiles are shared out",
)
