"""Checked mode relative to the fast mode, in CPU time: ``python benchmarks/checked_time.py``.

Both modes run the same problem one after the other, several times, and the middle of the ratios counts: a
machine that does other work slows down both. The fast mode has one thread. Kernels are compiled before. The
output is a table.
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import closing

from counters_time import seconds

from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.device.emulator.emulator import EmulatorDevice
from mini_dnn.running.runner import run
from mini_dnn.variant import find

NAMES = ("m3/fusion", "m3/stack_1", "m3/stack_2")
SHAPES = ("8,1,86,86,4,7,7", "8,4,40,40,16,7,7")


def row(name: str, shape: str, repeats: int) -> str:
    """Name, problem, both times and the ratio."""
    variant = find(name)
    problem = variant.operation.parse(shape)
    inputs = variant.operation.inputs(problem, seed=0)

    def action(device: EmulatorDevice) -> object:
        return run(variant, problem, inputs, device)

    with closing(EmulatorDevice(threads=1)) as fast, closing(CheckedEmulator()) as checked:
        action(fast), action(checked)
        pairs = [(seconds(fast, action), seconds(checked, action)) for _ in range(repeats)]
    ratio = statistics.median(ours / theirs for theirs, ours in pairs)
    theirs, ours = (statistics.median(one) for one in zip(*pairs, strict=True))
    return f"| `{name}` | {problem} | {theirs:.3f} | {ours:.3f} | {ratio:.1f} |"


def main() -> None:
    """Print a row for each variant and layer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=NAMES, help="variants")
    args = parser.parse_args()
    print("| variant | problem | fast, s | checked, s | ratio |\n| --- | --- | ---: | ---: | ---: |")
    for name in args.only:
        for shape in SHAPES:
            print(row(name, shape, args.repeats), flush=True)


if __name__ == "__main__":
    main()
