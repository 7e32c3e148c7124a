"""Which files a handout keeps, and which contain solutions or are only for staff."""

from __future__ import annotations

import html
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mini_dnn import ops
from mini_dnn.device.sources import INCLUDE, host_halves, python_files, read_source
from mini_dnn.errors import MiniDnnError, UsageError
from mini_dnn.paths import HANDOUT, ROOT
from mini_dnn.variant import SHORT_NAMES, find, names
from mini_dnn.variant.given import given, sources

FOR_STAFF = (  # measurements of all variants, grading, tricks against the grader, kernels with mistakes
    ".ci",
    "CHANGELOG.md",
    "benchmarks",
    "course",
    "docs/course.md",
    "docs/handout.md",
    "docs/integrity.md",
    "docs/rubrics.md",
    "reports",
    "tests/cheats",
    "tests/wrong",
)
TOLD_IN = {"docs/roofline.md": "layers/custom"}  # pages that describe how a variant was found
LADDER = "ladder.toml"  # describes for each variant what limits it
LIBRARY = "ptx"  # headers whose names begin with this wrap single instructions and are no solution
VARIANTS = ("milestones", "layers", "ladders", "networks")
COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
WORDS = re.compile(r"\w+|[^\w\s]")
LEAK = 56  # tokens in a row that a solution and another file cannot share by coincidence
STRIDE = 16  # every so many tokens of the other file are compared
DATA = (".h5", ".json", ".pdf", ".png")


@dataclass(frozen=True)
class Parts:
    """The division of the repository's files.

    Parameters
    ----------
    kept, left
        The names of the variants that a handout contains, and of those that it lacks.
    files
        The paths of the files that it contains, relative to the repository's root.
    absent
        The paths of the files that it lacks.
    solutions, public
        Kernels and headers that must stay secret, and those of the variants that are kept.
    """

    kept: tuple[str, ...]
    left: tuple[str, ...]
    files: tuple[str, ...]
    absent: tuple[str, ...]
    solutions: frozenset[Path]
    public: frozenset[Path]

    @property
    def impl(self) -> str:
        """The variant that a handout's program uses: the course's latest one, or the last of its ladder."""
        short = [short for short, name in SHORT_NAMES.items() if name in _runnable(self.kept)]
        return (short or _runnable(self.kept))[-1]


def divide(keep: Iterable[str]) -> Parts:
    """Divide the files of the repository.

    Parameters
    ----------
    keep
        Names of variants, or their beginnings: ``m1``, ``softmax``, ``gemm/v0_naive``.

    Raises
    ------
    UsageError
        This copy is a handout, there is no variant with such a name, or no variant that the program can run
        is left.
    MiniDnnError
        This is not a git checkout, or git does not track a file of a variant that is kept.
    """
    if HANDOUT.exists():
        raise UsageError(f"{ROOT} is a handout itself; make handouts from the complete repository")
    kept = given(keep, "--keep")
    if not _runnable(kept):
        raise UsageError(
            f"--keep {' '.join(keep)}: the program of a handout needs a kernel for {ops.DEFAULT}; add "
            "m1/direct"
        )
    left = tuple(name for name in names() if name not in kept)
    needed = sources(kept)
    only_left = sources(left) - needed
    gone = {path.relative_to(ROOT).as_posix() for path in only_left if not path.name.startswith(LIBRARY)}
    modules = _modules(left) - _modules(kept)
    gone |= {path.relative_to(ROOT).as_posix() for path in modules}
    files: list[str] = []
    absent: list[str] = []
    folders = [find(name).folder.relative_to(ROOT).as_posix() for name in kept]
    for name in tracked():
        if PurePosixPath(name).name == LADDER and _tells(ROOT / name, left):
            gone.add(name)
        out = name in gone or _is_left_out(name, kept, folders)
        (absent if out else files).append(name)
    wanted = {path.relative_to(ROOT).as_posix() for path in needed} | {f"{at}/variant.py" for at in folders}
    if lost := sorted(wanted - {*files}):
        raise MiniDnnError(f"git does not track {', '.join(lost)}, which a handout copies; use 'git add'")
    tellers = leaks((name for name in files), only_left, needed)
    return Parts(
        kept,
        left,
        tuple(name for name in files if name not in tellers),
        tuple(sorted({*absent, *tellers})),
        frozenset(only_left),
        frozenset(needed),
    )


def tracked() -> list[str]:
    """The paths of all existing files that git tracks."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise MiniDnnError(
            f"git does not list the files of {ROOT} ({done.stderr.strip()}); a handout is made from a clone "
            "of the repository"
        )
    return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def leaks(
    files: Iterable[str], solutions: Iterable[Path], known: Iterable[Path], root: Path = ROOT
) -> set[str]:
    """Return those files that contain a piece of a solution.

    Parameters
    ----------
    files
        Paths relative to ``root``.
    solutions
        Kernels and headers that must stay secret.
    known
        Public kernels and headers. If a solution repeats their code, that code is not secret.
    """
    public = [*known, *INCLUDE.rglob(f"{LIBRARY}*")]
    allowed = {digest for path in public for digest in _grams(read_source(path))}
    secret = {digest for path in solutions for digest in _grams(read_source(path))} - allowed
    found = set()
    for name in files:
        if name.endswith(DATA) or (root / name).suffix == "":
            continue
        text = (root / name).read_text(errors="replace")
        if name.endswith((".svg", ".html")):
            text = html.unescape(re.sub(r"<[^>]+>", " ", text))
        if not secret.isdisjoint(_grams(text, STRIDE)):
            found.add(name)
    return found


def _grams(text: str, step: int = 1) -> set[int]:
    """Hashes of runs of tokens, one run starting at each ``step``-th token, for any kind of file."""
    words = WORDS.findall(COMMENTS.sub(" ", text))
    return {hash(tuple(words[start : start + LEAK])) for start in range(0, len(words) - LEAK + 1, step)}


def _runnable(kept: Iterable[str]) -> list[str]:
    """The variants with kernels that the course's program can use."""
    return [name for name in kept if find(name).op == ops.DEFAULT and find(name).plan]


def _modules(of: Iterable[str]) -> set[Path]:
    """The modules of the package that decide what is launched for variants."""
    folders = [find(name).folder for name in of]
    found = {path for folder in folders for path in python_files(folder / "variant.py")[1:]}
    for path in list(found):
        text = path.read_text()
        found |= {other for name, other in host_halves().items() if name in text}
    return found


def _tells(ladder: Path, left: Iterable[str]) -> bool:
    """Whether the file about a ladder names a variant that is left out."""
    text = ladder.read_text()
    return any(f'"{name}"' in text for name in left)


def _is_left_out(name: str, kept: Iterable[str], folders: Iterable[str]) -> bool:
    """Whether a file is for staff, or belongs to no kept variant.

    ``folders`` are the kept variants' folders.
    """
    if any(name == path or name.startswith(f"{path}/") for path in FOR_STAFF):
        return True
    if name in TOLD_IN:
        return TOLD_IN[name] not in kept
    if name.partition("/")[0] not in VARIANTS:
        return False
    group = name.rpartition("/")[0]  # of a lesson next to its variants' folders
    return not any(name.startswith(f"{folder}/") or folder.startswith(f"{group}/") for folder in folders)
