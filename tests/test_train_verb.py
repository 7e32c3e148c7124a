"""``run.py train``: the files that it writes, and what it says of interruptions and errors."""

import errno
import os
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from training_samples import TEST, TRAIN, bits
from training_samples import uninterrupted as uninterrupted

from mini_dnn import datasets
from mini_dnn.cli import main
from mini_dnn.cli import train as verb
from mini_dnn.nn.models import lenet
from mini_dnn.nn.train import Trainer
from mini_dnn.nn.weights import load
from mini_dnn.nn.workers import Workers


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
def test_flags_that_make_no_sense_are_refused(
    command: list[str], flags: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, *flags.split()]) == 2
    assert message in capsys.readouterr().err


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


def test_a_network_that_has_learned_nothing_is_reported(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*command, "--epochs", "1"]
    assert main([*words, "--rate", "1000"]) == 0
    assert "NOTE: the network has learned nothing: 0." in capsys.readouterr().out


@pytest.mark.parametrize(("epochs", "said"), [(0, "before the first checkpoint"), (1, "with --resume to")])
def test_a_worker_that_ends_is_reported(
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
