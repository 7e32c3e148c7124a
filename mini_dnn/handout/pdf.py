"""Convert a page of Markdown to PDF with fpdf2 and the fonts that matplotlib includes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mini_dnn.errors import MiniDnnError

MISSING = "PDF files need fpdf2, which is not installed: pip install fpdf2"
SIZE = 10.0  # text size in points
HEADINGS = {"h1": 17.0, "h2": 13.0, "h3": 11.0}
LINE = 5.0  # mm
NARROW, WIDE = 6, 46  # the least and the largest number of characters that a table column counts for
FACES = {"": "DejaVuSans.ttf", "B": "DejaVuSans-Bold.ttf", "I": "DejaVuSans-Oblique.ttf"}
MONOSPACED = "DejaVuSansMono.ttf"
EMPHASIS = {"strong": "B", "em": "I"}


def as_pdf(markdown: str, title: str) -> bytes:
    """Return the page as an A4 PDF: headings, paragraphs, lists, code and tables.

    Raises
    ------
    MiniDnnError
        fpdf2 is not installed.
    """
    try:
        from fpdf import FPDF
    except ImportError as error:
        raise MiniDnnError(MISSING) from error
    from markdown_it import MarkdownIt
    from matplotlib import get_data_path

    fonts = Path(get_data_path(), "fonts", "ttf")
    pdf = FPDF(format="A4")
    pdf.set_title(title)
    for style, file in FACES.items():
        pdf.add_font("body", style, fonts / file)
    pdf.add_font("code", "", fonts / MONOSPACED)
    pdf.set_margins(16, 16)
    pdf.add_page()
    pdf.set_font("body", size=SIZE)
    _Writer(pdf).write(MarkdownIt("commonmark").enable("table").parse(markdown))
    return bytes(pdf.output())


class _Writer:
    """Writes the tokens of markdown-it."""

    def __init__(self, pdf: Any) -> None:
        self._pdf = pdf
        self._bullets: list[str] = []  # of the open lists

    def write(self, tokens: Sequence[Any]) -> None:
        """Write all tokens."""
        rest = iter(tokens)
        for token in rest:
            if token.type == "heading_open":
                self._heading(token.tag, next(rest))
            elif token.type == "fence":
                self._code(token.content)
            elif token.type == "table_open":
                self._table(rest)
            elif token.type in ("bullet_list_open", "ordered_list_open"):
                self._bullets.append("•" if token.tag == "ul" else "")
            elif token.type in ("bullet_list_close", "ordered_list_close"):
                self._bullets.pop()
            elif token.type == "list_item_open":
                self._pdf.write(LINE, f"{self._bullets[-1] or token.info + '.'} ")
            elif token.type == "inline":
                self._inline(token.children)
                self._pdf.ln(LINE + (0 if self._bullets else LINE / 2))

    def _heading(self, tag: str, inline: Any) -> None:
        self._pdf.ln(LINE / 2)
        self._pdf.set_font("body", "B", HEADINGS.get(tag, SIZE))
        self._pdf.multi_cell(0, LINE * 1.4, _plain(inline.children), align="L", new_x="LMARGIN", new_y="NEXT")
        self._pdf.set_font("body", "", SIZE)
        self._pdf.ln(LINE / 3)

    def _inline(self, children: Sequence[Any]) -> None:
        style = ""
        for child in children:
            if child.type == "code_inline":
                self._pdf.set_font("code", "", SIZE - 1)
                self._pdf.write(LINE, child.content)
            elif child.type in ("softbreak", "hardbreak"):
                self._pdf.write(LINE, " ")
            elif child.content:
                self._pdf.write(LINE, child.content)
            elif child.tag in EMPHASIS:
                style = EMPHASIS[child.tag] if child.nesting > 0 else ""
            self._pdf.set_font("body", style, SIZE)

    def _code(self, text: str) -> None:
        """Write code in a size at which the longest line fits."""
        lines = text.rstrip("\n").splitlines()
        self._pdf.set_font("code", "", SIZE)
        widest = max(map(self._pdf.get_string_width, lines), default=0.0)
        self._pdf.set_font("code", "", min(SIZE - 2, SIZE * (self._pdf.epw - 3) / max(widest, 1.0)))
        for line in lines:
            self._pdf.cell(0, LINE * 0.85, line, new_x="LMARGIN", new_y="NEXT")
        self._pdf.set_font("body", "", SIZE)
        self._pdf.ln(LINE / 2)

    def _table(self, rest: Iterator[Any]) -> None:
        rows: list[list[str]] = []
        for token in rest:
            if token.type == "table_close":
                break
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "inline":
                rows[-1].append(_plain(token.children))
        widths = [min(max(NARROW, *(len(row[at]) + 2 for row in rows)), WIDE) for at in range(len(rows[0]))]
        self._pdf.set_font("body", "", SIZE - 1.5)
        with self._pdf.table(
            col_widths=widths, text_align="LEFT", line_height=LINE * 0.85, borders_layout="HORIZONTAL_LINES"
        ) as table:
            for row in rows:
                table.row(row)
        self._pdf.set_font("body", "", SIZE)
        self._pdf.ln(LINE / 2)


def _plain(children: Sequence[Any]) -> str:
    return "".join(" " if child.type == "softbreak" else child.content for child in children)
