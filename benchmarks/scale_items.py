"""Functions of items for tests and benchmarks, which workers import."""

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
    """Do nothing."""
    yield lambda value, seed: None


@contextmanager
def logged(common: Mapping[str, Any]) -> Iterator[Compute]:
    """Return the value and its seed after some time. Each computation appends a line to a log."""

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
    """Return the process that computes an item. The log has lines for its set-up and its end."""

    def say(word: str) -> None:
        with Path(common["log"]).open("a") as log:
            log.write(f"{word}{os.getpid()}\n")

    say("+")
    yield lambda value, seed: os.getpid()
    say("-")


@contextmanager
def moody(common: Mapping[str, Any]) -> Iterator[Compute]:
    """Do what the value says: kill the worker, raise an error, or return the value."""

    def compute(value: Any, seed: int) -> Any:
        if value == "kills":
            os.kill(os.getpid(), signal.SIGKILL)
        if value == "raises":
            raise ValueError("so it goes")
        return value

    yield compute


@contextmanager
def refused(common: Mapping[str, Any]) -> Iterator[Compute]:
    """Fail during the set-up."""
    raise DeviceError("there is no device")
    yield lambda value, seed: None


@contextmanager
def sleeping(common: Mapping[str, Any]) -> Iterator[Compute]:
    """Sleep as many seconds as the value says."""
    yield lambda value, seed: time.sleep(value)
