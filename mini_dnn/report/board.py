"""What the measured rows say: sums, speed-ups, rates, the roofline, and which rows can still be believed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mini_dnn.device.code_hash import code_hash
from mini_dnn.errors import VariantError
from mini_dnn.report.load import Record, Results, Row
from mini_dnn.report.peers import Peer
from mini_dnn.report.serving import Serving
from mini_dnn.variant import Variant, find, names

COURSE_BATCH = 10_000  # the course states its op times at this batch
BASELINE = "m2/unroll_gemm"
GONE = "no such variant any more, or it cannot be loaded"  # why figures are stale
CHANGED = "the code has changed since"
NOT_SAID = "the file does not say which code it measured (code_hash)"
Key = tuple[str, int, str]  # variant, batch and layer
THROTTLED = {  # NVML's nvmlClocksThrottleReason bits that slow a kernel down
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal limit",
    0x40: "hardware thermal limit",
    0x80: "power brake",
}


@dataclass(frozen=True)
class Roof:
    """An op time beside what the device's ceilings allow."""

    fraction: float  # of the roofline reached; a lower bound while `missing` names a ceiling
    bound: str  # "memory" or "compute": the ceiling that is nearer
    missing: str = ""  # the type whose compute ceiling is not known


@dataclass(frozen=True)
class Entry:
    """One variant at one batch."""

    variant: str
    batch: int
    rows: Mapping[str, Row]  # by layer
    layers: Sequence[str]  # all layers of the network, measured or not
    stale: str  # why the figures no longer describe the sources; empty when they do

    @property
    def any_row(self) -> Row:
        """One of the rows, for what all of them share."""
        return next(iter(self.rows.values()))

    def op_ms(self, layer: str) -> float | None:
        """Op time of a layer; None where there is none."""
        return self.rows[layer].op_ms if layer in self.rows else None

    @property
    def overlaps(self) -> bool:
        """Whether it copies by itself: what it gains is layer time, and its op time is no measure of it."""
        return any(row.streams for row in self.rows.values())

    @property
    def sum_ms(self) -> float | None:
        """Op time of all layers; None while one is missing."""
        times = [self.op_ms(layer) for layer in self.layers]
        return None if None in times else sum(time for time in times if time is not None)


@dataclass(frozen=True)
class Board:
    """All results of one device."""

    device: str
    records: Sequence[Record]
    layers: Sequence[str]
    entries: Mapping[tuple[str, int], Entry]  # by variant and batch, in the order of the course
    runs: Mapping[Key, Sequence[Row]]  # all that were measured of the code that the entries show
    ceilings: Mapping[str, float]
    compute_types: Mapping[str, str]  # of the variants that there are; empty where it is their precision
    sweeps: Sequence[Mapping[str, Any]]
    peers: Sequence[Peer]
    servings: Sequence[Serving]

    @property
    def batches(self) -> list[int]:
        """All batches, smallest first."""
        return sorted({batch for _, batch in self.entries})

    @property
    def main_batch(self) -> int:
        """The batch that the plots show: the course's, or else the largest."""
        return COURSE_BATCH if COURSE_BATCH in self.batches else self.batches[-1]

    def at(self, batch: int) -> list[Entry]:
        """All variants at a batch."""
        return [entry for (_, at), entry in self.entries.items() if at == batch]

    def speed_up(self, entry: Entry, over: str | None) -> float | None:
        """How many times faster the sum of op times is than that of another variant at the same batch."""
        other = self.entries.get((over, entry.batch)) if over else None
        if other is None or other.sum_ms is None or entry.sum_ms is None:
            return None
        return other.sum_ms / entry.sum_ms

    def compute_type(self, row: Row) -> str:
        """In what a row's products are computed, one of `COMPUTE_TYPES`."""
        return self.compute_types.get(row.variant) or row.precision

    def roof(self, row: Row) -> Roof | None:
        """How near an op comes to the roofline; None without a time or a ceiling, and for the host's."""
        copy_gbps = self.ceilings.get("copy_gbps")
        if row.op_ms is None or row.on_host or copy_gbps is None:
            return None
        memory_ms = row.min_bytes / (copy_gbps * 1e6)
        products, _, unit = self.compute_type(row).rpartition("x")  # "3xfp16", or "fp16" alone
        peak_tflops = self.ceilings.get(f"{unit}_tflops")
        if peak_tflops is None:
            return Roof(memory_ms / row.op_ms, "memory", missing=unit)
        compute_ms = int(products or 1) * row.flops / (peak_tflops * 1e9)
        bound = "memory" if memory_ms >= compute_ms else "compute"
        return Roof(max(memory_ms, compute_ms) / row.op_ms, bound)


