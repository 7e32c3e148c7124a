"""Training on a few drawn garments: the network learns, resumes bit for bit, and loses nothing."""

import errno
import os
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mini_dnn import datasets
from mini_dnn.cli import main
from mini_dnn.cli import train as verb
from mini_dnn.datasets import ImageSet, draw
from mini_dnn.errors import MiniDnnError, UsageError, WeightsError
from mini_dnn.nn import train as training
from mini_dnn.nn.files import check_room
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import Network
from mini_dnn.nn.train import EpochResult, Settings, Trainer, predict
from mini_dnn.nn.weights import load
from mini_dnn.nn.workers import Workers

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
def test_settings_without_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Settings(**wrong)  # type: ignore[arg-type]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command line that trains on the few images, in its own folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "load", lambda name, split, *_: TRAIN if split == "train" else TEST)
    return ["train", "--data", "synthetic", "--epochs", "3", "--batch", "16", "--rate", "3e-3", "--seed", "5"]


WEIGHTS, CHECKPOINT = (
    Path("checkpoints/lenet-synthetic.h5"),
    Path("checkpoints/lenet-synthetic.checkpoint.h5"),
)


def test_the_verb_writes_weights_that_say_how_they_were_made(
    uninterrupted: Trainer, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 0
    network = lenet.build(np.random.default_rng(0))
    info = load(WEIGHTS, network)
    assert bits(network) == bits(uninterrupted.network)
    assert info.command == "python run.py train --data synthetic --epochs 3 --batch 16 --rate 0.003 --seed 5"
    assert info.seed == 5
    assert info.accuracies == {}  # there are only 30 test images
    assert not CHECKPOINT.exists()
    out = capsys.readouterr().out
    assert "epoch  3 of 3: loss " in out
    assert str(WEIGHTS) in out


def test_the_verb_takes_the_first_images_only(command: list[str]) -> None:
    assert main([*command, "--limit", "20", "--out", "few.h5"]) == 0
    assert load(Path("few.h5"), lenet.build(np.random.default_rng(0))).command.endswith(" --limit 20")


def test_ctrl_c_leaves_a_checkpoint_to_go_on_from(
    uninterrupted: Trainer,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real = Trainer.run

    def interrupted(self: Trainer, checkpoint: Path, *_: object) -> None:
        def interrupt(done: int) -> None:
            if done == 5:
                raise KeyboardInterrupt

        real(self, checkpoint, interrupt)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", interrupted)
        assert main(command) == 130
    assert "with --resume to continue" in capsys.readouterr().out
    assert not WEIGHTS.exists()
    assert main(command) == 2
    assert "continue it with --resume, or start again with --force" in capsys.readouterr().err
    assert main([*command, "--resume"]) == 0
    assert "resumed   after epoch 1 of 3" in capsys.readouterr().out
    network = lenet.build(np.random.default_rng(0))
    load(WEIGHTS, network)
    assert bits(network) == bits(uninterrupted.network)


def test_the_verb_replaces_no_file_unless_told(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path("mine.h5")
    out.write_text("precious")
    command += ["--epochs", "1", "--out", str(out)]
    assert main(command) == 2
    assert "mine.h5 already exists" in capsys.readouterr().err
    assert out.read_text() == "precious"
    assert main([*command, "--force"]) == 0
    load(out, lenet.build(np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--limit 41", "40 training images"),
        ("--limit 0", "--limit 0"),
        ("--epochs 0", "epochs >= 1"),
        ("--rate inf", "rate > 0"),
        ("--out .", "is a folder"),
        ("--out a.h5 --checkpoint ./a.h5", "both name"),
        ("--resume", r"no such file"),
    ],
)
def test_flags_without_sense_are_refused(
    command: list[str], flags: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, *flags.split()]) == 2
    assert message in capsys.readouterr().err


def words_of(folder: Path, *more: str) -> list[str]:
    words = ["train", "--data", "synthetic", "--epochs", "1", "--limit", "32", "--out", str(folder / "w.h5")]
    return [*words, *more]


def test_a_second_training_to_the_same_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(datasets, "load", lambda name, split, *_: TRAIN if split == "train" else TEST)
    (tmp_path / "link").symlink_to(tmp_path)
    seen = []

    def meanwhile(trainer: Trainer, checkpoint: Path) -> None:
        for words in (
            words_of(tmp_path / "link"),
            words_of(tmp_path, "--force"),
            [*words_of(tmp_path)[:-1], str(tmp_path / "x.h5"), "--checkpoint", str(checkpoint)],
        ):
            assert main(words) == 2
            seen.append(capsys.readouterr().err)

    with monkeypatch.context() as patch:
        patch.setattr(verb, "_train", meanwhile)
        assert main(words_of(tmp_path)) == 0
    assert all("another training is writing" in said for said in seen)
    assert len(seen) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "w.h5"]
    assert main(words_of(tmp_path, "--force")) == 0  # and then it is not locked any more


@pytest.mark.parametrize("which", ["--out", "--checkpoint"])
def test_a_target_that_cannot_be_written_is_told_first(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(datasets, "load", lambda name, split, *_: TRAIN if split == "train" else TEST)
    monkeypatch.setattr(verb, "_train", lambda *_: pytest.fail("it trains"))
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    for path in ("/proc/w.h5", str(tmp_path / "file" / "w.h5"), str(tmp_path / "pipe")):
        assert main(words_of(tmp_path, which, path, "--force")) == 2
        assert "cannot write the" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "said"), [(1, "before the first checkpoint"), (2, "--resume"), (4, "--resume")]
)
def test_a_disk_that_becomes_full_costs_at_most_an_epoch(
    uninterrupted: Trainer,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    written: int,
    said: str,
) -> None:
    """The fourth file is that of the weights, after three checkpoints."""
    calls: list[int] = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert main(command) == 2
    error = capsys.readouterr().err
    assert "No space left on device; " in error
    assert said in error
    assert not WEIGHTS.exists()
    assert main([*command, "--resume"] if written > 1 else command) == 0
    network = lenet.build(np.random.default_rng(0))
    load(WEIGHTS, network)
    assert bits(network) == bits(uninterrupted.network)


