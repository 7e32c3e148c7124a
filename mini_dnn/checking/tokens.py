"""The words of a preprocessed kernel file, with their places."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MARKER = re.compile(r'^# (?P<line>\d+) "(?P<file>(?:[^"\\]|\\.)*)"(?P<flags>[ \d]*)$')
SYSTEM_HEADER = "3"
TOKEN = re.compile(
    r"""R"(?P<end>[^()\\\s]*)\(.*?\)(?P=end)" | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])+'
      | \.?\d(?:[eEpP][+-]|[\w.'])* | [A-Za-z_]\w* | ::|->|\+\+|--|[<>=!+\-*/%&|^]= | \S""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Token:
    """A word of the kernel file, with its place."""

    text: str
    file: str
    line: int


def tokens_of(text: str) -> list[Token]:
    """The words of a file without those of system headers."""
    found = []
    name, line, system = "", 0, False
    for row in text.splitlines():
        if marker := MARKER.match(row):
            name, line = marker["file"], int(marker["line"]) - 1
            system = SYSTEM_HEADER in marker["flags"].split()
            continue
        line += 1
        if not system and not row.startswith("#"):
            found += [Token(match[0], name, line) for match in TOKEN.finditer(row)]
    return found


def closing(tokens: Sequence[Token], at: int) -> int:
    """Return where the brace or parenthesis at this place is closed."""
    opens, closes = tokens[at].text, {"{": "}", "(": ")"}[tokens[at].text]
    depth = 0
    for i in range(at, len(tokens)):
        depth += (tokens[i].text == opens) - (tokens[i].text == closes)
        if not depth:
            return i
    return len(tokens)
