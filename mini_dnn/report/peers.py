"""Results of libraries on the same device, from files that ``benchmarks/peers.py`` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from mini_dnn import ops
from mini_dnn.measuring.files import converted, refuse
from mini_dnn.measuring.records import MOST_ROWS, Count, Level, Name, Positive, Started, Words, check_started
from mini_dnn.ops.compare import PRECISIONS

# In schema 2, rows have no operation and problem, only a word for what was computed, and files no checksum.
OLD_SCHEMA, SCHEMA = "peers-2", "peers-4"
SCHEMAS = (OLD_SCHEMA, SCHEMA)


@dataclass(frozen=True, kw_only=True)
class PeerRow:
    """One problem by one program, in one setting."""

    kind: Literal["ours", "library", "floor"]
    what: Words  # a word for what was computed
    op: Words = ""  # empty for floors that belong to no operation
    problem: Words = ""
    peer: Name
    precision: Annotated[str, Meta(pattern=rf"\A(?:{'|'.join(PRECISIONS)}|)\Z")]
    order: Words  # the order of the axes, "NCHW" or "NHWC"
    setting: Words
    batch: Count
    op_ms: Positive
    relative_error: Level  # ||y - reference|| / ||reference||, against float64


@dataclass(frozen=True, kw_only=True)
class PeersFile:
    """The content of a file."""

    started: Started
    device: Name  # the name of the GPU only
    versions: Annotated[dict[Name, Any], Meta(max_length=200)]
    rows: Annotated[list[PeerRow], Meta(max_length=MOST_ROWS)]
    skipped: Annotated[list[dict[Name, Any]], Meta(max_length=MOST_ROWS)] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_started(self.started)


@dataclass(frozen=True)
class Peer:
    """One problem, measured with a library."""

    device: str
    file: Path
    versions: str  # of the library and of the program that called it
    row: PeerRow

    @property
    def key(self) -> tuple[Any, ...]:
        """The fields in which repeated measurements agree."""
        row = self.row
        return self.device, row.peer, row.precision, row.order, row.batch, row.op, row.problem


def content_of(content: Mapping[str, Any], file: Path) -> PeersFile:
    """Convert the content of a file of any of the `SCHEMAS`.

    Raises
    ------
    DataError
        A field is missing or of the wrong type. The message names file and field.
    """
    rows = content.get("rows")
    if content["schema"] == OLD_SCHEMA and isinstance(rows, list):
        content = {**content, "rows": [_row_of_old(row) if isinstance(row, dict) else row for row in rows]}
    return converted(content, PeersFile, file)


def read(content: Mapping[str, Any], file: Path) -> tuple[str, list[Peer]]:
    """Return the start time and the rows of libraries. If there are several settings, the fastest counts.

    Raises
    ------
    DataError
        See `content_of`.
    """
    found = content_of(content, file)
    of_libraries = [row for row in found.rows if row.kind == "library" and row.op]
    of_libraries.sort(key=lambda row: -row.op_ms)  # of equal keys, the last row is kept
    fastest = {(r.peer, r.precision, r.order, r.op, r.problem, r.batch): r for r in of_libraries}
    versions = _versions(found.versions, file, [row.peer for row in fastest.values()])
    return found.started, [Peer(found.device, file, versions, row) for row in fastest.values()]


def _row_of_old(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a row of schema 2, whose words name problems of the default operation only."""
    known = row.get("what") in list(ops.find(ops.DEFAULT).course)  # a list: the value may have any type
    return {**({"op": ops.DEFAULT, "problem": row["what"]} if known else {}), **row}


def _versions(found: Mapping[str, Any], file: Path, peers: Sequence[str]) -> str:
    """Format the versions. cuDNN's version is the number 10,000 major + 100 minor + patch."""
    words = []
    asked = {"torch": str, "cudnn": int} if set(peers) - {"CuPy"} else {}
    asked |= {"cupy": str} if "CuPy" in peers else {}
    for name, kind in asked.items():
        if type(found.get(name)) is not kind:
            refuse(file, f"versions.{name} is {found.get(name)!r}; expected a {kind.__name__}")
    if "cudnn" in asked:
        major, rest = divmod(found["cudnn"], 10_000)
        words.append(f"cuDNN {major}.{rest // 100}.{rest % 100} through PyTorch {found['torch']}")
    if "cupy" in asked:
        words.append(f"CuPy {found['cupy']}")
    return ", ".join(words)
