#!/usr/bin/env python3
"""The command line: ``python run.py --batch 10000 --impl m3``; ``python run.py --help`` shows the verbs."""

import sys

from mini_dnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
