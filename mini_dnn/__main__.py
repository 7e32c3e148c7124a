"""The command line as a module: ``python -m mini_dnn``."""

import sys

from mini_dnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
