"""Pages of a handout: remove references to absent files and variants, so that no link is broken."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import PurePosixPath
from posixpath import normpath

FENCE = re.compile(r"^ *```")
LINK = re.compile(  # also over two lines, but not over the end of a paragraph
    r"(?P<picture>!?)\[(?P<text>(?:[^\[\]\n]|\n(?!\n)|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)"
)
ASIDE = re.compile(rf"\s\({LINK.pattern}\)")  # a link in parentheses
HEADING = re.compile(r"^(?P<marks>#+) (?P<text>.*)$")
SOLUTIONS = re.compile(r"<!-- solutions:start -->\n.*?<!-- solutions:end -->\n", re.DOTALL)
CODE = re.compile(r"`(?P<code>[^`]+)`")
TOP = (
    "benchmarks",
    "course",
    "docs",
    "ladders",
    "layers",
    "milestones",
    "mini_dnn",
    "networks",
    "reports",
    "tests",
)
FILE = re.compile(rf"(?<![\w./-])(?:{'|'.join(TOP)})/[\w./*-]*")
SHELL = ("sh", "")  # code blocks in which each line is independent
PAGE = re.compile(r" +- (?:[^:]+: )?(?P<path>[\w./]+\.(?:md|html))$")  # in the site's navigation
SECTION = re.compile(r"(?P<indent> +)- [^:]+:$")
GENERATED = "api/"  # pages that the site generates
SEPARATOR = re.compile(r"^\|[-:| ]+\|$")

Pages = Mapping[str, str]  # texts by their paths from the root


def word_of(names: Collection[str]) -> re.Pattern[str]:
    """A pattern that finds these names in text and code, but not as parts of longer names."""
    inside = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or "(?!)"
    return re.compile(rf"(?<![\w./-])(?:{inside})(?![\w/-])")


def with_impl(text: str, absent: Collection[str], impl: str) -> str:
    """A page whose commands use an existing variant instead of absent ones."""
    named = "|".join(re.escape(name) for name in absent) or "(?!)"
    return re.sub(rf"(--impl |--from |IMPL=|impl=\")(?:{named})\b(?!/)", rf"\g<1>{impl}", text)


def pruned(pages: Pages, files: Collection[str], names: Collection[str]) -> dict[str, str]:
    """Remove from pages what leads nowhere in a handout.

    Rows of tables, pictures and commands that need absent files are removed. Other links become plain text,
    or are removed if they stand alone in parentheses. Sections between ``<!-- solutions:start -->`` and
    ``<!-- solutions:end -->`` are removed as a whole, and so are headings with nothing left below them.

    Parameters
    ----------
    pages
        The pages of the handout, in Markdown.
    files
        The paths of all files in the handout.
    names
        The names of variants that the handout lacks.
    """
    there = {*files, *(str(parent) for file in files for parent in PurePosixPath(file).parents)}
    word = word_of(names)
    found = {path: _without_absent(text, path, there, word) for path, text in pages.items()}
    marks = {path: anchors(text) for path, text in found.items()}
    return {path: _without_lost_anchors(text, path, marks) for path, text in found.items()}


def anchors(text: str) -> set[str]:
    """The anchors that GitHub generates for a page's headings."""
    headings = [HEADING.match(line) for line, in_code in _lines(text) if not in_code]
    return {re.sub(r"[^\w\- ]", "", match["text"].lower()).replace(" ", "-") for match in headings if match}


def broken_links(pages: Pages, files: Collection[str]) -> list[str]:
    """Find links that lead nowhere. Return the page and the target of each."""
    there = {*files, *(str(parent) for file in files for parent in PurePosixPath(file).parents)}
    marks = {path: anchors(text) for path, text in pages.items()}
    found = []
    for path, text in pages.items():
        for part, in_code in _parts(text):
            for match in LINK.finditer("" if in_code else part):
                file, anchor = _target(path, match["target"])
                if file is not None and (file not in there or (anchor and anchor not in marks.get(file, ()))):
                    found.append(f"{path}: {match['target']}")
    return found


def site(config: str, files: Collection[str]) -> str:
    """The site's configuration without pages and folders that a handout lacks."""
    there = {*files, *(str(parent) for file in files for parent in PurePosixPath(file).parents)}
    paths = re.compile(r"\.\./\.\./([\w./]+)")
    lines = []
    for line in config.splitlines():
        page = PAGE.match(line)
        if page and page["path"] not in there and not page["path"].startswith(GENERATED):
            continue
        if line.startswith("watch: "):
            line = f"watch: [{', '.join(match[0] for match in paths.finditer(line) if match[1] in there)}]"
        lines.append(line)
    return "\n".join(_without_empty_sections(lines)) + "\n"


def _without_empty_sections(lines: list[str]) -> list[str]:
    """The lines of a navigation without headings that have no page below them."""
    while True:
        below = [*lines[1:], ""]
        kept = [line for line, after in zip(lines, below, strict=True) if not _is_empty_section(line, after)]
        if kept == lines:
            return lines
        lines = kept


def _is_empty_section(line: str, after: str) -> bool:
    match = SECTION.match(line)
    return match is not None and len(after) - len(after.lstrip()) <= len(match["indent"])


def shows(pages: Pages, file: str) -> bool:
    """Whether a page links to a file."""
    return any(
        _target(page, match["target"])[0] == file
        for page, text in pages.items()
        for match in LINK.finditer(text)
    )


def _target(page: str, link: str) -> tuple[str | None, str]:
    """The file and the anchor that a link leads to. Without a file, it leads to another site."""
    if re.match(r"[a-z]+:", link):
        return None, ""
    file, _, anchor = link.partition("#")
    return (normpath(str(PurePosixPath(page).parent / file)) if file else page), anchor


