"""A new variant's folder, copied from another variant."""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from mini_dnn import ops
from mini_dnn.device.sources import HEADERS, read_source, source_files, write_source
from mini_dnn.errors import MiniDnnError, UsageError, VariantError, reason
from mini_dnn.paths import ROOT, expanded
from mini_dnn.variant.folders import MINE, SHORT_NAMES, names
from mini_dnn.variant.variant import Variant

GROUPED = re.compile(r"(?:(?P<group>\w+)/)?[^/.~][^/]*")  # my_idea, m3/my_idea, softmax/my_idea
MILESTONE = re.compile(r"m\d")
LOCAL_INCLUDE = re.compile(r'^(?P<before>[ \t]*#\s*include\s*")(?P<path>[^"]+)(?P<after>")', re.MULTILINE)
# Functions that create a variant: arguments that a call may pass without a keyword
CALLS = {"Variant": ("op", "idea"), "quads.variant": ()}
IDEA = "say here what you change, in one sentence"


def target_folder(name: str) -> Path:
    """The folder of a new variant: in the user's own folder if `is_own`, otherwise the path itself.

    Raises
    ------
    UsageError
        The folder exists.
    """
    folder = ROOT / MINE / name if is_own(name) else expanded(name)
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} already exists, and was not changed; choose another name")
    return folder


def is_own(name: str) -> bool:
    """Whether a name belongs in the user's own folder: ``my_idea``, ``m3/my_idea`` or ``gemm/my_idea``.

    Paths such as ``./my_idea`` or ``milestones/m3/my_idea`` do not.
    """
    match = GROUPED.fullmatch(name)
    if not match:
        return False
    group = match["group"]
    return group is None or bool(MILESTONE.fullmatch(group)) or group in ops.names()


def create(name: str, source: Variant, change: Callable[[Path, Variant], None] | None = None) -> Path:
    """Copy a variant to a new folder, as the parent of the new variant, and return the folder.

    Parameters
    ----------
    change
        Changes the copy before it takes its place.

    Raises
    ------
    UsageError
        The folder exists, or the source has no kernels.
    VariantError
        The source's ``variant.py`` has no ``Variant(...)`` to rename, or a header of a kernel that it
        includes has the same name as one of its own files.
    MiniDnnError
        The folder cannot be written.
    """
    if source.plan is None:
        raise UsageError(f"{source.name} runs on the host and has no kernel to start from; use m1 or another")
    folder = target_folder(name)
    if name in SHORT_NAMES or name in names():
        raise UsageError(
            f"'{name}' is already a variant, and --impl {name} would mean that one; choose another"
        )
    title = f"{MINE}/{name}" if is_own(name) else folder.resolve().name
    parent = source.name
    kernel = _renamed(read_source(source.source), f"// {parent}:", f"// {title}:")
    headers = _headers(source)
    description = _described(read_source(source.folder / "variant.py"), source)
    description = _renamed(description, f'"""{parent}:', f'"""{title}:')
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=".new-") as place:
            # Renamed when it is complete, so that a failure leaves nothing behind
            copy = Path(place) / folder.name
            shutil.copytree(
                source.folder, copy, ignore=shutil.ignore_patterns("__pycache__", ".*", "exercise.toml")
            )
            for header, within in headers.items():
                (copy / within).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(header, copy / within)
            for header in copy.iterdir():
                if header.suffix in HEADERS and (source.folder / header.name).is_file():
                    write_source(header, _copied(read_source(header), source.folder, source.folder, folder))
            write_source(copy / "kernel.cu", _copied(kernel, source.folder, source.folder, folder))
            write_source(copy / "variant.py", description)
            if change:
                change(copy, source)
            copy.rename(folder)
    except (OSError, shutil.Error) as error:
        raise MiniDnnError(f"{folder} cannot be written: {reason(error)}; choose another folder") from error
    return folder


def _renamed(text: str, old: str, new: str) -> str:
    """Replace ``old`` at the very beginning of a text."""
    return new + text.removeprefix(old) if text.startswith(old) else text


def _described(text: str, source: Variant) -> str:
    """Set the source as the parent in each ``Variant(...)`` of a ``variant.py``, and leave the idea open."""
    wanted = {"parent": quoted(source.name), "idea": quoted(IDEA)}
    calls = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS and node.keywords
    ]
    if not calls:
        raise VariantError(
            f"{source.folder / 'variant.py'} has no Variant(...) in it, so there is nothing to put the new "
            "variant's parent and idea into; start from another variant, or copy the folder by hand"
        )
    edits: list[tuple[int, int, str]] = []  # start, end, new text
    for call in calls:
        given = dict(zip(CALLS[ast.unparse(call.func)], call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        for name, value in wanted.items():
            if name in given:
                edits.append((*_span(text, given[name]), value))
            else:
                start, _ = _span(text, call.keywords[0])
                edits.append((start, start, f"{name}={value}, "))
    for start, end, value in sorted(edits, reverse=True):
        text = text[:start] + value + text[end:]
    return text


def quoted(text: str) -> str:
    """Write a text as a Python string in double quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _span(text: str, node: ast.expr | ast.keyword) -> tuple[int, int]:
    """Return where a node starts and ends, in characters. Python counts columns in bytes of UTF-8."""
    lines = text.split("\n")  # `splitlines` also divides at form feeds and other characters

    def at(line: int, column: int) -> int:
        return sum(len(before) + 1 for before in lines[: line - 1]) + len(
            lines[line - 1].encode()[:column].decode()
        )

    assert node.end_lineno is not None, "ast.parse sets it"
    assert node.end_col_offset is not None, "ast.parse sets it"
    return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)


def _headers(source: Variant) -> dict[Path, Path]:
    """Headers next to other kernels that a variant includes, each with its place in the new folder."""
    files = source_files(source.source)
    kernels = [file for file in files[1:] if _is_kernel(file)]
    headers = {
        file: file.relative_to(kernel.parent)
        for kernel in kernels
        for file in files
        if file.is_relative_to(kernel.parent) and not _is_kernel(file)
    }
    for header, place in headers.items():
        if (source.folder / place).exists():
            raise VariantError(
                f"{source.folder / place} and {header}, which {source.source.name} includes through another "
                "kernel, have the same name, and would be one file in the new folder; rename one of them"
            )
    return headers


def _is_kernel(file: Path) -> bool:
    """Whether a file is the kernel of a variant."""
    return file.name == "kernel.cu" and (file.parent / "variant.py").is_file()


def _copied(kernel: str, here: Path, home: Path, new: Path) -> str:
    """Rewrite a kernel or header of the folder ``here`` for a new folder that receives a copy of ``home``.

    If it includes the kernel of another variant, the text of that kernel is inserted, because the copy is
    meant to be changed. Headers next to that kernel are copied as well, see `_headers`. Paths of other files
    outside are rewritten relative to the new folder.
    """

    def replaced(match: re.Match[str]) -> str:
        file = (here / match["path"]).resolve()
        if not file.is_file() or (file.is_relative_to(here) and not _is_kernel(file)):
            return match[0]
        if _is_kernel(file):
            return _copied(read_source(file), file.parent, home, new).rstrip("\n")
        path = os.path.relpath(file, home if file.is_relative_to(home) else new.resolve())
        return match["before"] + Path(path).as_posix() + match["after"]

    return LOCAL_INCLUDE.sub(replaced, kernel)
