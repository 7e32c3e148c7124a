"""Savings of a smaller type: the measurements, the gains, and the claim that they are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mini_dnn.measuring.savings import Savings, SavingsFile, SavingsRow
from mini_dnn.report.document import NOT_THERE, Table
from mini_dnn.report.stale import stale_lines
from mini_dnn.report.tables import number, percent, times

WIDE, NARROW = "fp32", "fp16"
CLAIMED = "The original course project claims that FP16 is 15 % faster and needs 20 % fewer resources."
ABOUT = (
    "Each program ran alone and back to back for {run_s:g} s after {warm_up_s:g} s of warm-up, on normally "
    "distributed values. Time and power are means over this run, so a power limit affects both. Power is the "
    "increase of NVML's energy counter between its first and its last update in the run, divided by the time "
    "between them. The counter is updated every {update_ms:.0f} ms, so the error of a power is at most "
    "{error}. Energy is the energy above that of an idle GPU, which used {idle} W before the first run and "
    "{idle_after} W after the last one, each after {settle_s:g} s without work and with an open context. "
    "Operands: all inputs and outputs, each counted once. Memory: the peak of the allocated memory, "
    "including work space."
)


@dataclass(frozen=True)
class Gain:
    """Two rows. The second one has smaller operands."""

    words: str
    wide: SavingsRow
    narrow: SavingsRow

    @property
    def speed_up(self) -> float:
        """How many times as fast the second row is."""
        return self.wide.op_ms / self.narrow.op_ms

    def less(self, what: str) -> float:
        """The fraction of a quantity that is saved."""
        return 1 - getattr(self.narrow, what) / getattr(self.wide, what)


def gains(rows: Sequence[SavingsRow]) -> list[Gain]:
    """Return FP16 next to FP32 for the same program, and for the fastest of our FP16 variants."""
    found = []
    for program in dict.fromkeys(row.program for row in rows):
        of = [row for row in rows if row.program == program]
        wide = [row for row in of if row.operands == row.products == WIDE]
        narrow = [row for row in of if row.operands == NARROW]
        if wide and narrow:
            found.append(Gain(f"`{program}`", wide[0], narrow[0]))
    ours = [row for row in rows if row.kind == "ours"]
    if narrow := [row for row in ours if row.operands == NARROW]:
        fastest = min(narrow, key=lambda row: row.op_ms)
        others = [row for row in ours if row.operands == WIDE and row.program != fastest.program]
        found += [Gain(f"`{row.program}` to `{fastest.program}`", row, fastest) for row in others]
    return found


def doubts(one: Savings) -> Iterator[str]:
    """Warnings that a reader must see before relying on the figures."""
    if one.content.dirty:
        yield f"`{one.file.name}` was measured with files that differ from its commit"
    yield from stale_lines((row.program, row.code_hash) for row in one.content.rows)


def about(content: SavingsFile) -> str:
    """Describe how the figures were measured."""
    rows, method = content.rows, content.method
    return ABOUT.format(
        run_s=method.run_s,
        warm_up_s=method.warm_up_s,
        settle_s=method.settle_s,
        update_ms=1e3 * max(row.update_s for row in rows),
        error=percent(max(row.power_error for row in rows), 1),
        idle=f"{content.idle.watts:.0f}",
        idle_after=f"{content.idle_after.watts:.0f}",
    )


def problems(content: SavingsFile) -> str:
    """Describe the problems that were measured."""
    return " and ".join(f"`{problem}`" for problem in dict.fromkeys(row.problem for row in content.rows))


def rows_table(content: SavingsFile) -> Table:
    """The measurements of each program."""
    rows = [
        [
            f"`{row.program}`",
            row.operands,
            row.products,
            number(row.op_ms),
            number(row.flops / row.op_ms / 1e9),
            number(row.operand_bytes / 1e6),
            number(row.peak_bytes / 1e6),
            number(row.power_w),
            number(row.energy_j),
            number(row.total_j),
            str(row.state.sm_mhz) if row.state else NOT_THERE,
            f"{row.relative_error:.1e}",
        ]
        for row in content.rows
    ]
    columns = ["program", "operands", "products", "time, ms", "TFLOP/s", "operands, MB", "memory, MB"]
    columns += ["power, W", "energy, J", "with idle, J", "lowest SM, MHz", "error"]
    return Table(columns, rows, text_columns=3)


def gains_table(content: SavingsFile) -> Table:
    """FP16 compared with FP32."""
    rows = [
        [
            gain.words,
            times(gain.speed_up),
            *(percent(gain.less(what)) for what in ("operand_bytes", "peak_bytes", "energy_j")),
        ]
        for gain in gains(content.rows)
    ]
    return Table(["FP16 against FP32", "as fast", "fewer bytes", "less memory", "less energy"], rows)
