"""Write the pictures of the benchmarks to files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from mini_dnn.cli.common import check_output
from mini_dnn.errors import UsageError
from mini_dnn.report.theme import Theme, picture

FORMS = (".svg", ".png")


def check_picture(path: Path | None) -> None:
    """Check the file of ``--picture`` before the work. None is accepted.

    Raises
    ------
    UsageError
        It is neither SVG nor PNG, or cannot be written.
    """
    if path and path.suffix not in FORMS:
        raise UsageError(f"--picture {path}: a picture is written as {' or '.join(FORMS)}; name the file so")
    check_output("--picture", path, force=True)


def save_picture(draw: Callable[[Theme], Figure], path: Path) -> None:
    """Draw, and write a picture with its own background, which is readable on light and dark pages."""
    drawn = picture(draw)
    path.write_bytes(drawn.png if path.suffix == ".png" else drawn.light_svg)
