#!/usr/bin/env python3
"""The command line: ``python run.py --batch 10000 --impl m3``; ``python run.py --help`` shows the verbs."""

import sys

if __name__ == "__main__":
    try:
        from mini_dnn.cli import main

        sys.exit(main())
    except KeyboardInterrupt:  # while the modules were imported
        print("interrupted", file=sys.stderr)
        sys.exit(130)
