"""When the steps of a plan ran on the device, and how much of them overlapped."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """When one step ran on the device."""

    kind: str  # "copy_in", "kernel" or "copy_out"
    label: str
    stream: int
    start_ms: float
    end_ms: float


def hidden_fraction(spans: list[Span]) -> float:
    """The overlap of copies and kernels, as a fraction of the shorter of the two: 1 is complete overlap."""
    copies = _union([s for s in spans if s.kind != "kernel"])
    kernels = _union([s for s in spans if s.kind == "kernel"])
    shorter = min(_length(copies), _length(kernels))
    both = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in copies for b in kernels)
    return both / shorter if shorter else 0.0


def _union(spans: list[Span]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted((s.start_ms, s.end_ms) for s in spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _length(intervals: list[tuple[float, float]]) -> float:
    return sum(end - start for start, end in intervals)
