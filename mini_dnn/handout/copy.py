"""Write a handout: a copy of the repository without solutions and without its history."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from mini_dnn.errors import MiniDnnError, UsageError, reason
from mini_dnn.handout.pages import broken_links, pruned, shows, site, with_impl
from mini_dnn.handout.parts import Parts, leaks
from mini_dnn.paths import HANDOUT, ROOT
from mini_dnn.variant import SHORT_NAMES

SITE = "docs/site/mkdocs.yml"
EDITED = ("Makefile", "README.md", SITE)  # files that a handout must have
NOTE = (
    "> This copy is a handout of a course. It contains the variants {kept}. The other variants that\n"
    "> a page mentions are for you to write. Tests that need them are skipped until then.\n\n"
)
VERSION = re.compile(r".+/v\d+(?=_)")  # gemm/v3, which pages may write for gemm/v3_registers
AUTHOR = ("-c", "user.name=mini_dnn", "-c", "user.email=handout@localhost", "-c", "commit.gpgsign=false")


def write(parts: Parts, out: Path, more: Mapping[str, bytes] | None = None) -> list[str]:
    """Write a handout to a new folder, as a whole or not at all, and return its files.

    The handout has a git history of one commit, so that students see their changes.

    Parameters
    ----------
    more
        Contents of additional files, by their paths in the handout.

    Raises
    ------
    UsageError
        See `check_folder`.
    MiniDnnError
        The folder cannot be written, one of its pages has a broken link, or one of its files contains a piece
        of a solution.
    """
    check_folder(out)
    out = out.resolve()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".handout-") as place:
            copy = Path(place) / out.name  # renamed when it is complete
            files = [*_copy(parts, copy), *(more or {})]
            for name, content in (more or {}).items():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                (copy / name).write_bytes(content)
            _check(parts, copy, files)
            _begin_history(copy)
            copy.rename(out)
    except (OSError, shutil.Error) as error:
        raise MiniDnnError(f"--out {out} cannot be written: {reason(error)}; name another folder") from error
    return files


def check_folder(out: Path) -> None:
    """Raise an error if a folder cannot become a handout.

    Raises
    ------
    UsageError
        The folder exists, or is inside the repository.
    """
    if out.exists() or out.is_symlink():
        raise UsageError(f"--out {out} already exists; name a new folder, or remove it")
    inside = out.resolve()
    if inside.is_relative_to(ROOT) and inside.relative_to(ROOT).parts[0] != "build":
        raise UsageError(f"--out {out} is inside the repository; name a folder outside of it, or in build/")


def _copy(parts: Parts, copy: Path) -> list[str]:
    for name in EDITED:
        if name in parts.absent:
            raise MiniDnnError(
                f"{name} contains a piece of a solution, and a handout needs {name}; remove the piece from it"
            )
    for name in parts.files:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    _edit(copy / "Makefile", r"^IMPL \?= \w+$", f"IMPL ?= {parts.impl}")
    _edit(copy / "README.md", r"^\| `IMPL` \| \w+ \|", f"| `IMPL` | {parts.impl} |")
    _edit(copy / "README.md", r"with the final kernel$", f"with {parts.impl}")  # what `make run` does
    _edit(copy / "README.md", r"^\| `handout` \|.*\n", "")  # a handout makes no handouts
    short = [short for short, name in SHORT_NAMES.items() if name in parts.left]
    pages = {
        name: with_impl((copy / name).read_text(), short, parts.impl)
        for name in parts.files
        if name.endswith(".md")
    }
    short += [match[0] for name in parts.left if (match := VERSION.match(name))]
    pages = pruned(pages, [*parts.files, HANDOUT.name], [*parts.left, *short])
    for name, text in pages.items():
        (copy / name).write_text(text)
    config = copy / SITE
    config.write_text(site(config.read_text(), parts.files))
    unshown = [name for name in parts.files if _is_picture(name) and not shows(pages, name)]
    for name in unshown:
        (copy / name).unlink()
    kept = ", ".join(f"`{name}`" for name in parts.kept)
    _edit(copy / "README.md", r"^(?=\w)", NOTE.format(kept=kept))  # before the first sentence
    absent = [*parts.absent, *unshown]
    record = {"kept": parts.kept, "left": parts.left, "short": short, "absent": absent}
    (copy / HANDOUT.name).write_text(json.dumps(record, indent=1) + "\n")
    return [*(name for name in parts.files if name not in unshown), HANDOUT.name]


def _is_picture(name: str) -> bool:
    """Whether a file is a picture of a page."""
    return name.startswith("docs/") and name.endswith((".svg", ".png"))


def _edit(file: Path, pattern: str, text: str) -> None:
    """Replace the first match of a pattern.

    Raises
    ------
    MiniDnnError
        There is no match, so the handout would lack the text.
    """
    changed, count = re.subn(pattern, lambda _: text, file.read_text(), count=1, flags=re.MULTILINE)
    if not count:
        raise MiniDnnError(f"{file.name} has no line like '{pattern}', which has to be changed for a handout")
    file.write_text(changed)


def _check(parts: Parts, copy: Path, files: Iterable[str]) -> None:
    """Raise an error for a handout with broken links or parts of a solution."""
    names = list(files)
    told = leaks(names, parts.solutions, parts.public, copy)
    if told:
        raise MiniDnnError(f"the handout would contain pieces of solutions in {', '.join(sorted(told))}")
    pages = {name: (copy / name).read_text() for name in names if name.endswith(".md")}
    broken = broken_links(pages, names)
    if broken:
        raise MiniDnnError(f"the handout would have broken links: {'; '.join(broken)}")


def _begin_history(copy: Path) -> None:
    """Create a git repository with one commit."""
    steps = (
        ("init", "-q", "-b", "main"),
        ("add", "-A", "-f"),
        (*AUTHOR, "commit", "-q", "-m", "The handout"),
    )
    for step in steps:
        done = subprocess.run(["git", "-C", str(copy), *step], capture_output=True, text=True, check=False)
        if done.returncode:
            raise MiniDnnError(f"git {step[-1]} failed in the handout: {done.stderr.strip()}")
