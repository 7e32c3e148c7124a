"""Results of libraries on the same device, as ``benchmarks/peers.py`` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mini_dnn.ops.course import LAYERS
from mini_dnn.report.fields import NUMBER, Fields, check

CONVOLUTIONS_SCHEMA = "peers-1"  # cuDNN's convolutions alone; the layer's name is in `layer`
RUN_SCHEMA = "peers-2"  # ours, libraries and floors, of which convolutions are a part
SCHEMAS = (CONVOLUTIONS_SCHEMA, RUN_SCHEMA)
FILE: Fields = {"started": (str,), "device": (str,), "versions": (dict,), "rows": (list,)}
VERSIONS: Fields = {"torch": (str,), "cudnn": (int,)}
ROW: Fields = {
    "peer": (str,),
    "precision": (str,),
    "order": (str,),
    "layer": (str,),
    "batch": (int,),
    "op_ms": NUMBER,
    "relative_error": NUMBER,
}
RUN: Fields = {**FILE, "skipped": (list,)}
RUN_ROW: Fields = {
    "kind": (str,),  # "ours", "library" or "floor"
    "what": (str,),  # a layer's name for a convolution alone
    "setting": (str,),
    **{name: kinds for name, kinds in ROW.items() if name != "layer"},
}


@dataclass(frozen=True)
class Peer:
    """One convolution layer by a library."""

    device: str  # the GPU's name alone
    file: Path
    versions: str  # of the library and of what called it
    peer: str
    precision: str
    order: str  # of the axes: "NCHW" or "NHWC"
    layer: str
    batch: int
    op_ms: float
    relative_error: float  # ||y - reference|| / ||reference||, against float64


def read(content: Any, file: Path) -> tuple[str, list[Peer]]:
    """When it was started, and the rows; of several settings the fastest.

    Raises
    ------
    DataError
        A field is missing or of the wrong kind; names file and field.
    """
    is_run = content["schema"] == RUN_SCHEMA
    check(content, RUN if is_run else FILE, file, "")
    for at, row in enumerate(content["rows"]):
        check(row, RUN_ROW if is_run else ROW, file, f"rows[{at}].", positive=("batch", "op_ms"))
    rows = content["rows"]
    if is_run:
        of_libraries = [row for row in rows if row["kind"] == "library" and row["what"] in LAYERS]
        of_libraries.sort(key=lambda row: -row["op_ms"])  # the last of equal names counts
        names = [name for name in ROW if name not in ("op_ms", "relative_error")]
        rows = [row | {"layer": row["what"]} for row in of_libraries]
        rows = list({tuple(row[name] for name in names): row for row in rows}.values())
    versions = _versions(content["versions"], file, {row["peer"] for row in rows})
    return content["started"], [
        Peer(content["device"], file, versions, *(row[name] for name in ROW)) for row in rows
    ]


def _versions(found: Mapping[str, Any], file: Path, peers: set[str]) -> str:
    """CuDNN's number is major 10,000 + minor 100 + patch."""
    words = []
    if peers - {"CuPy"}:
        check(found, VERSIONS, file, "versions.", positive=("cudnn",))
        major, rest = divmod(found["cudnn"], 10_000)
        words.append(f"cuDNN {major}.{rest // 100}.{rest % 100} through PyTorch {found['torch']}")
    if "CuPy" in peers:
        check(found, {"cupy": (str,)}, file, "versions.")
        words.append(f"CuPy {found['cupy']}")
    return ", ".join(words)
