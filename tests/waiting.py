"""Waiting for other processes, however slow the machine is."""

import time
from collections.abc import Callable

PATIENCE_S = 300  # much more than anything here takes, but less than the time-out of a test


def wait_until(what: Callable[[], object], told: Callable[[], object] = lambda: "") -> None:
    """Return once ``what`` is true. If that takes too long, fail with the text that ``told`` returns."""
    end = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < end, told()
        time.sleep(0.02)
