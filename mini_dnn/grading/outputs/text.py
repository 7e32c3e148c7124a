"""Text that comes from a submission, made harmless: it is untrusted wherever it is shown."""

from __future__ import annotations

import re
import unicodedata

MESSAGE_CHARACTERS = 20_000  # of a message that are kept at most
NAME_CHARACTERS = 200
UNNAMED = "(no name)"

# Escape sequences of terminals: colours and cursor (CSI), titles and links (OSC), and the short ones.
ANSI = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_]")
NEW_LINES = re.compile("\r\n|[\r\u2028\u2029]")
CONTROLS = ("Cc", "Cf")  # Unicode categories: control characters, and marks such as those that reverse text
BACKTICKS = re.compile("`+")


def cut(text: str, characters: int) -> str:
    """The text if it is short enough, or else its head and its tail with a note between them."""
    if len(text) <= characters:
        return text
    head, tail = characters - characters // 4, characters // 4
    note = f"\n[… {len(text) - head - tail:,} characters cut …]\n"
    return text[:head] + note + text[len(text) - tail :]


def clean(text: str, characters: int = MESSAGE_CHARACTERS) -> str:
    """Text without escape sequences, control characters and broken Unicode, and not too long.

    Line feeds and tabs stay. What stands for no character (a lone surrogate) becomes U+FFFD.
    """
    text = NEW_LINES.sub("\n", ANSI.sub("", cut(text, characters)))
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in "\n\t":
        return character
    category = unicodedata.category(character)
    return "\ufffd" if category == "Cs" else "" if category in CONTROLS else character


def one_line(text: str, characters: int = NAME_CHARACTERS) -> str:
    """A clean name or sentence on one line; never empty."""
    line = " ".join(clean(text).split())
    return (line if len(line) <= characters else line[: characters - 1] + "…") or UNNAMED


def code_span(text: str) -> str:
    """One line as code in Markdown: nothing in it is a link, a mention, HTML or the end of a table's cell."""
    line = one_line(text).replace("|", "¦")
    ticks = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def code_block(text: str) -> str:
    """Lines as a block of code in Markdown that the text cannot end."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}\n"


def _longest_run(text: str) -> int:
    return max((len(run) for run in BACKTICKS.findall(text)), default=0)
