"""A document as one self-contained HTML page with charts, sorting and filters."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from string import Template
from typing import Any

from mini_dnn.paths import PACKAGE
from mini_dnn.report.document import (
    Block,
    Figure,
    Folded,
    Heading,
    Items,
    Table,
    Text,
    Warnings,
    flat,
    slug,
    to_markdown,
)
from mini_dnn.report.theme import DARK, LIGHT, Theme

FOLDER = PACKAGE / "report" / "web"
PARTS = ("page.html", "page.css", "common.js", "charts.js", "variant.js", "page.js")
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[([^\]]+)\]\(#([\w-]+)\)")
NUMBER = re.compile(r"[\d,]*\.?\d+")
MOST_RUNGS = 16  # rungs that have colours of their own
NO_DATA: Mapping[str, Any] = {"root": "", "boards": [], "variants": {}}
ON_HOST = "(CPU"  # part of the name of a variant on the CPU
LISTED = 2  # levels of headings in the table of contents


def files(
    blocks: Sequence[Block],
    title: str,
    data: Mapping[str, Any] = NO_DATA,
    links: Mapping[str, str] | None = None,
) -> dict[str, bytes]:
    """Return all files of the document: the page, the Markdown, and the pictures of the Markdown.

    Parameters
    ----------
    data, links
        See `to_html` and `to_markdown`.
    """
    pictures = {f"{one.name}.png": one.picture.png for one in flat(blocks) if isinstance(one, Figure)}
    return {
        "index.html": to_html(blocks, title, data).encode(),
        "report.md": to_markdown(blocks, links).encode(),
        **pictures,
    }


def to_html(blocks: Sequence[Block], title: str, data: Mapping[str, Any] = NO_DATA) -> str:
    """Return the page.

    Parameters
    ----------
    data
        The data for the charts of the page's script, and the sources that open on a click on a variant's
        name: see `mini_dnn.report.pagedata`.
    """
    page = _Page(frozenset(data["variants"]))
    template, style, *scripts = ((FOLDER / name).read_text(encoding="utf-8") for name in PARTS)
    return Template(template).substitute(
        title=html.escape(title),
        style=_colours() + style,
        contents="\n".join(_contents(blocks)),
        body=page.body(blocks),
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        script="\n".join(scripts),
    )


def _colours() -> str:
    """CSS custom properties for the rungs' colours, for both backgrounds and each number of rungs."""

    def of(theme: Theme) -> str:
        return " ".join(
            f"--rung-{count}-{at}: {colour};"
            for count in range(2, MOST_RUNGS + 1)
            for at, colour in enumerate(theme.ramp(count), 1)
        )

    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {of(DARK)} }} }}"
    return f":root {{ {of(LIGHT)} }}\n{dark}\n"


def _contents(blocks: Sequence[Block]) -> Iterator[str]:
    """A list of the parts, with the headings of each."""
    parts: list[tuple[Heading, list[Heading]]] = []
    headings = [block for block in blocks if isinstance(block, Heading) and block.level <= LISTED]
    for heading in headings[1:]:
        if heading.level == 1 or not parts:
            parts.append((heading, []))
        else:
            parts[-1][1].append(heading)
    yield "<ul>"
    for part, found in parts:
        anchor = slug(part.text)
        inside = "".join(
            f'<li><a href="#{anchor}--{slug(one.text)}">{html.escape(one.text)}</a></li>' for one in found
        )
        short = html.escape(part.text.partition(":")[0])
        yield f'<li><a href="#{anchor}">{short}</a>{f"<ul>{inside}</ul>" if inside else ""}</li>'
    yield "</ul>"


