"""Training: Adam or Muon with a one-cycle learning rate, random flips and shifts, resumable checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import ceil, isfinite
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mini_dnn.datasets import ImageSet, to_float
from mini_dnn.errors import MiniDnnError, UsageError, WeightsError
from mini_dnn.nn.files import read_arrays, write_arrays
from mini_dnn.nn.layer import Running
from mini_dnn.nn.layers import Softmax
from mini_dnn.nn.network import Network
from mini_dnn.nn.optimizer import Adam, Muon, OneCycle
from mini_dnn.nn.transformer import Residual
from mini_dnn.nn.weights import values
from mini_dnn.nn.workers import Workers, both_ways

MORE_BYTES = 1 << 16  # of a checkpoint or a file of weights, in addition to its arrays
PREDICT_BATCH = 500  # images; the measured accuracy does not depend on it


@dataclass(frozen=True)
class Settings:
    """Everything that determines the outcome of a training, besides the network and the images."""

    epochs: int = 12
    batch: int = 128
    rate: float = 4e-3  # the peak of the one-cycle schedule
    seed: int = 0
    rise: float = 0.3  # fraction of the training before the peak
    decay: float = 0.0  # weight decay: see `Adam`
    # Whether `Muon` trains the matrices in residual branches; otherwise, `Adam` trains everything
    muon: bool = False
    shift: int = 0  # the largest shift of an image in pixels, in each direction
    part: int = 0  # images that a process takes at a time: see `Workers`; with 0, this process takes all

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 1 or self.seed < 0 or not (isfinite(self.rate) and self.rate > 0):
            raise UsageError(
                "training needs epochs >= 1, batch >= 1, rate > 0 and seed >= 0; "
                f"found epochs={self.epochs}, batch={self.batch}, rate={self.rate}, seed={self.seed}"
            )


@dataclass(frozen=True)
class EpochResult:
    """The result of one epoch."""

    epoch: int  # starting at 1
    loss: float  # mean over the training images at the time they were used
    accuracy: float  # on the test images


class Trainer:
    """Trains a network whose last layer is a `Softmax`.

    All random numbers (order of the images, flips) come from one generator, which continues after the
    initial parameters were drawn. Its state is part of a checkpoint, so a resumed training gives the same
    bits as an uninterrupted one, on the same machine and number of threads.

    Parameters
    ----------
    network
        A newly built network, which is trained in place.
    train, test
        Images for training, and images for which the accuracy is measured.
    settings
        See `Settings`.
    rng
        The generator that the network was built with.
    """

    def __init__(
        self, network: Network, train: ImageSet, test: ImageSet, settings: Settings, rng: np.random.Generator
    ) -> None:
        self.network = network
        self.train = train
        self.test = test
        self.settings = settings
        self.history: list[EpochResult] = []
        self.steps_per_epoch = ceil(len(train.labels) / settings.batch)
        self._rng = rng
        *body, (_, last) = network.layers.items()
        if not isinstance(last, Softmax):
            raise MiniDnnError(f"training needs a network that ends in Softmax; found {network.architecture}")
        self._logits = Network(dict(body))  # the same layers; the loss includes a softmax
        self._workers: Workers | None = None
        self._optimizer = _optimizer(network, settings)
        self._schedule = OneCycle(settings.rate, settings.epochs * self.steps_per_epoch, settings.rise)

    @property
    def epoch(self) -> int:
        """The number of completed epochs."""
        return len(self.history)

    def run(
        self,
        checkpoint: Path | None = None,
        on_batch: Callable[[int], None] | None = None,
        on_epoch: Callable[[EpochResult], None] | None = None,
    ) -> None:
        """Train the remaining epochs.

        Parameters
        ----------
        checkpoint
            Written after each epoch.
        on_batch
            Called after each batch, with the number of batches since the start of the training.
        on_epoch
            Called after each epoch and its checkpoint.

        Raises
        ------
        MiniDnnError
            The loss or a parameter is no longer finite.
        WeightsError
            The checkpoint cannot be written.
        """
        settings = self.settings
        if not settings.part:
            self._run(checkpoint, on_batch, on_epoch)
            return
        batch = min(settings.batch, len(self.train.labels))
        with Workers(self._logits, batch, settings.part) as self._workers:
            try:
                self._run(checkpoint, on_batch, on_epoch)
            finally:
                self._workers = None

    def _run(
        self,
        checkpoint: Path | None,
        on_batch: Callable[[int], None] | None,
        on_epoch: Callable[[EpochResult], None] | None,
    ) -> None:
        while self.epoch < self.settings.epochs:
            loss = self._train_epoch(on_batch)
            right = self.predict(self.test.images) == self.test.labels
            self.history.append(EpochResult(self.epoch + 1, loss, float(right.mean())))
            if checkpoint:
                self.save(checkpoint)
            if on_epoch:
                on_epoch(self.history[-1])

    def predict(self, images: np.ndarray) -> np.ndarray:
        """Classes (N,) of images (N, C, H, W) uint8."""
        workers = self._workers
        return workers.predict(to_float(images)) if workers else predict(self.network, images)

    def save(self, path: Path) -> None:
        """Write a checkpoint: parameters, optimiser, generator, history and settings."""
        state = {
            "identity": self._identity(),
            "generator": self._rng.bit_generator.state,
            "history": [asdict(result) for result in self.history],
        }
        architecture = self.network.architecture
        write_arrays(path, "checkpoint", architecture, self._arrays(), {"state": json.dumps(state)})

    @property
    def checkpoint_bytes(self) -> int:
        """The approximate size of a checkpoint on disk, in bytes."""
        return _bytes(self._arrays())

    @property
    def weights_bytes(self) -> int:
        """The approximate size of a file of weights on disk, in bytes."""
        return _bytes(values(self.network))

    def restore(self, path: Path) -> None:
        """Continue from a checkpoint of the same training.

        Raises
        ------
        WeightsError
            The file is missing, damaged, or for another network.
        UsageError
            It belongs to a training with other settings or images.
        """
        arrays, attributes = read_arrays(path, "checkpoint", self.network.architecture, self._arrays())
        try:
            state = json.loads(str(attributes["state"]))
            self._check_identity(path, state["identity"])
            history = [EpochResult(**result) for result in state["history"]]
            self._rng.bit_generator.state = state["generator"]
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise WeightsError(
                f"cannot use {path} as checkpoint: its state is not valid ({error!r}). "
                "Next: train from the start without --resume"
            ) from error
        self.history = history
        for name, array in self._arrays().items():
            array[...] = arrays[name]

    def _check_identity(self, path: Path, found: dict[str, str | int | float]) -> None:
        wanted = self._identity()
        if not isinstance(found, dict) or "epochs" not in found:
            raise TypeError(f"expected settings, found {found!r}")
        differing = [key for key in wanted if found.get(key) != wanted[key]]
        if differing:
            theirs, ours = (
                ", ".join(f"{key}={which.get(key)}" for key in differing) for which in (found, wanted)
            )
            raise UsageError(
                f"the checkpoint {path} belongs to a training with {theirs}; requested was {ours}. "
                "Next: request the same, or train from the start without --resume"
            )

    def _arrays(self) -> dict[str, np.ndarray]:
        state = {f"optimizer.{name}": array for name, array in self._optimizer.state().items()}
        return values(self.network) | state

    def _identity(self) -> dict[str, str | int | float]:
        return asdict(self.settings) | {"dataset": self.train.name, "images": len(self.train.labels)}

    def _train_epoch(self, on_batch: Callable[[int], None] | None) -> float:
        """Make one pass over the training images, and return the mean loss."""
        total = 0.0
        for i, (x, labels) in enumerate(self._batches()):
            step = self.epoch * self.steps_per_epoch + i
            with np.errstate(all="ignore"):  # numbers out of range show in the loss
                loss = self._step(x, labels, self._schedule.rate(step))
            if not isfinite(loss):
                raise MiniDnnError(
                    f"the training diverged: the loss is {loss} at batch {i + 1} of epoch {self.epoch + 1}; "
                    f"try a rate below {self.settings.rate:g}"
                )
            total += loss * len(labels)
            if on_batch:
                on_batch(step + 1)
        if not all(np.isfinite(array).all() for array in self._arrays().values()):
            raise MiniDnnError(
                f"the training diverged: numbers are out of range after epoch {self.epoch + 1}; try a rate "
                f"below {self.settings.rate:g}"
            )
        return total / len(self.train.labels)

    def _step(self, x: np.ndarray, labels: np.ndarray, rate: float) -> float:
        """Train with one batch, and return its loss before the step."""
        workers = self._workers
        loss = workers.step(x, labels) if workers else both_ways(self._logits, x, labels, len(x))
        self._optimizer.step(rate)
        for parameter in self.network.parameters().values():
            if isinstance(parameter, Running):
                parameter.follow()
        return loss

    def _batches(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all training images once in random order, shifted, half of them mirrored left to right."""
        order = self._rng.permutation(len(self.train.labels))
        for start in range(0, len(order), self.settings.batch):
            chosen = order[start : start + self.settings.batch]
            images = self.train.images[chosen]
            mirrored = self._rng.random(len(chosen)) < 0.5
            images[mirrored] = images[mirrored, :, :, ::-1]
            if self.settings.shift:
                images = shifted(images, self.settings.shift, self._rng)
            yield to_float(images), self.train.labels[chosen]


