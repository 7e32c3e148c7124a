"""The output of nvcc for a kernel file: PTX or machine code (SASS), each instruction with its source line.

The file is compiled as for a run. Registers, spills and shared memory are taken from the report of ptxas, and
machine code is read with nvdisasm.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.device.base import Defines
from mini_dnn.device.cache import work
from mini_dnn.device.nvcc import PTX, accepted, nvcc_arch, require_nvcc
from mini_dnn.device.tools import find_tool
from mini_dnn.errors import MiniDnnError

SASS = "sass"
RESOURCES = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)'.*?"
    r"(?P<spilled>\d+) bytes spill stores, (?P<loaded>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
SHARED = re.compile(r"(\d+) bytes smem")
# SASS, in the format of nvdisasm
SASS_KERNEL = re.compile(r"^\.text\.(\w+):")
SASS_PLACE = re.compile(r'^\s*//## File "(?P<file>[^"]+)", line (?P<line>\d+)')
SASS_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?P<text>.*?)\s*;")
# PTX
PTX_FILE = re.compile(r'^\s*\.file\s+(?P<number>\d+)\s+"(?P<file>[^"]+)"', re.MULTILINE)
PTX_KERNEL = re.compile(r"^\s*(?:\.visible |\.weak )?\.entry (\w+)")
PTX_PLACE = re.compile(r"^\s*\.loc\s+(?P<file>\d+) (?P<line>\d+)")
PTX_INSTRUCTION = re.compile(r"^\s*(?P<text>(?:@!?%p\d+\s+)?[a-z][\w.:]*(?:\s[^;]*)?);")
LABEL = re.compile(r"^\s*(?P<label>[.$]L\w+):")
OPCODE = re.compile(r"(?:@!?%?\w+\s+)?(?P<opcode>(?:ld|st)\.[a-z]+|[A-Za-z]\w*)")
PADDING = "NOP"


@dataclass(frozen=True)
class Instruction:
    """One instruction, or a label (without an opcode), and its source line."""

    text: str
    opcode: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class Resources:
    """The resources of a kernel: registers per thread, and bytes of the others per thread or block."""

    registers: int
    spilled_bytes: int
    loaded_bytes: int
    shared_bytes: int

    def __str__(self) -> str:
        """Describe the resources on one line."""
        spills = f"{self.spilled_bytes} bytes spilled, {self.loaded_bytes} loaded again"
        none = "no spills"
        return (
            f"{self.registers} registers per thread, "
            f"{spills if self.spilled_bytes or self.loaded_bytes else none}, "
            f"{self.shared_bytes:,} bytes of static shared memory per block"
        )


@dataclass(frozen=True)
class Compiled:
    """A compiled kernel."""

    name: str
    resources: Resources
    code: tuple[Instruction, ...]

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each instruction occurs, most frequent first, without padding."""
        found = Counter(one.opcode for one in self.code if one.opcode not in ("", PADDING))
        return dict(found.most_common())


def assemble(source: Path, defines: Defines, arch: int, language: str) -> list[Compiled]:
    """Compile a file and return its kernels.

    Parameters
    ----------
    arch
        Compute capability times ten.
    language
        `PTX` or `SASS`.

    Raises
    ------
    DeviceError
        nvcc is not installed, or nvdisasm is missing, which SASS needs.
    CompileError
        The file does not compile.
    """
    nvcc = require_nvcc(f"--{language} shows the code that it makes")
    disassembler = find_tool("nvdisasm") if language == SASS else None
    output = accepted(nvcc, source, defines, nvcc_arch(arch))
    if disassembler:
        text = _disassembled(disassembler, output.code)
    else:
        text = accepted(nvcc, source, defines, nvcc_arch(arch), PTX).code.decode()
    code = dict(sass(text) if language == SASS else ptx_code(text))
    known = resources(output.said)
    return [Compiled(name, known[name], tuple(lines)) for name, lines in code.items() if name in known]


def resources(said: str) -> dict[str, Resources]:
    """Parse the report of ptxas about each kernel."""
    found = {}
    for match in RESOURCES.finditer(said):
        shared = SHARED.search(match["rest"])
        registers, spilled, loaded = (int(match[name]) for name in ("registers", "spilled", "loaded"))
        found[match["kernel"]] = Resources(registers, spilled, loaded, int(shared[1]) if shared else 0)
    return found


def sass(text: str) -> Iterator[tuple[str, list[Instruction]]]:
    """Parse the output of nvdisasm into kernels with their instructions.

    An instruction of an inlined function has the line of that function.
    """
    code: list[Instruction] = []
    file, line = "", 0
    for row in text.splitlines():
        if match := SASS_KERNEL.match(row):
            code, file, line = [], "", 0
            yield match[1], code
        elif match := SASS_PLACE.match(row):
            file, line = match["file"], int(match["line"])
        elif match := SASS_INSTRUCTION.match(row):
            code.append(_instruction(match["text"], file, line))
        elif match := LABEL.match(row):
            code.append(Instruction(f"{match['label']}:", ""))


def ptx_code(text: str) -> Iterator[tuple[str, list[Instruction]]]:
    """Parse PTX into kernels with their instructions."""
    files = {match["number"]: match["file"] for match in PTX_FILE.finditer(text)}
    code: list[Instruction] = []
    file, line = "", 0
    for row in text.splitlines():
        if match := PTX_KERNEL.match(row):
            code, file, line = [], "", 0
            yield match[1], code
        elif match := PTX_PLACE.match(row):
            if match["line"] != "0":
                file, line = files.get(match["file"], ""), int(match["line"])
        elif match := PTX_INSTRUCTION.match(row):
            code.append(_instruction(" ".join(match["text"].split()), file, line))
        elif match := LABEL.match(row):
            code.append(Instruction(f"{match['label']}:", ""))


def _instruction(text: str, file: str, line: int) -> Instruction:
    match = OPCODE.match(text)
    return Instruction(text, match["opcode"] if match else "", file, line)


def _disassembled(disassembler: Path, cubin: bytes) -> str:
    with work() as folder:
        file = folder / "kernel.cubin"
        file.write_bytes(cubin)
        command = [str(disassembler), "-c", "-g", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise MiniDnnError(f"{disassembler} cannot read what nvcc wrote: {done.stderr.strip()}")
    return done.stdout
