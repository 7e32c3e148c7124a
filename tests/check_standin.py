"""Stand-ins for a GPU and for compute-sanitizer, in separate processes, with the emulator's addresses.

As a script, this file is the watched program, on the emulator. Its ``sanitizer`` runs that program and then
prints a checker's report, in which ``@x+8@`` is replaced with the address 8 bytes into buffer x.
"""

import os
import pickle
import re
import sys
from pathlib import Path

from mini_dnn.checking import workload as check_workload
from mini_dnn.checking.verdicts import Allocation
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.finding import Target


class StandIn(EmulatorDevice):
    """An emulator with the attributes of a watched GPU."""

    def __init__(self, unfilled):
        super().__init__()
        self.allocations = []
        self.axes = {}

    def empty(self, name, shape, *rest, **more):
        buffer = super().empty(name, shape, *rest, **more)
        array = Target(name, "global", shape, buffer.dtype.itemsize, self.axes.get(name, ""))
        self.allocations.append(Allocation(array, buffer.address, buffer.nbytes))
        return buffer

    def static_shared_bytes(self, module):
        return lambda kernel: 0


def sanitizer(words: list[str], reports: dict[str, str], shape: str) -> int:
    """Behave like compute-sanitizer: print a checker's report if the program runs that shape."""
    program = words[words.index(sys.executable) :]
    child = os.fork()  # a new process would have to import everything again
    if child == 0:
        os._exit(watched(program[2:]))
    assert os.waitpid(child, 0)[1] == 0
    text = reports.get(words[words.index("--tool") + 1], "") if shape in program else ""
    runs = pickle.loads(Path(program[program.index("--runs") + 1]).read_bytes())
    start = {a.array.name: a.address for run in runs for a in run.allocations}
    text = re.sub(r"@(\w+)\+(\d+)@", lambda m: hex(start[m[1]] + int(m[2])), text)
    count = text.count("========= ") if text else 0
    log = Path(words[words.index("--log-file") + 1])
    log.write_text(f"========= COMPUTE-SANITIZER\n{text}========= ERROR SUMMARY: {count} errors\n")
    return int(words[words.index("--error-exitcode") + 1]) if text else 0


def watched(words: list[str]) -> int:
    """Run the watched program on the emulator."""
    check_workload.WatchedCudaDevice = StandIn
    sys.argv[1:] = words
    return check_workload.main()


if __name__ == "__main__":
    sys.exit(watched(sys.argv[1:]))
