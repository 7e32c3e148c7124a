"""Measure the slowdown of counted mode relative to checked mode, in CPU time.

``python benchmarks/counters_time.py``

Both modes run the same problem alternately, several times, and the median ratio counts, because other work on
the machine slows down both. Kernels are compiled before the measurement. The output is a table.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from command_line import parser_of, positive

from mini_dnn.cli import status_of
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.device.emulator.counted import CountedEmulator
from mini_dnn.device.emulator.emulator import EmulatorDevice
from mini_dnn.running.runner import run
from mini_dnn.variant import find

CASES = (
    ("m1/direct", "8,1,86,86,4,7,7"),
    ("m1/tiled_direct", "8,1,86,86,4,7,7"),
    ("m2/unroll_gemm", "8,1,86,86,4,7,7"),
    ("m3/fusion", "8,1,86,86,4,7,7"),
    ("m3/register_tiling", "8,1,86,86,4,7,7"),
    ("m3/stack_2", "8,1,86,86,4,7,7"),
    ("layers/custom", "8,1,86,86,4,7,7"),
    ("conv2d_padded/v0_naive", "2,16,28,28,32,3,3,1,1,0,fp32,nchw"),
    ("gemm/v0_naive", "128,128,128"),
    ("gemm/v2_tiled", "128,128,128"),
    ("gemm/v8_final", "256,256,256,fp16"),
    ("attention/v1_shared", "1,2,197,64"),
    ("attention/v9_final", "1,2,197,64"),
    ("softmax/v0_naive", "2000,100"),
)


def seconds(device: EmulatorDevice, action: Callable[[EmulatorDevice], object]) -> float:
    """Return the CPU time of all threads of this process."""
    before = time.process_time()
    action(device)
    return time.process_time() - before


def compared(
    name: str, shape: str, repeats: int, theirs: EmulatorDevice, ours: EmulatorDevice, digits: int = 2
) -> str:
    """Return a row: name, problem, the times of both modes, and the ratio. Both devices are closed."""
    variant = find(name)
    problem = variant.operation.parse(shape)
    inputs = variant.operation.inputs(problem, seed=0)

    def action(device: EmulatorDevice) -> object:
        return run(variant, problem, inputs, device)

    with closing(theirs), closing(ours):
        action(theirs), action(ours)
        pairs = [(seconds(theirs, action), seconds(ours, action)) for _ in range(repeats)]
    ratio = statistics.median(after / before for before, after in pairs)
    before, after = (statistics.median(one) for one in zip(*pairs, strict=True))
    return f"| `{name}` | {problem} | {before:.{digits}f} | {after:.{digits}f} | {ratio:.2f} |"


def main(words: Sequence[str] | None = None) -> int:
    """Print a row for each case."""
    parser = parser_of(__doc__)
    parser.add_argument(
        "--repeats", type=positive, default=5, help="pairs of runs that count (default: %(default)s)"
    )
    args = parser.parse_args(words)
    print("| variant | problem | checked, s | counted, s | ratio |\n| --- | --- | ---: | ---: | ---: |")
    for name, shape in CASES:
        devices = CheckedEmulator(), CountedEmulator(threads=1)
        print(compared(name, shape, args.repeats, *devices), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