def test_room_for_the_files_is_there_before_the_first_epoch(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="cannot write the weights"):
        check_room(tmp_path / "w.h5", "weights", 1 << 60)
    check_room(tmp_path / "new" / "w.h5", "weights", 1000)
    assert list((tmp_path / "new").iterdir()) == []
    learner = trainer()
    learner.save(tmp_path / "c.h5")
    assert (tmp_path / "c.h5").stat().st_size <= learner.checkpoint_bytes


def test_room_for_a_second_checkpoint_is_there_before_the_first_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A checkpoint is written beside the one that it replaces."""
    free = 3 * trainer().checkpoint_bytes // 2

    def allocate(file: int, start: int, nbytes: int) -> None:
        if nbytes > free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(datasets, "load", lambda name, split, *_: TRAIN if split == "train" else TEST)
    monkeypatch.setattr(verb, "_train", lambda *_: pytest.fail("it trains"))
    monkeypatch.setattr(os, "posix_fallocate", allocate)
    assert main(words_of(tmp_path)) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'w.checkpoint.h5'}: No space left on device; no file was written. Next: free" in said


def test_a_network_that_has_learned_nothing_is_told(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*command, "--epochs", "1"]
    assert main([*words, "--rate", "1000"]) == 0
    assert "NOTE: the network has learned nothing: 0." in capsys.readouterr().out


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


@pytest.mark.parametrize(("epochs", "said"), [(0, "before the first checkpoint"), (1, "with --resume to")])
def test_a_worker_that_ends_is_told(
    epochs: int, said: str, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    step = Trainer._step

    def dies(self: Trainer, *given: Any) -> float:
        if self.epoch == epochs:
            ours, theirs = Pipe()
            theirs.close()
            Workers._ask(cast(Workers, SimpleNamespace(_pipes=[ours])), "step", [[]])
        return step(self, *given)

    monkeypatch.setattr(Trainer, "_step", dies)
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "a process of the training ended unexpectedly, for example" in error
    assert said in error


def test_ctrl_c_while_the_accuracy_is_measured_leaves_the_checkpoint(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(verb, "predict", interrupt)
        assert main(command) == 130
    assert f"{CHECKPOINT} contains the complete epochs; use the same command" in capsys.readouterr().out
    assert not WEIGHTS.exists()
    assert main([*command, "--resume"]) == 0
