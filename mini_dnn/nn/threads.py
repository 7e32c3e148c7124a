"""Threads of ours in place of BLAS's: passes of a batch in parts, each by one thread.

Outside of BLAS a NumPy step runs on one core, and BLAS's threads wait for each other after each product.
Parts of a batch that stay in the cache, each with a thread of its own, keep all cores busy. NumPy releases
the interpreter's lock while it computes, so that threads are enough.
"""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from typing import TypeVar

import numpy as np

from mini_dnn.nn.loss import softmax_cross_entropy
from mini_dnn.nn.network import Network
from mini_dnn.nn.numpy_conv import cores

Result = TypeVar("Result")

_OPENBLAS = ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}")  # by NumPy's build


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let OpenBLAS compute each product on the thread that asks for it; another BLAS stays as it is."""
    functions = _openblas()
    if functions is None:
        yield
        return
    get, set_ = functions
    before = get()
    set_(1)
    try:
        yield
    finally:
        set_(before)


@cache
def _openblas() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """OpenBLAS's own functions, from the library that NumPy has loaded."""
    module = import_module("numpy.linalg._umath_linalg")
    library = ctypes.CDLL(str(module.__file__))  # finds what this depends on, too
    for pattern in _OPENBLAS:
        names = pattern.format("get_num_threads"), pattern.format("set_num_threads")
        if all(hasattr(library, name) for name in names):
            get, set_ = (getattr(library, name) for name in names)
            return get, set_
    return None


def in_threads(work: Sequence[Callable[[], Result]]) -> list[Result]:
    """What the functions return, each from a thread of its own."""
    if len(work) == 1:
        return [work[0]()]
    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(lambda function: function(), work))


class Passes:
    """Forward and backward passes of a batch, whose gradients end in the network's parameters.

    Sums over parts are formed in the order of the parts, so that bits do not depend on the number of threads.

    Parameters
    ----------
    network
        Gives logits.
    part
        Images that a thread takes at a time; 0 for the whole batch at once, on this thread.
    """

    def __init__(self, network: Network, part: int = 0) -> None:
        self.network, self.part = network, part
        self._twins = [_twin(network) for _ in range(cores())] if part else []

    def __call__(self, x: np.ndarray, labels: np.ndarray) -> float:
        """Mean loss of a batch; its gradients are stored."""
        if not self.part:
            return _both_ways(self.network, x, labels, len(x))
        starts = range(0, len(x), self.part)
        used = self._twins[: len(starts)]

        def work(thread: int) -> list[tuple[float, list[np.ndarray]]]:
            twin = used[thread]
            found = []
            for start in starts[thread :: len(used)]:
                some = slice(start, start + self.part)
                loss = _both_ways(twin, x[some], labels[some], len(x))
                found.append((loss, [parameter.grad for parameter in twin.parameters().values()]))
            return found

        of_threads = in_threads([partial(work, thread) for thread in range(len(used))])
        parts = [of_threads[i % len(used)][i // len(used)] for i in range(len(starts))]
        for i, parameter in enumerate(self.network.parameters().values()):
            parameter.grad = sum((grads[i] for _, grads in parts[1:]), start=parts[0][1][i])
        return sum(loss for loss, _ in parts)


def _both_ways(network: Network, x: np.ndarray, labels: np.ndarray, count: int) -> float:
    """Loss and gradients of some images, as shares of those of ``count`` images."""
    loss, dlogits = softmax_cross_entropy(network.forward(x, training=True), labels)
    share = len(x) / count
    if share != 1:
        dlogits *= dlogits.dtype.type(share)
    network.backward(dlogits)
    return loss * share


def _twin(network: Network) -> Network:
    """The same network with the same arrays of parameters, but gradients and saved values of its own."""
    shared = {id(parameter.value): parameter.value for parameter in network.parameters().values()}
    return copy.deepcopy(network, shared)
