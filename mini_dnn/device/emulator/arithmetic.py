"""The arithmetic of a counted kernel, for each basic block, from the library's machine code.

A basic block begins with a call of ``__sanitizer_cov_trace_pc``, so its instructions are those up to the next
such call. The operations of a block, multiplied by how often lanes run it, are what the kernel computes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mini_dnn.device.emulator.symbols import INCLUDE, _output, _tool

BLOCK = "__sanitizer_cov_trace_pc"
LINE = re.compile(
    r"^(?: +(?P<at>[0-9a-f]+):\t(?P<word>\w+)(?: +(?P<operands>[^#\n]*?))?(?: *#.*)?|(?P<file>/.*):\d+.*)$",
    re.MULTILINE,
)
COMPUTED = "/tf32.h"  # the only header of the emulator whose code a GPU also executes
CALLED = re.compile(r"<(?P<name>\w+)(?:@plt)?>")
# The instructions of g++ for one operation in single precision.
SCALAR = re.compile(r"v?(?P<what>fn?m(?:add|sub)(?:132|213|231)|add|sub|mul|div|sqrt)ss")
# Functions of the C library: the instructions on a GPU's special function unit, and roughly how many other
# instructions nvcc 13 adds for sm_90, on the path of ordinary arguments.
SPECIAL = {
    "expf": (1, 7),
    "exp2f": (1, 3),
    "logf": (1, 18),
    "log2f": (1, 18),
    "sinf": (1, 20),
    "cosf": (1, 20),
    "tanhf": (2, 9),  # an exponential and a reciprocal
    "erff": (1, 20),
    "powf": (2, 50),
}
ROUNDED = {"div": 9, "sqrt": 8}  # likewise, including Newton iterations and a test for the slow path
# Integers, comparisons and branches. A GPU has about as many of them, and about 25 for a division. It has
# none for jumps between the parts of a loop, which nvcc arranges in order, for the stack, and for zeros.
OTHER = re.compile(
    r"(?:add|sub|i?mul|sh[lr]|sar|and|or|xor|neg|not|cmp|test)[bwlq]?|lea|cmov\w+|set\w+|j(?!mp)\w+"
)
# An address with an index. Other addresses are constant, or an offset that is part of a load.
INDEXED = re.compile(r"\(%\w+,%\w+,\d\)")
LONG = re.compile(r"%r(?:[a-d]x|[sd]i|[bs]p|\d+)(?![bdw\d])")  # a 64-bit register
MEMORY = re.compile(r"\([^)]*\)")  # an address, which is no part of the operation
PRODUCT_COUNT = 4  # for a 64-bit product
STACK = re.compile(r"(?P<zero>%\w+),(?P=zero)|.*,%rsp")
HALVES = re.compile(r"v(?:fn?m(?:add|sub)\d+|add|sub|mul|max|min)ps")  # of half2, between conversions
CONVERSION = re.compile(r"vcvt(?:ph2ps|ps2ph)")  # to or from half; a GPU computes with halves directly
DIVISION, DIVISION_COUNT = re.compile(r"i?div[lq]?"), 25
KINDS = {"add": "fadd", "sub": "fadd", "mul": "fmul", "div": "special", "sqrt": "special"}


@dataclass(frozen=True)
class Operation:
    """One operation in the machine code."""

    at: int  # its address
    block: int  # the pc of its basic block, as in `CountedLaunch.totals`
    kind: str  # "ffma", "fadd", "fmul", "special", or "other": instructions other than accesses
    count: int = 1


@cache
def operations(library: Path) -> tuple[Operation, ...]:
    """Return all single-precision operations in the kernels of a library that was built for counted mode.

    Additions and subtractions are one kind. Divisions, square roots and functions such as expf are "special".
    Arithmetic on halves and in tensor cores is not included. "other" estimates how many further instructions
    a GPU needs. Of the emulator's own headers, it only includes those for halves.
    """
    text = _output(_tool("objdump"), "-dl", "--no-show-raw-insn", "-j", ".text", str(library))
    starts: list[int] = []
    conversions: list[tuple[int, str, int]] = []
    computes = False  # with halves
    found: list[tuple[int, str, int]] = []
    waiting = False  # for the address after a call, which is the pc of the counters
    known: set[str] = set()  # addresses in this block: a load has a constant offset
    own = False  # whether it is the emulator's code without a counterpart on a GPU
    for line in LINE.finditer(text):
        if line["file"]:
            own = line["file"].startswith(str(INCLUDE)) and not line["file"].endswith(COMPUTED)
            continue
        at, word, operands = int(line["at"], 16), line["word"], line["operands"] or ""
        if waiting:
            starts.append(at)
            waiting = False
        if word == "call":
            name = CALLED.search(operands)
            if name and name["name"] == BLOCK:
                waiting = True
                known &= known if own else set()  # a block within a product of halves does not exist on a GPU
            elif name and name["name"] in SPECIAL:
                found += zip((at, at), ("special", "other"), SPECIAL[name["name"]], strict=True)
        elif scalar := SCALAR.fullmatch(word):
            found.append((at, KINDS.get(scalar["what"], "ffma"), 1))
            found.append((at, "other", ROUNDED.get(scalar["what"], 0)))
        elif HALVES.fullmatch(word) or (not own and _is_other(word, operands, known)):
            computes |= bool(HALVES.fullmatch(word))
            found.append((at, "other", _parts(word, operands)))
        elif CONVERSION.fullmatch(word):
            conversions.append((at, "other", 1))
        elif own:
            continue
        elif DIVISION.fullmatch(word):
            found.append((at, "other", DIVISION_COUNT))
    found = sorted(found + conversions * (not computes))
    return tuple(
        Operation(at, starts[i - 1], kind, count)
        for at, kind, count in found
        if (i := bisect_right(starts, at))
    )


def _is_other(word: str, operands: str, known: set[str]) -> bool:
    if word != "lea":
        return bool(OTHER.fullmatch(word)) and not (word != "test" and STACK.fullmatch(operands))
    indexed = INDEXED.search(operands)
    if not indexed or indexed[0] in known:
        return False
    known.add(indexed[0])
    return True


def _parts(word: str, operands: str) -> int:
    """Return how many instructions an integer operation needs on a GPU, which computes in 32 bits."""
    result = operands if word.startswith(("cmp", "test")) else operands.rpartition(",")[2]
    if word.startswith(("lea", "j", "set")) or not LONG.search(MEMORY.sub("", result)):
        return 1  # an address is a 32-bit product added to 64 bits: one instruction
    return PRODUCT_COUNT if word.startswith(("mul", "imul")) else 2


def by_kind(library: Path) -> dict[int, Counter[str]]:
    """Count the operations of each kind in each basic block, by its pc."""
    found: dict[int, Counter[str]] = {}
    for operation in operations(library):
        found.setdefault(operation.block, Counter())[operation.kind] += operation.count
    return found
