"""A document of headings, text, tables and pictures, written as Markdown or as one HTML page."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template

CODE = re.compile(r"`([^`]+)`")
NOT_THERE = "–"

__all__ = ["NOT_THERE", "Block", "Figure", "Heading", "Items", "Picture", "Table", "Text", "Warnings"]


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the document's title."""

    level: int
    text: str


@dataclass(frozen=True)
class Text:
    """A paragraph. In all texts and cells, `` `x` `` sets x as code."""

    text: str


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
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1
    strong: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picture:
    """A plot in the forms that the documents need."""

    png: bytes  # on a light ground
    light_svg: bytes
    dark_svg: bytes


@dataclass(frozen=True)
class Figure:
    """A plot with its caption; ``name`` is the file's, without suffix."""

    name: str
    picture: Picture
    alt: str
    caption: str


Block = Heading | Text | Items | Warnings | Table | Figure


def to_markdown(blocks: Sequence[Block]) -> str:
    """The document as Markdown; pictures are files beside it."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def _markdown(block: Block) -> str:
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
            return markdown_table(block)


def markdown_table(table: Table) -> str:
    """A table as Markdown."""
    marks = ["---"] * table.text_columns + ["---:"] * (len(table.columns) - table.text_columns)
    lines = [table.columns, marks]
    for at, row in enumerate(table.rows):
        lines.append([f"**{cell}**" for cell in row] if at in table.strong else row)
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def to_html(blocks: Sequence[Block], title: str) -> str:
    """The document as one page that needs nothing from elsewhere and follows the reader's colour scheme."""
    body = "\n".join(_html(block) for block in blocks)
    return PAGE.substitute(title=html.escape(title), body=body)


def _html(block: Block) -> str:
    match block:
        case Heading(level, text):
            return f"<h{level}>{_inline(text)}</h{level}>"
        case Text(text):
            return f"<p>{_inline(text)}</p>"
        case Items(items):
            return _html_list(items)
        case Warnings(items):
            return f'<div class="warning" role="note"><strong>Warning</strong>{_html_list(items)}</div>'
        case Figure(_, picture, alt, caption):
            return (
                "<figure><picture>"
                f'<source media="(prefers-color-scheme: dark)" srcset="{_data_uri(picture.dark_svg)}">'
                f'<img src="{_data_uri(picture.light_svg)}" alt="{html.escape(alt)}">'
                f"</picture><figcaption>{_inline(caption)}</figcaption></figure>"
            )
        case Table():
            return _html_table(block)


def _html_table(table: Table) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{'' if at < table.text_columns else number}>{_inline(cell)}</{tag}>"
            for at, cell in enumerate(row)
        )

    number = ' class="number"'
    rows = "\n".join(
        f"<tr{strong}>{cells('td', row)}</tr>"
        for at, row in enumerate(table.rows)
        for strong in [' class="strong"' if at in table.strong else ""]
    )
    head = f"<thead><tr>{cells('th', table.columns)}</tr></thead>"
    return f'<div class="scroll"><table>{head}\n<tbody>{rows}</tbody></table></div>'


def _html_list(items: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"


def _inline(text: str) -> str:
    return CODE.sub(r"<code>\1</code>", html.escape(text))


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def files(blocks: Sequence[Block], title: str) -> Mapping[str, bytes]:
    """All files of the document: the page, the Markdown, and the pictures that the Markdown shows."""
    pictures = {f"{b.name}.png": b.picture.png for b in blocks if isinstance(b, Figure)}
    return {
        "index.html": to_html(blocks, title).encode(),
        "report.md": to_markdown(blocks).encode(),
        **pictures,
    }


PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ground: #fff; --text: #1b1f24; --soft: #59636e; --line: #d1d9e0;
        --stripe: #f6f8fa; --warn-ground: #fff4dc; --warn-line: #b35900; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14181d; --text: #e6e9ed; --soft: #9aa5b1; --line: #39424c;
          --stripe: #1b2027; --warn-ground: #33270f; --warn-line: #e69f00; }
}
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 72rem; background: var(--ground);
       color: var(--text); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h1 ~ h1 { margin-top: 5rem; }
h2 { font-size: 1.4rem; margin: 3rem 0 .75rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { max-width: 48rem; }
code { font: .9em ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; text-align: left; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; border-bottom-width: 2px; vertical-align: bottom;
     white-space: normal; line-height: 1.3; }
tbody tr:nth-child(even) { background: var(--stripe); }
th.number, td.number { text-align: right; }
tr.strong td { font-weight: 700; }
figure { margin: 1.25rem 0 2rem; }
figure img { max-width: 100%; height: auto; }
figcaption { color: var(--soft); font-size: .9rem; max-width: 48rem; }
.warning { background: var(--warn-ground); border-left: 4px solid var(--warn-line); padding: .75rem 1rem;
           margin: 1.25rem 0; max-width: 48rem; }
.warning ul { margin: .25rem 0 0; padding-left: 1.25rem; }
</style>
</head>
<body>
$body
</body>
</html>
""")
