"""Machine code of x86-64 as data: the functions of a compiled library, instruction by instruction.

The source is the output of ``objdump -d`` in AT&T syntax. Instructions unknown to objdump appear as
``(bad)``, which is never allowed.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from mini_dnn.errors import CompileError

HEAD = re.compile(r"^[0-9a-f]+ <(?P<name>.*)>:$")
SECTION = re.compile(r"^Disassembly of section (?P<name>.*):$")
LINE = re.compile(r"^ *(?P<at>[0-9a-f]+):\t(?P<text>.*)$")
TARGET = re.compile(r"^(?P<at>[0-9a-f]+) <(?P<name>.*)>$")
COMMENT = re.compile(r"\s+# (?P<at>[0-9a-f]+)(?: <(?P<name>.*)>)?$")
PREFIXES = ("data16", "rex.W", "notrack", "bnd", "cs", "ds", "es", "ss", "addr32")
REPEATS = ("rep", "repz", "repnz", "lock")
MEMORY = re.compile(
    r"(?:%(?P<segment>\ws):)?(?P<offset>-?0x[0-9a-f]+|-?\d+)?"
    r"(?P<inside>\((?:%(?P<base>\w+))?(?:,(?:%(?P<index>\w+))?(?:,(?P<scale>\d))?)?\))?"
)
OPERANDS = re.compile(r"(?:\([^)]*\)|\{[^}]*\}|[^,(){}])+")


@dataclass(frozen=True)
class Memory:
    """An operand in memory: base + scale * index + offset. Addresses relative to ``rip`` are resolved."""

    base: str
    index: str
    scale: int
    offset: int
    segment: str
    name: str  # objdump's name of the place, if it is at a known address


@dataclass(frozen=True)
class Instruction:
    """One instruction."""

    at: int
    name: str
    operands: tuple[str | Memory, ...]
    target: int | None = None  # of a jump or a call
    target_name: str = ""
    repeated: str = ""  # the prefix: rep, lock ...
    text: str = ""


@dataclass
class Function:
    """The code of one symbol."""

    name: str
    section: str
    code: list[Instruction] = field(default_factory=list)


def disassemble(objdump: str, library: Path) -> list[Function]:
    """Return the functions of a library, in the order of their addresses.

    Raises
    ------
    CompileError
        The library cannot be read.
    """
    words = [objdump, "-d", "-w", "--no-show-raw-insn", "-M", "suffix", str(library)]
    environment = {**os.environ, "LC_ALL": "C"}  # objdump translates its output
    done = subprocess.run(
        words, capture_output=True, text=True, errors="replace", check=False, env=environment
    )
    if done.returncode:
        raise CompileError(f"the compiled kernels cannot be read: {done.stderr.strip()}")
    functions: list[Function] = []
    section = ""
    for line in done.stdout.split("\n"):
        if match := LINE.match(line):
            if functions:
                functions[-1].code.append(_instruction(int(match["at"], 16), match["text"]))
        elif match := HEAD.match(line):
            functions.append(Function(match["name"], section))
        elif match := SECTION.match(line):
            section = match["name"]
    return functions


def _instruction(at: int, text: str) -> Instruction:
    comment = COMMENT.search(text)
    words = text[: comment.start()].split() if comment else text.split()
    repeated = ""
    while words and words[0] in (*PREFIXES, *REPEATS):
        repeated = words[0] if words[0] in REPEATS else repeated
        words.pop(0)
    name, rest = (words[0], " ".join(words[1:])) if words else ("", "")
    target = TARGET.match(rest)
    if target:
        return Instruction(at, name, (), int(target["at"], 16), target["name"], repeated, text)
    operands = tuple(_operand(part.strip(), comment) for part in OPERANDS.findall(rest))
    return Instruction(at, name, operands, None, "", repeated, text)


def _operand(text: str, comment: re.Match[str] | None) -> str | Memory:
    """Parse an operand: a register or an immediate as text, or a place in memory."""
    if text.startswith(("$", "*%", "{")) or (text.startswith("%") and ":" not in text):
        return text.split("{")[0] or text
    match = MEMORY.fullmatch(text.split("{")[0].lstrip("*"))
    if match is None:
        return Memory("?", "?", 1, 0, "", text)
    if match["base"] == "rip":
        place = int(comment["at"], 16) if comment else -1
        return Memory("", "", 1, place, match["segment"] or "", (comment and comment["name"]) or "")
    return Memory(
        match["base"] or "",
        match["index"] or "",
        int(match["scale"] or 1),
        int(match["offset"] or "0", 0),
        match["segment"] or "",
        "",
    )
