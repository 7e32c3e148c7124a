"""Results of libraries on the same device, as ``benchmarks/peers.py`` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mini_dnn.report.fields import NUMBER, Fields, check

SCHEMA = "peers-1"
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
    """When it was started, and the rows.

    Raises
    ------
    DataError
        A field is missing or of the wrong kind; names file and field.
    """
    check(content, FILE, file, "")
    check(content["versions"], VERSIONS, file, "versions.", positive=("cudnn",))
    for at, row in enumerate(content["rows"]):
        check(row, ROW, file, f"rows[{at}].", positive=("batch", "op_ms"))
    versions = _versions(content["versions"])
    rows = [Peer(content["device"], file, versions, *(row[name] for name in ROW)) for row in content["rows"]]
    return content["started"], rows


def _versions(found: Mapping[str, Any]) -> str:
    """CuDNN's number is major 10,000 + minor 100 + patch."""
    major, rest = divmod(found["cudnn"], 10_000)
    return f"cuDNN {major}.{rest // 100}.{rest % 100} through PyTorch {found['torch']}"
