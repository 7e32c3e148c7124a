"""Uninitialised variables of a thread: the compiler's warnings, stored in the library.

The compiler warns of a variable that some path leaves uninitialised, even if that path is never taken.
Therefore, a warning is not a finding: `check` runs such a kernel again, with zeros in these variables, and
compares the outputs.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.device.emulator.runtime_build import INCLUDE

SECTION = ".mini_dnn.unset"
WARNING = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):\d+: warning: \W(?P<name>[^\n]+?)\W (?:is|may be) used uninitialized",
    re.MULTILINE,
)
INLINED = re.compile(r"^ +inlined from .* at (?P<file>[^:\n]+):(?P<line>\d+):\d+[,:]$", re.MULTILINE)
ENTRY = re.compile(r"\]\s+(?P<file>[^\t\n]+?):(?P<line>\d+):(?P<name>[^\n]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Unset:
    """A use of a variable that may be uninitialised."""

    name: str
    file: str
    line: int


def unset_section(messages: str) -> str:
    """Assembly that stores the compiler's warnings.

    Lines in headers become the lines where these are used.
    """
    found: dict[str, None] = {}
    end = 0
    for match in WARNING.finditer(messages):
        places = [match, *INLINED.finditer(messages, end, match.start())]
        end = match.end()
        own = next((place for place in places if not place["file"].startswith(str(INCLUDE))), None)
        if own:
            name = match["name"].split("::")[0].partition(".")[0]  # 'acc.float4::x' is part of acc
            found[f"{own['file']}:{own['line']}:{name}"] = None
    if not found:
        return ""
    texts = "".join(f'\t.asciz "{text}"\n' for text in found if not re.search(r'["\\\\]', text))
    return f'\t.section {SECTION},"",@progbits\n{texts}'


def unset_variables(library: Path) -> list[Unset]:
    """Read the compiler's warnings from a library that was built for checked mode."""
    command = ["readelf", "-p", SECTION, str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [Unset(m["name"], m["file"], int(m["line"])) for m in ENTRY.finditer(done.stdout)]
