"""What results files hold: runs, and rows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mini_dnn.ops.shapes import ConvShape


@dataclass(frozen=True)
class Record:
    """One run of ``bench``."""

    file: Path
    schema: int
    started: str  # ISO 8601
    commit: str | None
    dirty: bool | None
    device: str
    cpu: str
    state: Mapping[str, Any] | None  # clocks and the like before the run
    data: str
    method: Mapping[str, Any]
    ceilings: Mapping[str, float]  # of the device: copy_gbps, fp32_tflops and so on
    sweeps: Sequence[Mapping[str, Any]]

    @classmethod
    def of(cls, content: Mapping[str, Any], file: Path, schema: int, ceilings: Mapping[str, float]) -> Record:
        """The head of a results file, whose fields have been checked."""
        return cls(
            file=file,
            schema=schema,
            device=content["device"]["name"],
            cpu=content["device"]["cpu"],
            state=content["device"]["state"],
            ceilings=ceilings,
            sweeps=content.get("sweeps", []),
            **{name: content[name] for name in ("started", "commit", "dirty", "data", "method")},
        )


@dataclass(frozen=True)
class Row:
    """One convolution layer of one variant at one batch."""

    record: Record
    variant: str
    parent: str | None
    precision: str
    source_hash: str | None  # of the kernel's bytes; None for a variant that runs on the host
    code_hash: str | None  # of what the kernel and variant.py compute; None also where the file is too old
    batch: int
    layer: str
    shape: ConvShape
    flops: int
    min_bytes: int
    op_ms: float | None
    median_error: float | None  # half the 95 % confidence interval, as a fraction
    repeats: int
    parts: int
    layer_ms: float | None  # None where only the op was measured: see `growth_rows`
    max_error: float  # against float64
    accuracy: float | None  # likewise
    state: Mapping[str, Any] | None  # of the GPU, the worst while the row was measured; schema 1: right after
    streams: Mapping[str, Any] | None

    @property
    def on_host(self) -> bool:
        """Whether the CPU computed it."""
        return self.source_hash is None
