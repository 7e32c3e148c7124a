"""Find submissions that resemble each other, or variants of this repository. It is only a hint to look.

The comparison uses fingerprints of tokens (`mini_dnn.variant.fingerprints`), so names, layout and comments do
not matter. Code that was given to the students does not count, and neither does code that most of the class
has in common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from mini_dnn.device.sources import read_source
from mini_dnn.grading.asked import Rubric
from mini_dnn.grading.confined.process import SubmissionError
from mini_dnn.grading.submission import Submission
from mini_dnn.grading.submitted import read
from mini_dnn.variant import find, names
from mini_dnn.variant.fingerprints import Prints, fingerprints, line_ranges, tokens

CODE = (".cu", ".cuh", ".h", ".hpp", ".cpp", ".py")
MOST_CHARACTERS = 100_000  # of a file that are compared; nobody writes a longer kernel
LEAST_SHARE = 0.3  # of the smaller work's code
LEAST_SHARED = 4  # fingerprints; they cover about forty tokens
COMMON = 0.5  # code that a larger part of the class has counts as common
LEAST_CLASS = 5  # the smallest class in which code can be common


@dataclass(frozen=True)
class Work:
    """The code of one author: the fingerprints of each file, by file name."""

    name: str
    files: Mapping[str, Prints]
    shipped: bool = False

    @property
    def prints(self) -> set[int]:
        """The fingerprints of all files."""
        return {digest for prints in self.files.values() for digest in prints}


@dataclass(frozen=True)
class Place:
    """Lines of two files that contain the same code."""

    file: str
    lines: tuple[tuple[int, int], ...]
    other_file: str
    other_lines: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Likeness:
    """Two similar works.

    Parameters
    ----------
    one, other
        The name of a submission, and the name of another submission or of a variant.
    shipped
        Whether ``other`` is a variant of this repository.
    share, other_share
        The fraction of each one's code that the other one also has. Code that does not count is excluded.
    places
        Where the common code is, longest piece first.
    """

    one: str
    other: str
    shipped: bool
    share: float
    other_share: float
    places: tuple[Place, ...]


def compare(submissions: Sequence[Submission], rubric: Rubric, given: Iterable[str]) -> list[Likeness]:
    """Return similar pairs, most similar first.

    Parameters
    ----------
    given
        The names of the variants that students were given.
    """
    start = set(given)
    shipped = [_shipped(name) for name in names() if name not in start]
    known = {digest for name in start for digest in _shipped(name).prints}
    return alike([_submitted(one, rubric) for one in submissions], shipped, known)


def alike(works: Sequence[Work], shipped: Sequence[Work], known: set[int]) -> list[Likeness]:
    """Return similar pairs of works. ``known`` are fingerprints that do not count."""
    ignored = known | _common(works)
    pairs = [*combinations(works, 2), *((work, other) for work in works for other in shipped)]
    found = [likeness for one, other in pairs if (likeness := _likeness(one, other, ignored))]
    return sorted(found, key=lambda pair: (-max(pair.share, pair.other_share), pair.one, pair.other))


def _common(works: Sequence[Work]) -> set[int]:
    """Return the fingerprints that most of the class has."""
    if len(works) < LEAST_CLASS:
        return set()
    counts = Counter(digest for work in works for digest in work.prints)
    return {digest for digest, count in counts.items() if count > COMMON * len(works)}


def _likeness(one: Work, other: Work, ignored: set[int]) -> Likeness | None:
    mine, theirs = one.prints - ignored, other.prints - ignored
    shared = mine & theirs
    if len(shared) < LEAST_SHARED:
        return None
    share, other_share = len(shared) / len(mine), len(shared) / len(theirs)
    relevant = share if other.shipped else max(share, other_share)
    if relevant < LEAST_SHARE:
        return None
    places = sorted(_places(one, other, shared), key=lambda place: -sum(b - a + 1 for a, b in place.lines))
    return Likeness(one.name, other.name, other.shipped, share, other_share, tuple(places))


def _places(one: Work, other: Work, shared: set[int]) -> Iterator[Place]:
    for file, prints in one.files.items():
        for other_file, other_prints in other.files.items():
            both = shared.intersection(prints).intersection(other_prints)
            if both:
                lines, other_lines = line_ranges(prints, both), line_ranges(other_prints, both)
                yield Place(file, tuple(lines), other_file, tuple(other_lines))


def _submitted(one: Submission, rubric: Rubric) -> Work:
    files: dict[str, Prints] = {}
    for asked in rubric.variants:
        try:
            folder = one.variant(asked.name, rubric)
            content = read(folder) if folder else {}
        except SubmissionError:  # the grade reports it
            continue
        for name, data in content.items():
            if name.endswith(CODE):
                text = data.decode("utf-8", "replace")[:MOST_CHARACTERS]
                files[f"{asked.name}/{name}"] = fingerprints(tokens(name, text))
    return Work(one.name, files)


@cache
def _shipped(name: str) -> Work:
    folder = find(name).folder
    code = [path for path in sorted(folder.rglob("*")) if path.suffix in CODE]
    files = {}
    for path in code:
        files[path.relative_to(folder).as_posix()] = fingerprints(tokens(path.name, read_source(path)))
    return Work(name, files, shipped=True)
