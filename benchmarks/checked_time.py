"""Measure the slowdown of checked mode relative to the fast mode, in CPU time.

``python benchmarks/checked_time.py``

Both modes run the same problem alternately, several times, and the median ratio counts, because other work on
the machine slows down both. The fast mode uses one thread. Kernels are compiled before the measurement. The
output is a table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from command_line import parser_of, positive
from counters_time import compared

from mini_dnn.cli import status_of
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.device.emulator.emulator import EmulatorDevice

NAMES = ("m3/fusion", "m3/stack_1", "m3/stack_2")
SHAPES = ("8,1,86,86,4,7,7", "8,4,40,40,16,7,7")


def main(words: Sequence[str] | None = None) -> int:
    """Print a row for each variant and layer."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--repeats", type=positive, default=5, help="pairs of runs that count (default: %(default)s)"
    )
    args = parser.parse_args(words)
    print("| variant | problem | fast, s | checked, s | ratio |\n| --- | --- | ---: | ---: | ---: |")
    for name in NAMES:
        for shape in SHAPES:
            devices = EmulatorDevice(threads=1), CheckedEmulator()
            print(compared(name, shape, args.repeats, *devices, digits=3), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
