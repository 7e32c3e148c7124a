"""A small state dict, and the command that converts it."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from mini_dnn.cli import main
from mini_dnn.nn.models.resnet import ResNetSizes

SIZES = ResNetSizes(32, 3, "small", (4, 4, 6, 8), (2, 2, 2, 2), 5)
Arrays = dict[str, np.ndarray]


def state() -> Arrays:
    """A state dict in the format of `torch.nn.Module.state_dict`, with counters of batches."""
    random = np.random.default_rng(3)
    found: Arrays = {}
    for name, shape in SIZES.shapes.items():
        found[name] = random.uniform(0.1, 1, shape).astype(np.float32)
        if name.endswith("running_var"):
            found[name.replace("running_var", "num_batches_tracked")] = np.array(7)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    safetensors.numpy.save_file(state(), tmp_path / "in.safetensors")
    return tmp_path / "in.safetensors"


def convert(source: Path, out: str = "out.h5", *more: str) -> int:
    return main(["weights", "convert", str(source), str(source.parent / out), "--image", "32", *more])