def _lines(text: str) -> list[tuple[str, bool]]:
    """Lines, each with whether it is in a code block or at one of its ends."""
    lines = text.splitlines()
    return list(zip(lines, _in_code(lines), strict=True))


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """The code blocks of a page and the text between them, each with whether it is code."""
    for in_code, lines in groupby(_lines(text), key=lambda line: line[1]):
        yield "\n".join(line for line, _ in lines), in_code


def _without_links(text: str, leads: Callable[[re.Match[str]], bool]) -> str:
    """A page whose other links become text. Those in parentheses are removed."""

    def changed(part: str) -> str:
        part = ASIDE.sub(lambda match: match[0] if leads(match) else "", part)
        return LINK.sub(lambda match: match[0] if leads(match) else match["text"], part)

    return "\n".join(part if in_code else changed(part) for part, in_code in _parts(text)) + "\n"


def _in_code(lines: list[str]) -> list[bool]:
    found, inside = [], False
    for line in lines:
        ends = bool(FENCE.match(line))
        found.append(inside or ends)
        inside ^= ends
    return found


def _without_absent(text: str, page: str, there: Collection[str], word: re.Pattern[str]) -> str:
    kept: list[str] = []
    block: list[str] = []
    for line, in_code in _lines(SOLUTIONS.sub("\n", text)):
        if in_code:
            block.append(line)
            if len(block) > 1 and FENCE.match(line):
                kept += _block(block, there, word)
                block = []
            continue
        lost = [match for match in LINK.finditer(line) if not _leads(page, match["target"], there)]
        if any(match["picture"] for match in lost):
            continue
        if line.startswith("|") and not SEPARATOR.match(line):
            if _is_about_absent(line, there, word) or _is_lost_link(line, lost):
                continue
            line = _without_examples(line, there, word)
        kept.append(line)
    return _without_links("\n".join(_without_empty(kept)), lambda match: _leads(page, match["target"], there))


def _leads(page: str, link: str, there: Collection[str]) -> bool:
    file, _ = _target(page, link)
    return file is None or file in there


def _is_about_absent(row: str, there: Collection[str], word: re.Pattern[str]) -> bool:
    """Whether the first code in a row is the name of an absent variant, file or folder."""
    first = CODE.search(row)
    return first is not None and _lacks(first["code"], there, word)


def _lacks(code: str, there: Collection[str], word: re.Pattern[str]) -> bool:
    """Whether code names an absent variant, file or folder; `v3` may stand for `v3_shared`."""
    paths = {match[0].partition("/*")[0].rstrip("/") for match in FILE.finditer(code)} - {*there}
    lost = [path for path in paths if not any(name.startswith(f"{path}_") for name in there)]
    return word.search(code) is not None or lost != []


def _is_lost_link(row: str, lost: Iterable[re.Match[str]]) -> bool:
    """Whether one of a row's cells is only a link that leads nowhere."""
    cells = {cell.strip() for cell in row.split("|")}
    return any(match[0] in cells for match in lost)


def _without_examples(row: str, there: Collection[str], word: re.Pattern[str]) -> str:
    """A row without commands that need an absent variant or file."""
    cells = row.split("|")
    is_lost = [CODE.fullmatch(cell.strip()) is not None and _lacks(cell, there, word) for cell in cells]
    return "|".join(" – " if lost else cell for cell, lost in zip(cells, is_lost, strict=True))


def _block(lines: list[str], there: Collection[str], word: re.Pattern[str]) -> list[str]:
    """A code block without commands that need absent files, or no lines if nothing is left of it."""
    if lines[0].strip().strip("`") not in SHELL:
        return [] if any(word.search(line) for line in lines) else lines
    inner = [line for line in lines[1:-1] if not _lacks(line, there, word)]
    return [lines[0], *inner, lines[-1]] if any(line.strip() for line in inner) else []


def _without_empty(lines: list[str]) -> list[str]:
    """Lines without tables that have no rows, headings that have no text, and repeated empty lines."""
    while True:
        in_code = _in_code(lines)
        kept: list[str] = []
        for number, line in enumerate(lines):
            above = kept[-1] if kept else ""
            if in_code[number] or not _is_empty(lines, number, above):
                kept.append(line)
        if kept == lines:
            return kept[: -1 if kept and not kept[-1] else None]
        lines = kept


def _is_empty(lines: list[str], number: int, above: str) -> bool:
    """Whether a line is redundant: a repeated empty line, a heading without text, a head without rows."""
    line = lines[number]
    if not line.strip():
        return not above.strip()
    if heading := HEADING.match(line):
        after = HEADING.match(next((one for one in lines[number + 1 :] if one.strip()), "# the page's end"))
        return bool(number and after and len(after["marks"]) <= len(heading["marks"]))
    if SEPARATOR.match(line):
        return not _row(lines, number + 1)
    return line.startswith("|") and _separates(lines, number + 1) and not _row(lines, number + 2)


def _separates(lines: list[str], number: int) -> bool:
    return number < len(lines) and SEPARATOR.match(lines[number]) is not None


def _row(lines: list[str], number: int) -> bool:
    return number < len(lines) and lines[number].startswith("|")


def _without_lost_anchors(text: str, page: str, marks: Mapping[str, set[str]]) -> str:
    def leads(match: re.Match[str]) -> bool:
        file, anchor = _target(page, match["target"])
        return not anchor or file is None or file not in marks or anchor in marks[file]

    def keeps(row: str) -> bool:
        return not _is_lost_link(row, [match for match in LINK.finditer(row) if not leads(match)])

    lines = [line for line, in_code in _lines(text) if in_code or not line.startswith("|") or keeps(line)]
    return _without_links("\n".join(lines), leads)
