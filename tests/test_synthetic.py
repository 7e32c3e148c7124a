"""The drawn garments: the same for everybody, each image by itself, and learnable."""

import numpy as np
import pytest

from mini_dnn.datasets import CLASSES, draw, synthetic
from mini_dnn.datasets.garments import GARMENTS
from mini_dnn.errors import UsageError


@pytest.fixture(scope="module")
def drawn():
    return draw(1000, 0, "train")


def test_shape_and_range(drawn):
    images, labels = drawn
    assert images.shape == (1000, 1, 86, 86)
    assert images.dtype == labels.dtype == np.uint8
    assert np.bincount(labels, minlength=10).min() > 60
    assert images.reshape(1000, -1).max(axis=1).min() > 50  # no image is black


def test_an_image_depends_on_its_index_alone(drawn):
    images, labels = draw(20, 0, "train")
    assert np.array_equal(images, drawn[0][:20])
    assert np.array_equal(labels, drawn[1][:20])


@pytest.mark.parametrize("other", [{"seed": 1, "split": "train"}, {"seed": 0, "split": "test"}])
def test_seeds_and_splits_differ(drawn, other):
    images, _ = draw(20, **other)
    known = {image.tobytes() for image in drawn[0]}
    assert not any(image.tobytes() in known for image in images)


def test_labels_name_what_is_drawn():
    names = [garment.__name__ for garment in GARMENTS]
    assert names == [name.split("/")[0].lower().replace("-", "_").replace(" ", "_") for name in CLASSES]


def test_garments_lie_inside_the_image(drawn):
    images = drawn[0][:, 0].astype(float)
    edge = np.concatenate([images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]], axis=1)
    assert edge.mean() < 12
    assert images[:, 20:66, 20:66].mean() > 60


def test_learnable_but_not_trivial(drawn):
    """The nearest class mean is much better than chance (0.1), but far from perfect."""
    images, labels = (drawn[0] / 255.0).reshape(1000, -1), drawn[1]
    means = np.stack([images[:700][labels[:700] == c].mean(axis=0) for c in range(10)])
    distance = ((images[700:, None] - means) ** 2).sum(axis=2)
    assert 0.5 < (distance.argmin(axis=1) == labels[700:]).mean() < 0.9


def test_drawings_have_not_changed():
    """After a change of a drawing, raise `synthetic.VERSION`, or old caches will be used."""
    images, labels = draw(12, 0, "test")
    assert (synthetic.VERSION, labels.tolist()) == (1, LABELS)
    assert np.allclose(images.mean(axis=(1, 2, 3)), MEANS, atol=0.5)


LABELS = [5, 6, 5, 1, 1, 8, 3, 7, 4, 0, 0, 4]
MEANS = [12.1, 43.0, 16.2, 45.8, 40.3, 31.6, 20.9, 20.2, 60.9, 63.9, 32.1, 33.0]


@pytest.mark.parametrize("arguments", [(-1,), (1, -1), (1, 0, "dev")])
def test_draw_refuses(arguments):
    with pytest.raises(UsageError, match="at least 0, and the split one of train, test"):
        draw(*arguments)


def test_draw_nothing():
    assert draw(0)[0].shape == (0, 1, 86, 86)


def test_load_draws_once(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "COUNT", 6)
    first = synthetic.load("test", tmp_path)
    monkeypatch.setattr(synthetic, "draw", None)  # calling it again would fail
    second = synthetic.load("test", tmp_path)
    assert np.array_equal(first[0], second[0])
    assert first[2] == second[2] == "drawn from seed 0"
    monkeypatch.setattr(synthetic, "VERSION", 2)
    with pytest.raises(TypeError, match="not callable"):
        synthetic.load("test", tmp_path)
