#!/usr/bin/env python3
"""The command line: ``python run.py --batch 10000 --impl m3``; ``python run.py --help`` shows the verbs."""

import os
import signal
import sys


def _end(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:  # imported modules may catch its KeyboardInterrupt
        signal.signal(signal.SIGINT, _end)
    try:
        from mini_dnn.cli import main

        sys.exit(main(on_loaded=lambda: signal.signal(signal.SIGINT, interrupt)))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "mini_dnn":
            raise
        print(
            f"error: {sys.executable} has no package '{error.name}'. Run 'make setup' once, then "
            "'. .venv/bin/activate' in each shell",
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:  # before or after the work
        print("interrupted", file=sys.stderr)
        sys.exit(130)
