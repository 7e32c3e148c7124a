"""Process the parts of a batch in separate processes, so that a training in NumPy uses all cores.

Outside of BLAS, NumPy runs on one core, and BLAS's threads wait for each other after each product. Here, each
core works independently on a part of the batch that stays in its cache. Parameters and gradients are in
memory that all processes share, and they exchange little else. Threads instead of processes would wait for
the interpreter's lock, which thousands of small NumPy calls per second need.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np

from mini_dnn.errors import MiniDnnError
from mini_dnn.nn.layer import Parameter, Running
from mini_dnn.nn.loss import softmax_cross_entropy
from mini_dnn.nn.network import Network
from mini_dnn.nn.numpy_conv import cores
from mini_dnn.work.children import SPAWN

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
PREDICTED = 100  # images that a worker classifies at a time
Parameters = Mapping[str, Parameter]


class WorkerError(MiniDnnError):
    """A worker that ended unexpectedly."""


def both_ways(network: Network, x: np.ndarray, labels: np.ndarray, count: int) -> float:
    """Compute loss and gradients of some images, as their part of the mean over ``count`` images."""
    loss, dlogits = softmax_cross_entropy(network.forward(x, training=True), labels)
    share = len(x) / count
    if share != 1:
        dlogits *= dlogits.dtype.type(share)
    network.backward(dlogits)
    if share != 1:
        for parameter in network.parameters().values():
            if isinstance(parameter, Running):
                parameter.grad *= parameter.grad.dtype.type(share)
    return loss * share


class Workers:
    """Processes that each have a copy of a network, whose parameters they share.

    Sums over parts are computed in the order of the parts, so the bits do not depend on the number of
    workers. Use it in a ``with`` statement, at whose end the processes end.

    Parameters
    ----------
    network
        Computes logits. Its parameters are moved to shared memory.
    batch, part
        The images of a step, and of each part of it.
    count
        The number of processes; by default one per core, and at most one per part.

    Raises
    ------
    WorkerError
        A worker ended unexpectedly.
    """

    def __init__(self, network: Network, batch: int, part: int, count: int | None = None) -> None:
        self.network, self.part = network, part
        parts = -(-batch // part)
        values = [parameter.value for parameter in network.parameters().values()]
        dtype, size = values[0].dtype, sum(value.size for value in values)
        shared = RawArray("b", size * dtype.itemsize)
        gradients = RawArray("b", parts * size * dtype.itemsize)
        flat = np.frombuffer(shared, dtype)
        flat[:] = np.concatenate([value.reshape(-1) for value in values])
        _lay(network.parameters(), flat, "value")
        self._gradients = np.frombuffer(gradients, dtype).reshape(parts, size)
        self._pipes: list[Connection] = []
        with ExitStack() as stack, _environment(ONE_THREAD):  # BLAS reads it when a worker starts
            for _ in range(min(count or cores(), parts)):
                ours, theirs = SPAWN.Pipe()
                process = SPAWN.Process(
                    target=_work, args=(theirs, network, shared, gradients, part), daemon=True
                )
                process.start()
                theirs.close()
                self._pipes.append(ours)
                stack.callback(process.join)
                # Before the one above: a worker ends when its pipe is closed
                stack.callback(ours.close)
            self._stack = stack.pop_all()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def step(self, x: np.ndarray, labels: np.ndarray) -> float:
        """Compute the mean loss of a batch, and store its gradients in the network's parameters."""
        parts = range(-(-len(x) // self.part))
        given: list[list[Any]] = [[] for _ in self._pipes]
        for i in parts:
            some = slice(i * self.part, (i + 1) * self.part)
            given[i % len(given)].append((i, x[some], labels[some], len(x)))
        losses = dict(pair for pairs in self._ask("step", given) for pair in pairs)
        total = self._gradients[0].copy()
        for i in parts[1:]:
            total += self._gradients[i]
        _lay(self.network.parameters(), total, "grad")
        return float(sum(losses[i] for i in parts))

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Classes (N,) of images (N, C, H, W)."""
        slices = [x[n : n + PREDICTED] for n in range(0, len(x), PREDICTED)]
        given = [slices[worker :: len(self._pipes)] for worker in range(len(self._pipes))]
        found = self._ask("predict", given)
        return np.concatenate([found[i % len(given)][i // len(given)] for i in range(len(slices))])

    def _ask(self, what: str, given: Sequence[Any]) -> list[Any]:
        try:
            for pipe, work in zip(self._pipes, given, strict=True):
                pipe.send((what, work))
            found = [pipe.recv() for pipe in self._pipes]
        except (EOFError, OSError) as error:
            raise WorkerError(
                "a process of the training ended unexpectedly, for example because of too little memory; a "
                "training with a smaller --batch needs less"
            ) from error
        for answer in found:
            if isinstance(answer, Exception):
                raise answer
        return found


def _work(pipe: Connection, network: Network, shared: Any, gradients: Any, part: int) -> None:
    """Do the work of a worker until its pipe is closed. An error is sent as the result."""
    parameters = network.parameters()
    dtype = next(iter(parameters.values())).value.dtype
    flat = np.frombuffer(shared, dtype)
    _lay(parameters, flat, "value")
    rows = np.frombuffer(gradients, dtype).reshape(-1, flat.size)

    def step(i: int, x: np.ndarray, labels: np.ndarray, count: int) -> tuple[int, float]:
        loss = both_ways(network, x, labels, count)
        np.concatenate([parameter.grad.reshape(-1) for parameter in parameters.values()], out=rows[i])
        return i, loss

    with np.errstate(all="ignore"):  # numbers out of range are visible in the loss
        while True:
            try:
                what, work = pipe.recv()
            except (EOFError, OSError):
                return
            done: list[Any] | Exception
            try:
                if what == "step":
                    done = [step(*some) for some in work]
                else:
                    done = [network.predict(some) for some in work]
            except Exception as error:  # of a layer; the trainer raises it
                error.add_note(traceback.format_exc())
                done = error
            try:
                pipe.send(done)
            except OSError:  # the trainer has closed the pipe in the meantime
                return


def _lay(parameters: Parameters, flat: np.ndarray, what: str) -> None:
    """Make values or gradients views of one array, one after the other."""
    first = 0
    for parameter in parameters.values():
        last = first + parameter.value.size
        setattr(parameter, what, flat[first:last].reshape(parameter.value.shape))
        first = last


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the processes that are started within the context."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
