"""Set-up of a process that serves another one."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import threading


def end_with_parent() -> None:
    """Called first in a process: it leaves Ctrl-C to its parent, and ends when the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = mp.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
