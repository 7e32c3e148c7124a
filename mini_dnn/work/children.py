"""Set-up of a process that works for another one."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading


def end_with_parent() -> None:
    """Leave Ctrl-C to the parent process, and end when it has ended. Call this first in a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = mp.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
