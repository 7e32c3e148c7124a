"""Verb ``train``: train a network in NumPy and write its weights."""

from __future__ import annotations

import argparse
import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from mini_dnn.cli.alone import alone
from mini_dnn.cli.common import INTERRUPTED, seed
from mini_dnn.datasets import ALL, ImageSet
from mini_dnn.errors import UsageError, WeightsError
from mini_dnn.nn.files import check_room
from mini_dnn.nn.models import resnet
from mini_dnn.nn.network import Network
from mini_dnn.nn.train import EpochResult, Settings, Trainer, predict
from mini_dnn.nn.weights import TEST_COUNTS, WeightsInfo, save
from mini_dnn.nn.workers import WorkerError
from mini_dnn.nn.zoo import MODELS, Model
from mini_dnn.progress import Bar

NUMBER_OF_CLASSES = 10  # of every data set here
FOLDER = Path("checkpoints")  # default folder of the files
FLAGS = (
    ("epochs", int, "passes over the training images"),
    ("batch", int, "images per step"),
    ("rate", float, "highest learning rate"),
)  # whose defaults are the network's


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "train",
        help="train a network in NumPy and write its weights",
        description="Train a network in NumPy on the CPU. A checkpoint is written after each epoch, and "
        "--resume continues a training that was stopped; the final weights are the same.",
    )
    parser.add_argument("--network", choices=MODELS, default="lenet", help="default %(default)s")
    parser.add_argument("--data", choices=ALL, default="auto", help="the data set (default auto)")
    parser.add_argument("--data-dir", type=Path, help="folder with the data set's published files")
    for flag, kind, meaning in FLAGS:
        defaults = {name: f"{getattr(model.settings, flag):g}" for name, model in MODELS.items()}
        each = ", ".join(f"{value} for {name}" for name, value in defaults.items())
        default = each if len(set(defaults.values())) > 1 else defaults["lenet"]
        parser.add_argument(f"--{flag}", type=kind, help=f"{meaning} (default {default})")
    parser.add_argument(
        "--description",
        type=Path,
        metavar="FILE",
        help="train the residual network whose sizes this JSON file contains",
    )
    parser.add_argument("--seed", type=seed, default=0, help="default %(default)s")
    parser.add_argument("--limit", type=int, metavar="N", help="train on the first N training images only")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.h5", help=f"file for the weights (default {FOLDER}/NETWORK-DATA.h5)"
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="default: in the same folder as --out; removed at the end",
    )
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    parser.add_argument("--force", action="store_true", help="replace the files of an earlier training")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train. Return 0, or 130 after Ctrl-C.

    Raises
    ------
    MiniDnnError
        Flags are wrong, there are no data, output files exist already, or the training diverges.
    """
    model = MODELS[args.network]
    asked = {flag: getattr(args, flag) for flag, *_ in FLAGS if getattr(args, flag) is not None}
    settings = replace(model.settings, seed=args.seed, **asked)
    train = _limited(model.load(args.data, "train", args.data_dir), args.limit)
    out, checkpoint = _files(args, train.name)
    rng = np.random.default_rng(settings.seed)
    test = model.load(train.name, "test", args.data_dir)
    network, description = _network(args, model, train, rng)
    trainer = Trainer(network, train, test, settings, rng)
    with ExitStack() as locks:
        check_room(out, "weights", trainer.weights_bytes)
        # There are two for a moment: a new one is written before it replaces the old one
        there = checkpoint.stat().st_size if checkpoint.exists() else 0
        more = max(2 * trainer.checkpoint_bytes - there, trainer.checkpoint_bytes)
        check_room(checkpoint, "checkpoint", more)
        for path in (out, checkpoint):
            locks.enter_context(alone(path, "training"))
        return _run(args, model, trainer, description, out, checkpoint)


def _network(
    args: argparse.Namespace, model: Model, train: ImageSet, rng: np.random.Generator
) -> tuple[Network, str]:
    """Create the network for the data or for ``--description``, and its description for the weights."""
    if args.description is None:
        return model.make(train.name, rng), model.describe(train.name)
    if model.described is None:
        takes = " or ".join(name for name, other in MODELS.items() if other.described)
        raise UsageError(f"--description needs --network {takes}: {model.title} has only one size")
    sizes = resnet.ResNetSizes.from_file(args.description)
    shape, classes = (sizes.channels, sizes.image, sizes.image), int(train.labels.max()) + 1
    if shape != train.images.shape[1:] or sizes.classes < classes:
        raise UsageError(
            f"{args.description} describes a network for images {shape} and {sizes.classes} classes; "
            f"{train.name} has images {train.images.shape[1:]} and {classes} classes"
        )
    return resnet.build(sizes, rng), sizes.to_json()


def _run(
    args: argparse.Namespace, model: Model, trainer: Trainer, description: str, out: Path, checkpoint: Path
) -> int:
    train, settings = trainer.train, trainer.settings
    print(f"data      {train.name}, {len(train.labels):,} training images, {train.origin}")
    if train.note:
        print(f"          NOTE: {train.note}")
    if args.resume:
        trainer.restore(checkpoint)
        print(f"resumed   after epoch {trainer.epoch} of {settings.epochs}")
    try:
        _train(trainer, checkpoint)
    except KeyboardInterrupt:
        print(_stopped(trainer.epoch, checkpoint))
        return INTERRUPTED
    except WorkerError as error:
        raise WorkerError(f"{error}. Training has {_stopped(trainer.epoch, checkpoint)}") from error
    except WeightsError as error:  # the checkpoint of the last epoch could not be written
        raise WeightsError(f"{error}. Training has {_stopped(trainer.epoch - 1, checkpoint)}") from error
    try:
        _finish(trainer, model, _command(model, settings, train.name, args), description, out)
    except KeyboardInterrupt:
        print(_stopped(trainer.epoch, checkpoint))
        return INTERRUPTED
    except WeightsError as error:
        raise WeightsError(f"{error}. Training has {_stopped(trainer.epoch, checkpoint)}") from error
    checkpoint.unlink(missing_ok=True)
    return 0


def _limited(data: ImageSet, limit: int | None) -> ImageSet:
    if limit is None:
        return data
    if not 1 <= limit <= len(data.labels):
        raise UsageError(
            f"--limit {limit}: {data.name} has {len(data.labels)} training images; expected 1 up to this "
            f"number"
        )
    return replace(data, images=data.images[:limit], labels=data.labels[:limit])


def _files(args: argparse.Namespace, dataset: str) -> tuple[Path, Path]:
    """Return the files for weights and checkpoint.

    Raise an error if they would replace an earlier training.
    """
    out = args.out or FOLDER / f"{args.network}-{dataset}.h5"
    for path in filter(Path.is_dir, (out, args.checkpoint or out)):
        raise UsageError(f"{path} is a folder; name a file in it")
    checkpoint = args.checkpoint or out.with_suffix(".checkpoint.h5")
    if out.resolve() == checkpoint.resolve():
        raise UsageError(f"--out and --checkpoint both name {out}; name two files")
    if out.exists() and not args.force:
        raise UsageError(f"{out} already exists; name another file with --out, or use --force to replace it")
    if checkpoint.exists() and not (args.resume or args.force):
        raise UsageError(
            f"{checkpoint} contains a training that was stopped; continue it with --resume, or start "
            f"again with --force"
        )
    return out, checkpoint


def _train(trainer: Trainer, checkpoint: Path) -> None:
    """Train with a progress bar, and print a line for each epoch."""
    epochs, steps = trainer.settings.epochs, trainer.steps_per_epoch
    before = trainer.epoch * steps

    def say(result: EpochResult) -> None:
        figures = f"loss {result.loss:.4f}, test accuracy {result.accuracy:.4f}"
        print(f"epoch {result.epoch:2} of {epochs}: {figures}", flush=True)

    with Bar("training", epochs * steps - before) as bar:
        trainer.run(checkpoint, lambda done: bar.update(done - before), say)


def _stopped(epochs: int, checkpoint: Path) -> str:
    """Say what is kept of a training whose checkpoint has this many epochs."""
    if epochs == 0:
        return "stopped in the first epoch, before the first checkpoint"
    return (
        f"stopped; {checkpoint} contains the complete epochs; use the same command with --resume to continue"
    )


def _command(model: Model, settings: Settings, dataset: str, args: argparse.Namespace) -> str:
    """Spell out the command that makes these weights, including the defaults, which may change later."""
    flags: dict[str, object] = {} if model.name == "lenet" else {"--network": model.name}
    flags |= {"--data": dataset, "--epochs": settings.epochs, "--batch": settings.batch}
    flags |= {"--rate": settings.rate, "--seed": settings.seed}
    if args.limit is not None:
        flags["--limit"] = args.limit
    if args.description is not None:
        flags["--description"] = args.description
    return shlex.join(["python", "run.py", "train", *(str(word) for pair in flags.items() for word in pair)])


def _finish(trainer: Trainer, model: Model, command: str, description: str, out: Path) -> None:
    """Measure the accuracies and write the weights."""
    right = predict(trainer.network, trainer.test.images) == trainer.test.labels
    accuracies = {n: float(right[:n].mean()) for n in TEST_COUNTS if n <= len(right)}
    info = WeightsInfo(
        trainer.train.name,
        accuracies,
        trainer.settings.seed,
        command,
        model.preprocessing,
        description=description,
    )
    save(out, trainer.network, info)
    for n, accuracy in accuracies.items():
        print(f"accuracy  {accuracy:.4f} on the first {n:,} test images")
    print(f"weights   {out}")
    if right.mean() < 1.5 / NUMBER_OF_CLASSES:
        print(
            f"          NOTE: the network has learned nothing: {right.mean():.4f} is no better than "
            f"guessing. Try a --rate below {trainer.settings.rate:g}"
        )
