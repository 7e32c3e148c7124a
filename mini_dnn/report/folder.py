"""Write the files of a page into a folder, whole files only, replacing only a page of the same kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mini_dnn.errors import UsageError, reason
from mini_dnn.paths import write_atomically

PICTURE = re.compile(rb"^!\[.*\]\(([\w-]+\.png)\)$", re.MULTILINE)  # in report.md


def write_folder(contents: Mapping[str, bytes], out: Path, title: str, force: bool = False) -> list[Path]:
    """Write files, including ``index.html``, into a folder and return their paths.

    Pictures of an earlier page of this kind are removed if they are not replaced.

    Parameters
    ----------
    title
        The title of the page. A folder whose ``index.html`` has this title may be overwritten.
    force
        Whether to replace files of these names in any other folder, too.

    Raises
    ------
    UsageError
        The folder cannot be written, or it has files of these names but no such page.
    """
    in_the_way = [name for name in contents if (out / name).exists()]
    is_ours, page = _has_title(out, title), out / "report.md"
    if in_the_way and not force and not is_ours:
        raise UsageError(
            f"--out {out} contains {in_the_way[0]}, but not a report of mini_dnn; name another folder, or "
            "use --force to replace the file"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        earlier = PICTURE.findall(page.read_bytes()) if is_ours and page.exists() else []
        for name, content in contents.items():
            write_atomically(out / name, content, 0o644)
        for name in {name.decode() for name in earlier} - set(contents):
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"--out {out}: the report cannot be written there: {reason(error)}; name another folder"
        ) from error
    return [out / name for name in contents]


def _has_title(folder: Path, title: str) -> bool:
    try:
        with (folder / "index.html").open(encoding="utf-8", errors="replace") as page:
            return f"<title>{title}</title>" in page.read(1000)
    except OSError:
        return False
