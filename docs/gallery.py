"""Draw verdicts of ``run.py check``, as a terminal shows them: ``python docs/gallery.py [FOLDER]``.

FOLDER is docs/check by default. The kernels are those of tests/wrong.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import textwrap
from pathlib import Path

from rich.console import Console

from mini_dnn.checking.check import Report
from mini_dnn.cli.check import THEME, Verdict, describe

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from wrong_kernels import run_wrong, source_of  # noqa: E402

KERNELS = (
    "gemm_store_unchecked",
    "gemm_no_second_barrier",
    "gemm_barrier_in_branch",
    "gemm_early_return",
    "gemm_last_tile_missing",
)
WIDTH, INDENT = 112, 12  # columns
# A dark card, readable on light and dark pages. Its fonts are the reader's, because pictures load no others.
FORMAT = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main(folder: Path = ROOT / "docs" / "check") -> None:
    """Draw every verdict."""
    folder.mkdir(exist_ok=True)
    for name in KERNELS:
        title, report = verdict(name)
        path = folder / f"{name}.svg"
        path.write_text(picture(name, title, report))
        print(f"drawn: {path}")


def verdict(name: str) -> tuple[str, Report]:
    """Check a kernel of the corpus without the comment that gives its mistake away.

    Return a title and the report.
    """
    text = source_of(name)
    with tempfile.TemporaryDirectory() as folder:
        report = run_wrong(re.sub(r" *// expect: .*", "", text), Path(folder))
    return text.splitlines()[0].removeprefix("// ").rstrip("."), report


def picture(name: str, title: str, report: Report) -> str:
    """Return the verdict as SVG. The same verdict gives the same file."""
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), theme=THEME, highlighter=Verdict(), force_terminal=True
    )
    for line in describe(report)[:-2]:  # the last line says how many there are
        parts = textwrap.wrap(line, WIDTH - 2, subsequent_indent=" " * INDENT) or [""]
        for part in parts:
            console.print(part, markup=False, emoji=False, no_wrap=True)
    svg = console.export_svg(title=title, code_format=FORMAT, unique_id=name)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
