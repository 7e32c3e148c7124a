"""Make text from a submission harmless. It is untrusted wherever it is shown."""

from __future__ import annotations

import re
import unicodedata

MESSAGE_CHARACTERS = 20_000  # the most characters that are kept of a message
NAME_CHARACTERS = 200
UNNAMED = "(no name)"

# Escape sequences of terminals: colours and cursor (CSI), titles and links (OSC), and short ones.
ANSI = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_]")
NEW_LINES = re.compile("\r\n|[\r\u2028\u2029]")
# Unicode categories: control characters, and format characters such as those that reverse text
CONTROLS = ("Cc", "Cf")
BACKTICKS = re.compile("`+")


def cut(text: str, characters: int) -> str:
    """Return the text if it is short enough, or else its beginning and end with a note in between."""
    if len(text) <= characters:
        return text
    head, tail = characters - characters // 4, characters // 4
    note = f"\n[… {len(text) - head - tail:,} characters cut …]\n"
    return text[:head] + note + text[len(text) - tail :]


def clean(text: str) -> str:
    """Remove escape sequences, control characters and broken Unicode, and shorten the text if it is too long.

    Line feeds and tabs stay. Lone surrogates become U+FFFD.
    """
    text = NEW_LINES.sub("\n", ANSI.sub("", cut(text, MESSAGE_CHARACTERS)))
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in "\n\t":
        return character
    category = unicodedata.category(character)
    return "\ufffd" if category == "Cs" else "" if category in CONTROLS else character


def one_line(text: str, characters: int = NAME_CHARACTERS) -> str:
    """Return a clean name or sentence on one line, which is never empty."""
    line = " ".join(clean(text).split())
    return (line if len(line) <= characters else line[: characters - 1] + "…") or UNNAMED


def code_span(text: str) -> str:
    """Format one line as code in Markdown, in which nothing is a link, a mention, HTML or a separator."""
    line = one_line(text).replace("|", "¦")
    ticks = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def code_block(text: str) -> str:
    """Format lines as a code block in Markdown that the text cannot end."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}\n"


def _longest_run(text: str) -> int:
    return max((len(run) for run in BACKTICKS.findall(text)), default=0)
