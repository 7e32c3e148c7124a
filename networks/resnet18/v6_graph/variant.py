"""networks/resnet18/v6_graph: launches start early, and clusters share sums if there are few tiles."""

from mini_dnn.plans import implicit, residual
from mini_dnn.variant import Variant

VARIANT = Variant(
    **residual.fields(implicit.TILES, early=True),
    parent="networks/resnet18/v5_fused",
    idea="a layer loads weights before the previous one ends; if tiles are few, clusters share their sums",
)
