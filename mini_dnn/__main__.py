"""The command line as a module: ``python -m mini_dnn``."""

import sys

if __name__ == "__main__":
    try:
        from mini_dnn.cli import main

        sys.exit(main())
    except KeyboardInterrupt:  # during the import of modules
        print("interrupted", file=sys.stderr)
        sys.exit(130)