def gbps(row: Row) -> float | None:
    """GB/s that the op would need for reading its input and writing its output once each."""
    return None if row.op_ms is None else row.min_bytes / row.op_ms / 1e6


def tflops(row: Row) -> float | None:
    """TFLOP/s of the convolution's own arithmetic."""
    return None if row.op_ms is None else row.flops / row.op_ms / 1e9


def throttling(row: Row) -> list[str]:
    """What held the clocks down while the row was measured; of old files, right after that."""
    if not row.state or "throttle_reasons" not in row.state:
        return []
    bits = int(row.state["throttle_reasons"], 16)
    return [name for bit, name in THROTTLED.items() if bits & bit]


def boards(results: Results) -> list[Board]:
    """A board for each device: first those with op times at the course's batch, latest results first."""
    devices = dict.fromkeys(row.record.device for row in results.rows)
    found = [_board(device, results) for device in devices]

    def rank(board: Board) -> tuple[bool, str]:
        timed = any(e.sum_ms is not None and not e.any_row.on_host for e in board.at(COURSE_BATCH))
        return timed, max(record.started for record in board.records)

    return sorted(found, key=rank, reverse=True)


def _board(device: str, results: Results) -> Board:
    rows = [row for row in results.rows if row.record.device == device]
    layers = list(dict.fromkeys(row.layer for row in rows))
    of_entry: dict[tuple[str, int], dict[str, Row]] = {}
    for row in rows:
        of_entry.setdefault((row.variant, row.batch), {})[row.layer] = row
    order = {name: at for at, name in enumerate(names())}
    keys = sorted(of_entry, key=lambda key: (order.get(key[0], len(order)), key))
    variants = {name: _found(name) for name, _ in keys}
    compute_types = {name: variant.compute_type for name, variant in variants.items() if variant}
    hashes = {name: _current_hash(variant) for name, variant in variants.items()}
    stale = {key: _why_stale(of_entry[key].values(), variants[key[0]], hashes[key[0]]) for key in keys}
    entries = {key: Entry(*key, of_entry[key], layers, stale[key]) for key in keys}
    records = [record for record in results.records if record.device == device]
    ceilings = {name: value for record in records for name, value in record.ceilings.items()}
    sweeps = {(s["variant"], s["layer"], s["batch"]): s for record in records for s in record.sweeps}
    runs: dict[Key, list[Row]] = {}
    code = {_key(row): row.code_hash for row in rows}
    for row in results.runs:
        if row.record.device == device and row.code_hash == code[_key(row)]:
            runs.setdefault(_key(row), []).append(row)
    counted = {id(row.record) for of_key in runs.values() for row in of_key}
    used = [record for record in records if id(record) in counted]
    peers = [peer for peer in results.peers if device.startswith(f"{peer.device} (")]  # its architecture
    servings = [serving for serving in results.servings if serving.device == device]
    return Board(
        device=device,
        records=used,
        layers=layers,
        entries=entries,
        runs=runs,
        ceilings=ceilings,
        compute_types=compute_types,
        sweeps=list(sweeps.values()),
        peers=peers,
        servings=servings,
    )


def is_stale(variant: str, measured: str) -> bool:
    """Whether a variant's code is no longer the one with that hash."""
    return _current_hash(_found(variant)) != measured


def _key(row: Row) -> Key:
    return row.variant, row.batch, row.layer


def _found(variant: str) -> Variant | None:
    """The variant as it is now; None if it is gone or broken."""
    try:
        return find(variant)
    except VariantError:
        return None


def _current_hash(variant: Variant | None) -> str | None:
    """The hash of a variant's code as it is now; None on the host, and where there is no code."""
    return code_hash(variant.source) if variant and variant.host is None else None


def _why_stale(rows: Collection[Row], variant: Variant | None, current: str | None) -> str:
    if variant is None:
        return GONE
    if any(row.code_hash is None and not row.on_host for row in rows):
        return NOT_SAID
    return CHANGED if any(row.code_hash != current for row in rows) else ""