def _bytes(arrays: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in arrays.values()) + MORE_BYTES


def _optimizer(network: Network, settings: Settings) -> Adam | Muon:
    trained = {name: p for name, p in network.parameters().items() if not isinstance(p, Running)}
    if not settings.muon:
        return Adam(trained, decay=settings.decay)
    hidden = [
        f"{name}.{key}"
        for name, layer in network.layers.items()
        if isinstance(layer, Residual)
        for key, parameter in layer.parameters().items()
        if parameter.value.ndim == 2
    ]
    return Muon(trained, hidden, settings.decay)


def shifted(images: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Shift images (N, C, H, W) by up to ``most`` pixels in both directions. Uncovered pixels become 0."""
    N, _, H, W = images.shape
    padded = np.pad(images, ((0, 0), (0, 0), (most, most), (most, most)))
    down, across = rng.integers(0, 2 * most + 1, (2, N))
    return np.asarray(sliding_window_view(padded, (H, W), (2, 3))[np.arange(N), :, down, across])


def predict(network: Network, images: np.ndarray) -> np.ndarray:
    """Classify images (N, C, H, W) uint8. The result has shape (N,). Slices limit the memory."""
    slices = (images[n : n + PREDICT_BATCH] for n in range(0, len(images), PREDICT_BATCH))
    return np.concatenate([network.predict(to_float(part)) for part in slices])
