"""Training on a few drawn garments: the network learns, resumes bit for bit, and loses nothing."""

from pathlib import Path

import numpy as np
import pytest
from training_samples import SETTINGS, TRAIN, bits, image_set, trainer
from training_samples import uninterrupted as uninterrupted

from mini_dnn.datasets import ImageSet
from mini_dnn.errors import MiniDnnError, UsageError, WeightsError
from mini_dnn.nn import train as training
from mini_dnn.nn.network import Network
from mini_dnn.nn.train import EpochResult, Settings, Trainer, predict


class Stop(Exception):
    pass


@pytest.mark.exhaustive
def test_training_learns() -> None:
    learner = trainer(Settings(epochs=25, batch=16, rate=3e-3, seed=5))
    learner.run()
    losses = [result.loss for result in learner.history]
    assert losses[-1] < 0.3 * losses[0]
    assert (predict(learner.network, TRAIN.images) == TRAIN.labels).mean() > 0.9


def test_the_same_seed_gives_the_same_bits_and_another_does_not(uninterrupted: Trainer) -> None:
    again, other = trainer(), trainer(Settings(epochs=3, batch=16, rate=3e-3, seed=6))
    again.run()
    other.run()
    assert bits(again.network) == bits(uninterrupted.network)
    assert again.history == uninterrupted.history
    assert bits(other.network) != bits(uninterrupted.network)


@pytest.mark.parametrize("batches", [4, 8])  # in the second epoch; in the third
def test_a_resumed_training_ends_with_the_same_bits(
    uninterrupted: Trainer, tmp_path: Path, batches: int
) -> None:
    def interrupt(done: int) -> None:
        if done == batches:
            raise Stop

    with pytest.raises(Stop):
        trainer().run(tmp_path / "c.h5", interrupt)
    resumed = trainer()
    resumed.restore(tmp_path / "c.h5")
    assert resumed.epoch == (batches - 1) // resumed.steps_per_epoch
    resumed.run(tmp_path / "c.h5")
    assert bits(resumed.network) == bits(uninterrupted.network)
    assert resumed.history == uninterrupted.history


def test_progress_counts_batches_and_epochs(uninterrupted: Trainer) -> None:
    batches: list[int] = []
    epochs: list[EpochResult] = []
    trainer().run(on_batch=batches.append, on_epoch=epochs.append)
    assert batches == list(range(1, 10))
    assert epochs == uninterrupted.history
    assert [result.epoch for result in epochs] == [1, 2, 3]


def test_about_half_of_the_images_are_mirrored_and_the_set_itself_stays() -> None:
    before = TRAIN.images.copy()
    learner = trainer(Settings(epochs=1, batch=40))
    ((x, labels),) = learner._batches()
    plain = {image.tobytes(): label for image, label in zip(TRAIN.images, TRAIN.labels, strict=True)}
    mirrored = {
        image[:, :, ::-1].tobytes(): label for image, label in zip(TRAIN.images, TRAIN.labels, strict=True)
    }
    found = np.round(x * 255).astype(np.uint8)
    assert [(plain | mirrored)[image.tobytes()] for image in found] == list(labels)
    count = sum(image.tobytes() in mirrored for image in found)
    assert 8 < count < 32
    np.testing.assert_array_equal(TRAIN.images, before)


def test_a_training_that_diverges_stops_with_the_batch() -> None:
    learner = trainer()
    learner.network.parameters()["fc2.bias"].value[0] = np.nan
    with pytest.raises(
        MiniDnnError, match=r"diverged: the loss is nan at batch 1 of epoch 1; try a rate below 0.003"
    ):
        learner.run()


@pytest.mark.parametrize(
    ("settings", "train", "message"),
    [
        (Settings(epochs=4, batch=16, rate=3e-3, seed=5), TRAIN, "epochs=3; requested was epochs=4"),
        (
            Settings(epochs=3, batch=8, rate=3e-3, seed=6),
            TRAIN,
            "batch=16, seed=5; requested was batch=8, seed=6",
        ),
        (SETTINGS, image_set("train", 39), "images=40; requested was images=39"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(
    uninterrupted: Trainer, tmp_path: Path, settings: Settings, train: ImageSet, message: str
) -> None:
    uninterrupted.save(tmp_path / "c.h5")
    other = trainer(settings, train)
    before = bits(other.network)
    with pytest.raises(UsageError, match=message):
        other.restore(tmp_path / "c.h5")
    assert bits(other.network) == before
    assert other.epoch == 0


def test_a_damaged_checkpoint_is_refused(uninterrupted: Trainer, tmp_path: Path) -> None:
    path = tmp_path / "c.h5"
    uninterrupted.save(path)
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(WeightsError, match="without --resume"):
        trainer().restore(path)


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"batch": 0}, {"rate": 0}, {"rate": float("nan")}, {"seed": -1}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Settings(**wrong)  # type: ignore[arg-type]


def test_parameters_out_of_range_replace_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No loss is computed after the last step of an epoch."""
    learner, checkpoint = trainer(), tmp_path / "c.h5"
    step, last = learner._optimizer.step, 2 * learner.steps_per_epoch

    def diverge(rate: float) -> None:
        nonlocal last
        step(rate)
        last -= 1
        if last == 0:
            learner.network.parameters()["fc2.bias"].value[0] = np.inf

    monkeypatch.setattr(learner._optimizer, "step", diverge)
    with pytest.raises(MiniDnnError, match=r"out of range after epoch 2; try a rate below 0\.003"):
        learner.run(checkpoint)
    resumed = trainer()
    resumed.restore(checkpoint)
    assert resumed.epoch == 1


def test_workers_share_no_more_gradients_than_there_are_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(network: Network, batch: int, part: int) -> None:
        assert (batch, part) == (len(TRAIN.labels), 16)
        raise Stop

    monkeypatch.setattr(training, "Workers", stop)
    with pytest.raises(Stop):
        trainer(Settings(epochs=1, batch=1 << 40, part=16)).run()
