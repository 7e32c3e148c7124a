"""Run variants on problems with random arrays, and compare the results with float64."""

from typing import Any

import numpy as np
import pytest

from mini_dnn import ops
from mini_dnn.device import Device
from mini_dnn.ops.compare import Comparison
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.running.runner import run
from mini_dnn.running.verify import verify
from mini_dnn.variant import Launch, Planned, Variant, find

SM_90_BYTES = 227 * 1024  # shared memory per block


def solved(variant: Variant, problem: Any, device: Device | None, seed: int = 0) -> Comparison:
    """Compare a variant's result for random arrays with float64."""
    arrays = variant.operation.inputs(problem, seed)
    outputs = run(variant, problem, arrays, device).outputs
    return verify(variant.operation, problem, arrays, outputs, variant.precision)


def runnable(name: str, device: Device) -> Variant:
    """Return the variant; skip the test with a reason if this device cannot run it."""
    variant = find(name)
    if variant.needs_gpu and not device.has_clock:
        pytest.skip(f"{name} needs a GPU: {variant.needs_gpu}")
    if device.arch < variant.min_arch:
        pytest.skip(f"{name} needs sm_{variant.min_arch}, the device is sm_{device.arch}")
    return variant


def compare_conv2d(x: np.ndarray, w: np.ndarray, y: np.ndarray, precision: str = "fp32") -> Comparison:
    """Compare the result of a convolution with float64."""
    return verify(ops.find("conv2d"), ConvShape.of(x, w), {"x": x, "w": w}, {"y": y}, precision)


def planned(variant: Variant, problem: Any, max_shared_bytes: int = SM_90_BYTES) -> Planned:
    """The plan for a GPU of sm_90, or for one with less shared memory."""
    return variant.planned(problem, max_shared_bytes)


def kernels(variant: Variant, problem: Any) -> list[str]:
    """The names of the kernels in the order of their launches."""
    return [launch.kernel for launch in planned(variant, problem).launches]


def only_launch(variant: Variant, problem: Any) -> Launch:
    """The launch of a plan that has no other one."""
    (launch,) = planned(variant, problem).launches
    return launch
