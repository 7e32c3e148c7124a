"""The comment at the top of a kernel file, which has sections."""

from __future__ import annotations

import re

SECTION = re.compile(r"//(?: (\w+) {2,}|  +| )?(.*)")


def sections(text: str) -> dict[str, str]:
    """The text of each section of the comment at the top of a kernel file, in order.

    A section starts with its name and two spaces or more, such as ``// Gain      over m1/direct: ...``.
    """
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        match = SECTION.fullmatch(line)
        if not match:
            break
        name = match[1] or name
        found[name] = f"{found.get(name, '')} {match[2]}".strip()
    found.pop("", None)  # the first line: name and summary
    return found
