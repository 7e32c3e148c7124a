"""Fingerprints of code: which parts of two kernels are the same, whatever their names and their layout.

The code is split into tokens, without comments and white space. Each run of `GRAM` tokens has a hash, and
of each `WINDOW` neighbouring hashes the smallest is kept. Two texts that share ``GRAM + WINDOW - 1``
consecutive tokens therefore share at least one kept hash. The method is winnowing, from S. Schleimer,
D. S. Wilkerson, A. Aiken, "Winnowing: Local Algorithms for Document Fingerprinting", SIGMOD 2003.
"""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b

from mini_dnn.device.code_hash import TOKEN

GRAM = 24  # tokens
LEAST_KINDS = 8  # different tokens in such a run: a list of parameters has fewer, and is nobody's idea
WINDOW = 9  # hashes of which one is kept
PRIME, BASE = (1 << 61) - 1, 1_000_003  # of the hashes
NAME = re.compile(r"[A-Za-z_]\w*")
NUMBER = re.compile(r"\.?\d")
STRUCTURE = """
    if else for while do return break continue switch case int long short char float double half bool void
    const unsigned static template typename struct class extern constexpr auto __global__ __device__
    __shared__ __constant__ __restrict__ __syncthreads __syncwarp __shfl_down_sync __shfl_xor_sync
    threadIdx blockIdx blockDim gridDim half2 float2 float4 wmma fragment include define ifdef ifndef
    endif pragma unroll
"""
KEPT_NAMES = frozenset(STRUCTURE.split()) | frozenset(keyword.kwlist)  # other names are the author's
SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

Prints = Mapping[int, tuple[tuple[int, int], ...]]  # of each kept hash: first and last line of its runs


@dataclass(frozen=True)
class Token:
    """A token and its line, from 1."""

    text: str
    line: int


def cpp_tokens(text: str) -> list[Token]:
    """Tokens of C++ without comments."""
    found, line = [], 1
    for match in TOKEN.finditer(text):
        if match["newline"] is None and match["blank"] is None:
            found.append(Token(match[0], line))
        line += match[0].count("\n")
    return found


def python_tokens(text: str) -> list[Token]:
    """Tokens of Python without comments and texts that are statements, such as docstrings.

    If the text is not valid Python, these are the tokens before the mistake.
    """
    found: list[Token] = []
    start = True  # of a statement
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in SKIPPED:
                start = start or token.type == tokenize.NEWLINE
                continue
            if not (start and token.type == tokenize.STRING):
                found.append(Token(token.string, token.start[0]))
            start = False
    except (tokenize.TokenError, SyntaxError):
        pass
    return found


def tokens(name: str, text: str) -> list[Token]:
    """Tokens of a file, whose language follows from the extension of its name."""
    return python_tokens(text) if name.endswith(".py") else cpp_tokens(text)


def fingerprints(code: Iterable[Token]) -> Prints:
    """The kept hashes of a text, with the lines of each. They are the same in each process."""
    kept = [(_number(_kind(token.text)), token.line) for token in code]
    numbers = [number for number, _ in kept]
    hashes = [
        digest if len(set(numbers[at : at + GRAM])) >= LEAST_KINDS else PRIME
        for at, digest in enumerate(_rolling(numbers))
    ]
    found: dict[int, dict[tuple[int, int], None]] = {}
    for start in range(max(len(hashes) - WINDOW + 1, min(len(hashes), 1))):
        part = hashes[start : start + WINDOW]
        digest = min(part)
        if digest == PRIME:
            continue
        at = start + len(part) - 1 - part[::-1].index(digest)
        found.setdefault(digest, {})[kept[at][1], kept[at + GRAM - 1][1]] = None
    return {digest: tuple(lines) for digest, lines in found.items()}


def line_ranges(prints: Prints, shared: Collection[int]) -> list[tuple[int, int]]:
    """The lines of these hashes, as ranges. Adjacent ranges are joined."""
    ranges: list[tuple[int, int]] = []
    for first, last in sorted(lines for digest in shared for lines in prints[digest]):
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], last))
        else:
            ranges.append((first, last))
    return ranges


@cache
def _number(kind: str) -> int:
    return int.from_bytes(blake2b(kind.encode("utf-8", "replace"), digest_size=7).digest(), "little")


def _rolling(numbers: list[int]) -> Iterator[int]:
    """A rolling hash of each run of `GRAM` numbers: a polynomial that loses one term and gains another."""
    leading = pow(BASE, GRAM, PRIME)
    value = 0
    for at, number in enumerate(numbers):
        value = (value * BASE + number) % PRIME
        if at >= GRAM:
            value = (value - leading * numbers[at - GRAM]) % PRIME
        if at >= GRAM - 1:
            yield value


def _kind(token: str) -> str:
    if NUMBER.match(token):
        return "0"
    if NAME.fullmatch(token) and token not in KEPT_NAMES:
        return "n"
    return "s" if token[:1] in "\"'" else token
