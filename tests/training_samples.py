"""A training on a few drawn garments."""

import numpy as np
import pytest

from mini_dnn.datasets import ImageSet, draw
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import Network
from mini_dnn.nn.train import Settings, Trainer

SETTINGS = Settings(epochs=3, batch=16, rate=3e-3, seed=5)  # 40 images: the last batch of an epoch has 8


def image_set(split: str, n: int) -> ImageSet:
    images, labels = draw(n, split=split)
    return ImageSet("synthetic", split, images, labels, "drawn", "")


TRAIN, TEST = image_set("train", 40), image_set("test", 30)


def trainer(settings: Settings = SETTINGS, train: ImageSet = TRAIN) -> Trainer:
    rng = np.random.default_rng(settings.seed)
    return Trainer(lenet.build(rng), train, TEST, settings, rng)


def bits(network: Network) -> dict[str, bytes]:
    return {name: parameter.value.tobytes() for name, parameter in network.parameters().items()}


@pytest.fixture(scope="module")
def uninterrupted() -> Trainer:
    whole = trainer()
    whole.run()
    return whole
