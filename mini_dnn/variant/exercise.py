"""Exercises: a copy of a variant whose kernel has blanks, and hints for them.

A variant's folder may hold ``exercise.toml``::

    [[blank]]
    code = "if (pixel >= P * Q) return;"      # a piece of kernel.cu that occurs once
    ask = "Which threads have no output?"
    hints = ["...", "...", "..."]             # the last one may be the answer

`make` replaces each of these pieces by ``BLANK_1``, ``BLANK_2`` and so on, which do not compile, and puts the
question above it. Sections of the header are also replaced by questions.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from mini_dnn.device.sources import read_source, write_source
from mini_dnn.errors import UsageError, VariantError, reason
from mini_dnn.paths import write_atomically
from mini_dnn.variant.folders import find, names
from mini_dnn.variant.variant import Variant

FILE = "exercise.toml"
STATE = "hints.json"  # in the exercise: how many hints of each blank were read, and the name of its variant
SECTION = re.compile(r"^// (?P<name>[A-Z]\w+) {2,}\S")
QUESTIONS = {
    "Roofline": "How many bytes must cross the memory bus for the course's problems, and how many FLOPs "
    "are there? Which of the two takes longer?",
    "Gain": "How much faster than {parent} do you expect it to be, and why? Write it down before you "
    "measure.",
    "Limits": "Which problems does it not support, and for which is it slow?",
    "Hazards": "Which threads read what others wrote? What orders them?",
}
WIDTH = 118


@dataclass(frozen=True)
class Blank:
    """A piece of a kernel that the student writes."""

    code: str
    ask: str
    hints: tuple[str, ...]


def exercises() -> list[str]:
    """Names of the variants that have an exercise."""
    return [name for name in names() if (find(name).folder / FILE).is_file()]


def blanks_of(variant: Variant) -> tuple[Blank, ...]:
    """The blanks of a variant's exercise.

    Raises
    ------
    UsageError
        The variant has no exercise.
    VariantError
        A piece does not occur in the kernel exactly once.
    """
    file = variant.folder / FILE
    if not file.is_file():
        raise UsageError(
            f"{variant.name} has no exercise; expected one of {', '.join(exercises())}. 'run.py new' without "
            "--exercise copies the whole variant"
        )
    found = tuple(
        Blank(row["code"], row["ask"], tuple(row["hints"]))
        for row in tomllib.loads(file.read_text())["blank"]
    )
    kernel = read_source(variant.source)
    for blank in found:
        if kernel.count(blank.code) != 1:
            raise VariantError(
                f"{file}: '{blank.code}' occurs {kernel.count(blank.code)} times in the kernel"
            )
    return found


def make(folder: Path, variant: Variant) -> None:
    """Make an exercise of a fresh copy of a variant."""
    kernel = read_source(folder / "kernel.cu")
    blanks = blanks_of(variant)
    for number, blank in enumerate(blanks, 1):
        kernel = _blanked(kernel, number, blank)
    write_source(folder / "kernel.cu", _asked(kernel, variant.parent or ""))
    _write_state(folder, variant.name, [0] * len(blanks))


def next_hint(folder: Path) -> list[str]:
    """The lines of the next hint for the first remaining blank, or the next step if no blank remains."""
    try:
        state = json.loads((folder / STATE).read_text())
        source, read = find(str(state["of"])), [int(count) for count in state["read"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        known = exercises()
        one = next((name for name in known if folder.match(name)), known[0])
        raise UsageError(f"{folder} is not an exercise: 'run.py new --exercise {one}' makes one") from error
    blanks = blanks_of(source)
    read += [0] * (len(blanks) - len(read))  # the exercise has got more blanks since it was made
    lines = [line.partition("//")[0] for line in read_source(folder / "kernel.cu").splitlines()]
    for number, blank in enumerate(blanks, 1):
        at = next((i for i, line in enumerate(lines, 1) if re.search(rf"\bBLANK_{number}\b", line)), 0)
        if not at:
            continue
        level = min(read[number - 1], len(blank.hints) - 1)
        read[number - 1] = level + 1
        try:
            _write_state(folder, source.name, read)
        except OSError as error:
            raise UsageError(
                f"{folder} cannot be written ({reason(error)}), so hints cannot be counted; copy the "
                "exercise to a folder of your own"
            ) from error
        head = f"blank {number} of {len(blanks)}, {folder / 'kernel.cu'}:{at}: {blank.ask}"
        return [head, f"hint {level + 1} of {len(blank.hints)}: {blank.hints[level]}"]
    return [f"no blanks are left; the reference is {source.name}"]


def left(folder: Path) -> bool:
    """Whether a kernel has blanks."""
    return bool(re.search(r"\bBLANK_\d+\b", re.sub(r"//.*", "", read_source(folder / "kernel.cu"))))


def require_filled(folder: Path, hint: str) -> None:
    """Refuse an exercise that still has blanks, which a compiler would only report as unknown names.

    Raises
    ------
    UsageError
        It has blanks. The message names them, and ``hint``, the command that prints hints.
    """
    lines = read_source(folder / "kernel.cu").splitlines() if reference(folder) else []
    found = [
        f"{blank} (line {at})"
        for at, line in enumerate(lines, 1)
        for blank in re.findall(r"\bBLANK_\d+\b", line.partition("//")[0])
    ]
    if found:
        raise UsageError(
            f"{folder / 'kernel.cu'} still has {', '.join(found)}; replace each with code. '{hint}' prints a "
            "hint"
        )


def reference(folder: Path) -> str:
    """The variant of an exercise; empty if the folder is not an exercise."""
    try:
        return str(json.loads((folder / STATE).read_text())["of"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def is_question(section: str, text: str) -> bool:
    """Whether a section of a header still has the question of an exercise in place of an answer."""
    pattern = re.escape(QUESTIONS[section]).replace(re.escape("{parent}"), r"\S+")
    return re.fullmatch(pattern, text) is not None


def _write_state(folder: Path, of: str, read: list[int]) -> None:
    write_atomically(folder / STATE, (json.dumps({"of": of, "read": read}) + "\n").encode(), 0o644)


def _blanked(kernel: str, number: int, blank: Blank) -> str:
    """The kernel with a blank, and the question in a line of its own above it."""
    start = kernel.index(blank.code)
    line = kernel.rfind("\n", 0, start) + 1
    indent = re.match(r" *", kernel[line:])
    assert indent is not None, "it matches anything"
    end = ";" if blank.code.endswith(";") else ""
    question = f"{indent[0]}// blank {number}: {blank.ask}\n"
    return (
        f"{kernel[:line]}{question}{kernel[line:start]}BLANK_{number}{end}{kernel[start + len(blank.code) :]}"
    )


def _asked(kernel: str, parent: str) -> str:
    """The kernel with questions in place of those sections of its header that contain answers."""
    lines, found, hidden = kernel.splitlines(), [], False
    head = next(i for i, line in enumerate(lines) if not line.startswith("//"))
    for line in lines[:head]:
        match = SECTION.match(line)
        if match:
            hidden = match["name"] in QUESTIONS
            if hidden:
                question = QUESTIONS[match["name"]].format(parent=parent)
                first, more = (f"// {word:<9} " for word in (match["name"], ""))
                found += wrap(
                    question, WIDTH, initial_indent=first, subsequent_indent=more, break_on_hyphens=False
                )
        if not hidden:
            found.append(line)
    return "\n".join([*found, *lines[head:]]) + "\n"
