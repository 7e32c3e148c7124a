#!/usr/bin/env python3
"""The command line: ``python run.py --batch 10000 --impl m3``; ``python run.py --help`` shows the verbs."""

import sys

if __name__ == "__main__":
    try:
        from mini_dnn.cli import main

        sys.exit(main())
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "mini_dnn":
            raise
        print(
            f"error: {sys.executable} has no package '{error.name}'. Run 'make setup' once, then "
            "'. .venv/bin/activate' in each shell",
            file=sys.stderr,
        )
        sys.exit(2)
    except KeyboardInterrupt:  # this may happen while the modules are imported
        print("interrupted", file=sys.stderr)
        sys.exit(130)
