"""Waiting for what other processes do, however slow the machine is."""

import time
from collections.abc import Callable

PATIENCE_S = 300  # far above what anything here takes, and below the time-out of a test


def wait_until(what: Callable[[], object], told: Callable[[], object] = lambda: "") -> None:
    """Return once ``what`` is true; if it never is, fail with what ``told`` answers."""
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, told()
        time.sleep(0.02)
