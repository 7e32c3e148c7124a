"""Pictures to classify, and a tiny residual network."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mini_dnn import datasets
from mini_dnn.nn.models import resnet
from mini_dnn.nn.models.resnet import ResNetSizes
from mini_dnn.nn.weights import WeightsInfo, save

TINY = ResNetSizes(20, 3, "small", (4, 4, 8, 8), (1, 1, 1, 1), 6)


@pytest.fixture(scope="module")
def garments() -> np.ndarray:
    """Drawn garments, (N, 28, 28) uint8."""
    images, _ = datasets.draw(12, seed=3)
    return datasets.resize(images[:, 0] if images.ndim == 4 else images, 28)[:, 0]


@pytest.fixture
def folder(garments: np.ndarray, tmp_path: Path) -> Path:
    """A folder with ten pictures, and three files that cannot be read."""
    found = tmp_path / "pictures"
    found.mkdir()
    for i, image in enumerate(garments[:10]):
        Image.fromarray(image).save(found / f"{i}.png")
    (found / "3a.jpg").write_bytes(b"")
    (found / "3b.png").write_bytes((found / "3.png").read_bytes()[:90])
    (found / "9z.png").write_bytes(b"words")
    return found


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a tiny residual network, untrained."""
    path = tmp_path_factory.mktemp("weights") / "tiny.h5"
    network = resnet.build(TINY, np.random.default_rng(0))
    save(path, network, WeightsInfo("unknown", {}, 0, "a test", description=TINY.to_json()))
    return path
