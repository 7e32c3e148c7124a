"""A document of headings, text, tables and pictures, and how it is written as Markdown."""

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
    """A heading; the first one of level 1 is the document's title, the others of level 1 begin its parts."""

    level: int
    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph. In all texts and cells, `` `x` `` sets x as code, and ``[x](#place)`` is a link."""

    text: str
    lead: bool = False  # whether it is what a reader should see first


@dataclass(frozen=True)
class Items:
    """A list."""

    items: Sequence[str]


@dataclass(frozen=True)
class Warnings:
    """What a reader must know before believing the figures."""

    items: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table.

    Parameters
    ----------
    text_columns
        How many columns from the left hold words; the others hold numbers, set to the right.
    strong
        Rows to set in bold.
    words
        More columns that hold words.
    bar
        The column whose numbers the page shows as bars, too.
    name
        What kind of table it is, for the page's script: ``"ladder"``, ``"variants"``.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1
    strong: frozenset[int] = frozenset()
    words: frozenset[int] = frozenset()
    bar: int | None = None
    name: str = ""

    def holds_words(self, column: int) -> bool:
        """Whether a column is set to the left."""
        return column < self.text_columns or column in self.words


@dataclass(frozen=True)
class Picture:
    """A plot in the forms that the documents need; SVGs are empty where the page does not show it."""

    png: bytes  # on a light ground
    light_svg: bytes
    dark_svg: bytes


@dataclass(frozen=True)
class Figure:
    """A plot with its caption; ``name`` is the file's, without suffix.

    On the page stands the picture, a chart that the page's script draws from its data, or nothing, as a table
    there shows the same.
    """

    name: str
    picture: Picture
    alt: str
    caption: str
    on_page: Literal["picture", "chart", "nothing"] = "picture"


@dataclass(frozen=True)
class Folded:
    """Blocks that the page shows after a click on their summary; Markdown has them as they are."""

    summary: str
    blocks: Sequence[Block]


Block = Heading | Text | Items | Warnings | Table | Figure | Folded


def flat(blocks: Sequence[Block]) -> list[Block]:
    """All blocks, those that are folded too."""
    return [one for block in blocks for one in (flat(block.blocks) if isinstance(block, Folded) else [block])]


def slug(heading: str) -> str:
    """The name by which links find a heading, as GitHub makes it."""
    return NOT_IN_SLUGS.sub("", heading.lower()).replace(" ", "-")


def to_markdown(blocks: Sequence[Block], links: Mapping[str, str] | None = None) -> str:
    """The document as Markdown; pictures are files beside it.

    Parameters
    ----------
    links
        Where names of variants in the first column of tables lead.
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
