"""A document of headings, text, tables and pictures, and its form as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

NOT_THERE = "–"
NAME = re.compile(r"`([^`]+)`")
NOT_IN_SLUGS = re.compile(r"[^\w\- ]")

__all__ = [
    "NOT_THERE",
    "Block",
    "Figure",
    "Folded",
    "Heading",
    "Items",
    "Picture",
    "Table",
    "Text",
    "Warnings",
    "markdown_table",
    "slug",
    "to_markdown",
]


@dataclass(frozen=True)
class Heading:
    """A heading.

    The first heading of level 1 is the document's title, and the others of level 1 begin parts.
    """

    level: int
    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph. In all texts and cells, `` `x` `` sets x as code, and ``[x](#place)`` is a link."""

    text: str
    lead: bool = False  # whether readers should see it first


@dataclass(frozen=True)
class Items:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Warnings:
    """Warnings that a reader must see before relying on the figures."""

    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table.

    Parameters
    ----------
    text_columns
        The number of leading columns that hold words. The other columns hold numbers and are right-aligned.
    strong
        Rows to set in bold.
    words
        Further columns that hold words.
    bar
        A column whose numbers are also drawn as bars on the page.
    name
        The kind of table, for the page's script: ``"ladder"`` or ``"variants"``.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1
    strong: frozenset[int] = frozenset()
    words: frozenset[int] = frozenset()
    bar: int | None = None
    name: str = ""

    def holds_words(self, column: int) -> bool:
        """Whether a column is left-aligned."""
        return column < self.text_columns or column in self.words


@dataclass(frozen=True)
class Picture:
    """A plot in the formats that the documents need.

    The SVGs are empty if the page does not show the plot.
    """

    png: bytes  # for a light background
    light_svg: bytes
    dark_svg: bytes


@dataclass(frozen=True)
class Figure:
    """A plot with its caption. ``name`` is the name of its file without the suffix.

    In place of the figure, the page has the picture, a chart that its script draws from the data, or nothing
    if a table already shows the same.
    """

    name: str
    picture: Picture
    alt: str
    caption: str
    on_page: Literal["picture", "chart", "nothing"] = "picture"


@dataclass(frozen=True)
class Folded:
    """Blocks that the page hides until a click on their summary. In Markdown they are always visible."""

    summary: str
    blocks: Sequence[Block]


Block = Heading | Text | Items | Warnings | Table | Figure | Folded


def flat(blocks: Sequence[Block]) -> list[Block]:
    """All blocks, including folded ones."""
    return [one for block in blocks for one in (flat(block.blocks) if isinstance(block, Folded) else [block])]


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub generates it."""
    return NOT_IN_SLUGS.sub("", heading.lower()).replace(" ", "-")


def to_markdown(blocks: Sequence[Block], links: Mapping[str, str] | None = None) -> str:
    """Return the document as Markdown. Its pictures are separate files in the same folder.

    Parameters
    ----------
    links
        The link targets of variant names in the first column of tables.
    """

    def linked(match: re.Match[str]) -> str:
        target = (links or {}).get(match[1])
        return f"[{match[0]}]({target})" if target else match[0]

    return "\n\n".join(_markdown(block, linked) for block in flat(blocks)) + "\n"


def _markdown(block: Block, linked: Callable[[re.Match[str]], str]) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {text}"
        case Text(text):
            return text
        case Items(items):
            return "\n".join(f"- {item}" for item in items)
        case Warnings(items):
            return "\n".join(["> **Warning**", ">", *(f"> - {item}" for item in items)])
        case Figure(name, _, alt, caption):
            return f"![{alt}]({name}.png)\n\n{caption}"
        case Table():
            rows = [[NAME.sub(linked, first), *rest] for first, *rest in block.rows]
            return _markdown_table(block, rows)
        case Folded():
            raise AssertionError("folded blocks are laid flat before")


def markdown_table(table: Table) -> str:
    """A table as Markdown."""
    return _markdown_table(table, table.rows)


def _markdown_table(table: Table, rows: Sequence[Sequence[str]]) -> str:
    marks = ["---" if table.holds_words(at) else "---:" for at in range(len(table.columns))]
    lines = [table.columns, marks]
    for at, row in enumerate(rows):
        lines.append([f"**{cell}**" if cell else "" for cell in row] if at in table.strong else row)
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
