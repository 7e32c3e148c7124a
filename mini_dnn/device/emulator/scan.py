"""Find what the build must know about a kernel file: its kernels, and its dynamic shared arrays."""

from __future__ import annotations

import re
from dataclasses import dataclass

LINE_MARKER = re.compile(r'^# \d+ "(?:[^"\\]|\\.)*"(?P<flags>[ \d]*)$')
SYSTEM_HEADER = "3"  # flag in a line marker: GCC manual, "Preprocessor Output"
LATE_ALIGNAS = re.compile(r"(?:__shared__|\)\))\s*alignas\b")  # qualifiers become attributes: "... ))"
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
TOKEN = re.compile(
    r"""(?P<c_linkage>extern\s*"C")
      | "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)+'
      | (?P<kernel>\b__global__\b[^;{}()"]*?\b(?P<name>\w+)\s*\()
      | (?P<template>\btemplate\b)
      | (?P<mark>[;{}])""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Scan:
    """Names found in a preprocessed file, each once, in the order of the file."""

    kernels: tuple[str, ...]  # extern "C": these can be launched
    other_kernels: tuple[str, ...]  # without extern "C", or templates
    dynamic_shared: tuple[str, ...]  # extern __shared__ T name[]
    late_alignas: bool  # "__shared__ alignas(16) T x", which nvcc accepts and g++ does not


def scan(preprocessed: str) -> Scan:
    """Parse the output of ``g++ -E -DEMULATOR_SCAN``, in which CUDA's qualifiers are unchanged."""
    own = _own_text(preprocessed)
    text = ATTRIBUTE.sub(" ", own)
    kernels: dict[str, None] = {}
    others: dict[str, None] = {}
    blocks: list[bool] = []  # for each open brace: whether it belongs to extern "C" {
    in_c = is_template = False  # for the current declaration
    for token in TOKEN.finditer(text):
        if token["c_linkage"]:
            in_c = True
        elif token["template"]:
            is_template = True
        elif token["name"]:
            linkage = (in_c or any(blocks)) and not is_template
            (kernels if linkage else others)[token["name"]] = None
        elif token["mark"]:
            if token["mark"] == "{":
                before = text[max(0, token.start() - 80) : token.start()].rstrip()
                blocks.append(in_c and before.endswith('"C"'))
            elif token["mark"] == "}" and blocks:
                blocks.pop()
            in_c = is_template = False
    shared = {
        name: None
        for statement in re.split(r"[;{}]", text)
        if re.search(r"\bextern\b", statement) and re.search(r"\b__shared__\b", statement)
        for name in re.findall(r"(\w+)\s*\[\s*\]", statement)
    }
    return Scan(
        tuple(kernels),
        tuple(n for n in others if n not in kernels),
        tuple(shared),
        bool(LATE_ALIGNAS.search(own)),
    )


def _own_text(preprocessed: str) -> str:
    """The lines that come from the user's files, not from headers of the system or the emulator."""
    lines = []
    system = False
    for line in preprocessed.splitlines():
        marker = LINE_MARKER.match(line)
        if marker:
            system = SYSTEM_HEADER in marker["flags"].split()
        elif not system and not line.startswith("#"):
            lines.append(line)
    return "\n".join(lines)
