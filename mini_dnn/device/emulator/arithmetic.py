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

from mini_dnn.device.emulator.symbols import _output, _tool

BLOCK = "__sanitizer_cov_trace_pc"
LINE = re.compile(
    r"^ +(?P<at>[0-9a-f]+):\t(?P<word>\w+)(?: +(?P<operands>[^#\n]*?))?(?: *#.*)?$", re.MULTILINE
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
# Integers, comparisons and branches: a GPU has about as many, and some 20 for a division.
OTHER = re.compile(r"add|sub|i?mul|lea|sh[lr]|sar|and|or|xor|neg|not|cmp|test|cmov\w+|set\w+|j\w+")
HALVES = re.compile(
    r"v(?:fn?m(?:add|sub)\d+|add|sub|mul|max|min)ps"
)  # an operation of half2, between conversions
DIVISION, DIVISION_COUNT = re.compile(r"i?div"), 20
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
    instructions a GPU needs beside.
    """
    text = _output(_tool("objdump"), "-d", "--no-show-raw-insn", "-j", ".text", str(library))
    starts: list[int] = []
    found: list[tuple[int, str, int]] = []
    waiting = False  # for the address behind a call, which is what the counters know
    for line in LINE.finditer(text):
        at, word = int(line["at"], 16), line["word"]
        if waiting:
            starts.append(at)
            waiting = False
        if word == "call":
            name = CALLED.search(line["operands"] or "")
            if name and name["name"] == BLOCK:
                waiting = True
            elif name and name["name"] in SPECIAL:
                found.append((at, "special", SPECIAL[name["name"]]))
        elif scalar := SCALAR.fullmatch(word):
            found.append((at, KINDS.get(scalar["what"], "ffma"), 1))
        elif OTHER.fullmatch(word) or HALVES.fullmatch(word):
            found.append((at, "other", 1))
        elif DIVISION.fullmatch(word):
            found.append((at, "other", DIVISION_COUNT))
    return tuple(
        Operation(at, starts[i - 1], kind, count)
        for at, kind, count in found
        if (i := bisect_right(starts, at))
    )


def by_kind(library: Path) -> dict[int, Counter[str]]:
    """How many operations of each kind a basic block has, by its pc."""
    found: dict[int, Counter[str]] = {}
    for operation in operations(library):
        found.setdefault(operation.block, Counter())[operation.kind] += operation.count
    return found
