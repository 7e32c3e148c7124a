"""Clusters: blocks of a grid that run at the same time and can access each other's shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

CLUSTER_ARCH = 90  # compute capability times ten
MAX_CLUSTER = 8  # supported by every such GPU: CUDA C++ Programming Guide, "Thread Block Clusters"
ALONE = (1, 1, 1)  # a launch without clusters

Sizes = tuple[int, int, int]


def cluster_fault(grid: tuple[int, ...], cluster: tuple[int, ...]) -> str:
    """Return what is wrong with clusters of this size in such a grid, or an empty string."""
    if not 1 <= len(cluster) <= 3:
        return f"cluster {cluster} must have one to three entries"
    for axis, size in zip("xyz", cluster, strict=False):
        if size < 1:
            return f"cluster.{axis} is {size} in cluster {cluster}; CUDA allows 1 to {MAX_CLUSTER}"
    blocks = prod(cluster)
    if blocks > MAX_CLUSTER:
        return f"cluster {cluster} has {blocks} blocks; CUDA allows {MAX_CLUSTER} in a cluster"
    for axis, size, count in zip("xyz", three_sizes(cluster), three_sizes(grid), strict=True):
        if count % size:
            return (
                f"grid.{axis} is {count:,} in grid {grid}, which is not a multiple of cluster.{axis} = {size}"
            )
    return ""


def three_sizes(given: int | Sequence[int]) -> Sizes:
    """Extend one size (along x), or up to three sizes, to three."""
    x, y, z = (*(given if isinstance(given, Sequence) else (given,)), 1, 1)[:3]
    return int(x), int(y), int(z)
