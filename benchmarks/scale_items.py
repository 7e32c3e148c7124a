"""Functions of items, which tests and benchmarks compute and workers import."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mini_dnn.errors import DeviceError

Compute = Callable[[Any, int], Any]


@contextmanager
def empty(common: Mapping[str, Any]) -> Iterator[Compute]:
    """Nothing at all."""
    yield lambda value, seed: None


@contextmanager
def logged(common: Mapping[str, Any]) -> Iterator[Compute]:
    """The value, its seed, after some time; each computation is a line of a log."""

    def compute(value: Any, seed: int) -> Any:
        time.sleep(common.get("seconds", 0.0))
        while "wait" in common and not Path(common["wait"]).exists():
            time.sleep(0.02)
        with Path(common["log"]).open("a") as log:
            log.write(f"{value}\n")
        return [value, seed]

    yield compute


@contextmanager
def opened(common: Mapping[str, Any]) -> Iterator[Compute]:
    """The process that an item is computed in; when it is set up and when it ends are lines of a log."""

    def say(word: str) -> None:
        with Path(common["log"]).open("a") as log:
            log.write(f"{word}{os.getpid()}\n")

    say("+")
    yield lambda value, seed: os.getpid()
    say("-")


@contextmanager
def moody(common: Mapping[str, Any]) -> Iterator[Compute]:
    """What a value says: kill the worker, raise an error, or be itself."""

    def compute(value: Any, seed: int) -> Any:
        if value == "kills":
            os.kill(os.getpid(), signal.SIGKILL)
        if value == "raises":
            raise ValueError("so it goes")
        return value

    yield compute


@contextmanager
def refused(common: Mapping[str, Any]) -> Iterator[Compute]:
    """A set-up that fails."""
    raise DeviceError("there is no device")
    yield lambda value, seed: None


@contextmanager
def sleeping(common: Mapping[str, Any]) -> Iterator[Compute]:
    """As many seconds as the value says, without a processor."""
    yield lambda value, seed: time.sleep(value)
