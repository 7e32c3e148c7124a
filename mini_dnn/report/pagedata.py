"""Data for the charts of the page's script, and the sources that a click on a variant opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mini_dnn.paths import ROOT
from mini_dnn.report.board import Board, Entry, gbps, tflops
from mini_dnn.report.ladder import ladder_of
from mini_dnn.report.rows import Row
from mini_dnn.report.stale import official, present
from mini_dnn.variant import Variant
from mini_dnn.variant.differences import FILES, compare

LESSON = "README.md"


@dataclass(frozen=True)
class Shown:
    """What the page shows about a variant. Paths are relative to the checkout."""

    source: str
    lesson: str
    data: Mapping[str, Any]


def variants_of(boards: Sequence[Board]) -> dict[str, Shown]:
    """Return the variants of this checkout that the boards name, including rungs that were not measured."""
    names = dict.fromkeys(name for board in boards for name in board.variants)
    ladders = [ladder for board in boards if (ladder := ladder_of(board))]
    names |= dict.fromkeys(rung.variant for ladder in ladders for rung in ladder.rungs)
    return {name: _shown(found) for name in names if (found := present(name))}


def _shown(variant: Variant) -> Shown:
    files = [file for file in FILES if (variant.folder / file).is_file()]
    lesson = next(folder / LESSON for folder in _upward(variant.folder) if (folder / LESSON).is_file())
    parent = present(official(variant.parent)) if variant.parent else None
    changes = [line for file in FILES for line in compare(parent, variant, file)] if parent else []
    return Shown(
        source=str((variant.folder / files[0]).relative_to(ROOT)),
        lesson=str(lesson.relative_to(ROOT)),
        data={
            "idea": variant.idea,
            "precision": variant.precision,
            "parent": official(variant.parent) if variant.parent else "",
            "lesson": str(lesson.relative_to(ROOT)),
            "files": {file: (variant.folder / file).read_text(encoding="utf-8") for file in files},
            "diff": "\n".join(changes).strip(),
        },
    )


def _upward(folder: Path) -> list[Path]:
    """A folder and its parents, up to the root of the checkout."""
    return [folder, *(one for one in folder.parents if one.is_relative_to(ROOT))]


def data_of(boards: Sequence[Board], variants: Mapping[str, Shown], to_root: str) -> dict[str, Any]:
    """Return all data that the page's script needs.

    Parameters
    ----------
    to_root
        The relative path from the report's folder to the checkout, or an empty string if the report is
        outside the checkout.
    """
    return {
        "root": to_root,
        "boards": [_board(board) for board in boards],
        "variants": {name: shown.data for name, shown in variants.items()},
    }


def _board(board: Board) -> dict[str, Any]:
    """One operation on one device, at the problems of its main table."""
    ladder = ladder_of(board)
    entries = board.at(board.main)
    return {
        "ceilings": dict(board.ceilings),
        "problems": list(board.problems(board.main)),
        "chosen": list(ladder.problems) if ladder else list(board.problems(board.main)),
        "rungs": [rung.variant for rung in ladder.rungs] if ladder else [],
        "entries": [_entry(board, entry) for entry in entries],
    }


def _entry(board: Board, entry: Entry) -> dict[str, Any]:
    rows = {name: _row(board, row) for name, row in entry.rows.items() if row.op_ms}
    return {
        "variant": entry.variant,
        "precision": entry.any_row.precision,
        "host": entry.any_row.on_host,
        "rows": rows,
    }


def _row(board: Board, row: Row) -> dict[str, Any]:
    roof = board.roof(row)
    return {
        "ms": row.op_ms,
        "intensity": row.flops / row.min_bytes,
        "tflops": tflops(row),
        "gbps": gbps(row),
        "compute": board.compute_type(row),
        "share": (roof and not roof.missing and roof.fraction) or None,
        "bound": roof.bound if roof and not roof.missing else "",
        "error": row.max_error,
    }