class _Page:
    """Writes blocks.

    It tracks the current part, so that equal headings in different parts get different ids.
    """

    def __init__(self, variants: frozenset[str]) -> None:
        self._variants = variants
        self._part = ""

    def body(self, blocks: Sequence[Block]) -> str:
        """The parts, each as a section."""
        out, titled = ["<section>"], False
        for block in blocks:
            if isinstance(block, Heading) and block.level == 1 and titled:
                self._part = slug(block.text)
                out.append(f'</section>\n<section class="part" aria-labelledby="{self._part}">')
            out.append(self._block(block, titled))
            titled = titled or isinstance(block, Heading)
        return "\n".join([*out, "</section>"])

    def _block(self, block: Block, titled: bool = True) -> str:
        match block:
            case Heading(level, text):
                return self._heading(level if not titled else level + 1, text)
            case Text(text, lead):
                kind = ' class="lead"' if lead else ""
                return f"<p{kind}>{self._inline(text)}</p>"
            case Items(items):
                return self._list(items)
            case Warnings(items):
                return f'<div class="warning" role="note"><strong>Warning</strong>{self._list(items)}</div>'
            case Figure():
                return self._figure(block)
            case Table():
                return self._table(block)
            case Folded(summary, blocks):
                inside = "\n".join(self._block(one) for one in blocks)
                return f"<details><summary>{self._inline(summary)}</summary>{inside}</details>"

    def _heading(self, level: int, text: str) -> str:
        own = slug(text)
        anchor = own if level <= 2 or not self._part else f"{self._part}--{own}"
        return f'<h{level} id="{anchor}">{self._inline(text)}</h{level}>'

    def _figure(self, figure: Figure) -> str:
        caption = f"<figcaption>{self._inline(figure.caption)}</figcaption>"
        match figure.on_page:
            case "nothing":
                return ""
            case "chart":
                return f'<figure class="chart" data-chart="{html.escape(figure.alt)}">{caption}</figure>'
            case "picture":
                return (
                    "<figure><picture>"
                    '<source media="(prefers-color-scheme: dark)" '
                    f'srcset="{_data_uri(figure.picture.dark_svg)}">'
                    f'<img src="{_data_uri(figure.picture.light_svg)}" alt="{html.escape(figure.alt)}">'
                    f"</picture>{caption}</figure>"
                )

    def _table(self, table: Table) -> str:
        most = max((_bar(table, row) for row in table.rows), default=0.0)

        def cell(at: int, text: str, tag: str, scope: str = "", bar: float = 0.0) -> str:
            kind = "" if table.holds_words(at) else ' class="number"'
            inner = self._inline(text)
            if at == table.bar and bar:
                inner = f'<span class="bar" style="--part:{bar / most:.4f}"></span>{inner}'
            return f"<{tag}{scope}{kind}>{inner}</{tag}>"

        of_column, of_row = ' scope="col"', ' scope="row"'
        head = "".join(cell(at, text, "th", of_column) for at, text in enumerate(table.columns))
        rows = []
        for at, (first, *rest) in enumerate(table.rows):
            strong = ' class="strong"' if at in table.strong else ""
            bar = _bar(table, table.rows[at])
            cells = "".join(cell(column, text, "td", bar=bar) for column, text in enumerate(rest, 1))
            rows.append(f"<tr{strong}>{cell(0, first, 'th', of_row)}{cells}</tr>")
        name = f' data-table="{table.name}"' if table.name else ""
        label = html.escape(f"Table of {table.columns[0]}, {table.columns[1]} and more".replace("`", ""))
        body = "\n".join(rows)
        return (
            f'<div class="scroll" role="region" aria-label="{label}" tabindex="0">'
            f"<table{name}><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>"
        )

    def _list(self, items: Sequence[str]) -> str:
        return "<ul>" + "".join(f"<li>{self._inline(item)}</li>" for item in items) + "</ul>"

    def _inline(self, text: str) -> str:
        def code(match: re.Match[str]) -> str:
            name = html.unescape(match[1])
            opens = f' data-variant="{match[1]}"' if name in self._variants else ""
            return f"<code{opens}>{match[1]}</code>"

        return LINK.sub(r'<a href="#\2">\1</a>', CODE.sub(code, html.escape(text)))


def _bar(table: Table, row: Sequence[str]) -> float:
    """The number that the bar of a row shows, or 0 for rows of the CPU, which would dwarf all others."""
    found = NUMBER.search(row[table.bar]) if table.bar and ON_HOST not in row[0] else None
    return float(found[0].replace(",", "")) if found else 0.0


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
