"""The two convolutions of the course's network, on which kernels are profiled and shown."""

from __future__ import annotations

from mini_dnn.errors import UsageError
from mini_dnn.ops.shapes import ConvShape

BATCH = 10000  # the course's largest
LAYERS = {"conv1": ConvShape(BATCH, 1, 86, 86, 4, 7, 7), "conv2": ConvShape(BATCH, 4, 40, 40, 16, 7, 7)}


def layer_shape(layer: str, batch: int = BATCH) -> ConvShape:
    """Shape of ``"conv1"`` or ``"conv2"`` for a batch.

    Raises
    ------
    UsageError
        No such layer, or an empty batch.
    """
    if layer not in LAYERS:
        raise UsageError(f"no layer '{layer}'; there are {', '.join(LAYERS)}")
    if batch < 1:
        raise UsageError(f"a batch of {batch}: expected one image or more")
    return LAYERS[layer].with_batch(batch)
