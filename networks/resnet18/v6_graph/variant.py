"""networks/resnet18/v6_graph: launches that begin early, and clusters that share sums where tiles are few."""

from mini_dnn.plans import implicit, residual
from mini_dnn.variant import Variant

VARIANT = Variant(
    **residual.fields(implicit.TILES, early=True),
    parent="networks/resnet18/v5_fused",
    idea="the next layer's weights are on their way before this layer ends; few tiles are shared out",
)
