"""Arithmetic of a counted kernel: how much of it is in each basic block, from the library's machine code.

A basic block begins with a call of ``__sanitizer_cov_trace_pc``, so its instructions are those up to the next
such call. What a block has times how often lanes run it is what the kernel computes.
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
CALLED = re.compile(r"<(?P<name>\w+)(?:@plt)?>")
# What g++ writes for one operation of single precision.
SCALAR = re.compile(r"v?(?P<what>fn?m(?:add|sub)(?:132|213|231)|add|sub|mul|div|sqrt)ss")
SPECIAL = {  # functions of the C library, and what a GPU needs of its unit for special functions
    "expf": 1,
    "exp2f": 1,
    "logf": 1,
    "log2f": 1,
    "sinf": 1,
    "cosf": 1,
    "tanhf": 2,  # an exponential and a reciprocal
    "erff": 1,
    "powf": 2,
}
# Integers, comparisons and branches: a GPU has about as many, and some 20 for a division. It has none for
# jumps between parts of a loop, which nvcc puts in order, for the stack, and for zeros.
OTHER = re.compile(
    r"(?:add|sub|i?mul|sh[lr]|sar|and|or|xor|neg|not|cmp|test)[bwlq]?|lea|cmov\w+|set\w+|j(?!mp)\w+"
)
# An address with an index; others are a constant, or an offset that is part of a load.
INDEXED = re.compile(r"\(%\w+,%\w+,\d\)")
STACK = re.compile(r"(?P<zero>%\w+),(?P=zero)|.*,%rsp")
HALVES = re.compile(r"v(?:fn?m(?:add|sub)\d+|add|sub|mul|max|min)ps")  # of half2, between conversions
CONVERSION = re.compile(r"vcvt(?:ph2ps|ps2ph)")  # of a half: a GPU needs none to compute with halves
DIVISION, DIVISION_COUNT = re.compile(r"i?div[lq]?"), 20
KINDS = {"add": "fadd", "sub": "fadd", "mul": "fmul", "div": "special", "sqrt": "special"}


@dataclass(frozen=True)
class Operation:
    """One operation in the machine code."""

    at: int  # its address
    block: int  # the pc of its basic block, as `CountedLaunch.totals` has it
    kind: str  # "ffma", "fadd", "fmul", "special", or "other": instructions that are no access either
    count: int = 1


@cache
def operations(library: Path) -> tuple[Operation, ...]:
    """All operations of single precision in the kernels of a library that was built for counted mode.

    Additions and subtractions are one kind; divisions, square roots and functions such as expf are
    "special". Work on halves and in tensor cores is not among them. "other" is an estimate of how many
    instructions a GPU needs beside; of the emulator's own headers it has those for halves alone.
    """
    text = _output(_tool("objdump"), "-dl", "--no-show-raw-insn", "-j", ".text", str(library))
    starts: list[int] = []
    conversions: list[tuple[int, str, int]] = []
    computes = False  # with halves
    found: list[tuple[int, str, int]] = []
    waiting = False  # for the address behind a call, which is what the counters know
    known: set[str] = set()  # addresses of this block: a load has an offset of its own
    own = False  # whether it is the emulator's code, which a GPU has instructions for
    for line in LINE.finditer(text):
        if line["file"]:
            own = line["file"].startswith(str(INCLUDE))
            continue
        at, word, operands = int(line["at"], 16), line["word"], line["operands"] or ""
        if waiting:
            starts.append(at)
            waiting = False
        if word == "call":
            name = CALLED.search(operands)
            if name and name["name"] == BLOCK:
                waiting = True
                known &= known if own else set()  # a block within a product of halves is none of a GPU
            elif name and name["name"] in SPECIAL:
                found.append((at, "special", SPECIAL[name["name"]]))
        elif scalar := SCALAR.fullmatch(word):
            found.append((at, KINDS.get(scalar["what"], "ffma"), 1))
        elif HALVES.fullmatch(word) or (not own and _is_other(word, operands, known)):
            computes |= bool(HALVES.fullmatch(word))
            found.append((at, "other", 1))
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


def by_kind(library: Path) -> dict[int, Counter[str]]:
    """How many operations of each kind a basic block has, by its pc."""
    found: dict[int, Counter[str]] = {}
    for operation in operations(library):
        found.setdefault(operation.block, Counter())[operation.kind] += operation.count
    return found
