"""Measure the savings of FP16 for a matrix product: time, bytes, memory and energy, ours and cuBLAS.

``python benchmarks/savings.py --out FILE.json --picture FILE.svg`` measures and draws.
``python benchmarks/savings.py --from FILE.json --picture FILE.svg`` draws existing measurements.

Each program runs alone for some seconds while NVML's energy counter is read. Results are first compared with
float64. What cannot be measured is listed with the reason.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import savings_programs
from command_line import parser_of
from picture_files import check_picture, save_picture
from savings_programs import OP, Program

from mini_dnn.cli import status_of
from mini_dnn.cli.common import DIFFERS, check_output
from mini_dnn.device import Device, open_device
from mini_dnn.errors import CheckError, UsageError
from mini_dnn.measuring.bench import state_of
from mini_dnn.measuring.energy import Meter, Power, load, power
from mini_dnn.measuring.files import read_json, refuse, write
from mini_dnn.measuring.machine import commit, cpu_name, versions
from mini_dnn.measuring.nvml import Watch, gpu_state
from mini_dnn.measuring.records import Place
from mini_dnn.measuring.savings import SCHEMA, Method, SavingsFile, SavingsRow, figures, savings_file
from mini_dnn.report.document import to_markdown
from mini_dnn.report.savings import gains_table, rows_table
from mini_dnn.report.savings_page import plot

SIZE = 4096
IMPL = ["gemm/v3_registers", "gemm/v5_mma_async", "gemm/v8_final", "gemm/v9_fp32"]


def idle_power(device: Device, method: Method) -> Power:
    """Measure the power of the idle GPU, some seconds after its last work."""
    device.synchronize()
    time.sleep(method.settle_s)
    since = time.perf_counter()
    with Meter(device) as meter:
        time.sleep(method.idle_s)
    return power(meter.ticks, since, time.perf_counter())


def measure(program: Program, idle: Power, device: Device, method: Method) -> SavingsRow:
    """Measure a program and return its row.

    Raises
    ------
    CheckError
        The result is wrong.
    DeviceError
        The energy cannot be measured.
    """
    with program.prepare() as prepared:
        prepared.op()
        prepared.synchronize()
        error = program.check(prepared.result())
        with Watch(device) as watch, Meter(device) as meter:
            done = load(prepared.op, prepared.synchronize, method.warm_up_s, method.run_s)
        found = figures(done, power(meter.ticks, done.since_s, done.until_s), idle)
        peak_bytes = prepared.peak_bytes()
    return SavingsRow(
        kind=program.kind,
        program=program.name,
        operands=program.problem.dtype,
        products=program.products,
        problem=program.problem.text,
        code_hash=program.code_hash,
        flops=program.problem.flops,
        operand_bytes=program.problem.min_bytes,
        peak_bytes=peak_bytes,
        relative_error=error,
        state=state_of(watch.state),
        **found,
    )


def measured(programs: Sequence[Program], device: Device, method: Method) -> SavingsFile:
    """Measure all programs. One that fails is left out with the reason."""
    rows, skipped = [], []
    place = Place(name=device.description, cpu=cpu_name(), state=state_of(gpu_state(device)))
    started = datetime.now(UTC).isoformat(timespec="seconds")
    idle = idle_power(device, method)
    print(f"idle: {idle.watts:.1f} W, +- {idle.error:.1%}", flush=True)
    for program in programs:
        try:
            row = measure(program, idle, device, method)
        except Exception as error:  # a library may raise anything, which must not end the benchmark
            wrong = "wrong: " if isinstance(error, CheckError) else ""
            skipped.append({"program": program.words, "reason": f"{wrong}{error}"})
            print(f"skipped: {program.words}: {wrong}{error}", flush=True)
            continue
        rows.append(row)
        figures_ = f"{row.op_ms:9.4f} ms  {row.power_w:6.1f} W  {row.energy_j:8.4f} J above idle"
        print(f"{program.words:<45} {figures_}  +- {row.power_error:.1%}", flush=True)
    return SavingsFile(
        started=started,
        **commit(),
        device=place,
        versions=versions() | savings_programs.versions() | getattr(device, "versions", {}),
        method=method,
        op=OP,
        idle=idle,
        idle_after=idle_power(device, method),
        rows=rows,
        skipped=skipped,
    )


def read(file: Path) -> SavingsFile:
    """Read a stored record.

    Raises
    ------
    DataError
        The file is not a record. The message names file and field.
    """
    content = read_json(file)
    if content.get("schema") != SCHEMA:
        refuse(file, f"schema is {content.get('schema')!r}, and this program reads {SCHEMA}")
    return savings_file(content, file)


def run(args: argparse.Namespace) -> int:
    """Measure, or read existing measurements; print tables and draw."""
    check_output("--out", args.out, force=True)
    check_picture(args.picture)
    if args.stored and args.out:
        raise UsageError("--from measures nothing that --out could write; leave one of them out")
    if not args.seconds > 0:
        raise UsageError(f"--seconds {args.seconds:g}: expected a positive number of seconds")
    record = read(args.stored) if args.stored else _run_on_gpu(args)
    if record.rows:
        print("\n" + to_markdown([rows_table(record), gains_table(record)]))
    if args.picture and record.rows:
        save_picture(partial(plot, record), args.picture)
        print(f"drawn: {args.picture}")
    return DIFFERS if any(one["reason"].startswith("wrong") for one in record.skipped) else 0


def _run_on_gpu(args: argparse.Namespace) -> SavingsFile:
    method = replace(Method(), run_s=args.seconds)
    with closing(open_device("cuda")) as device:
        print(f"{device.description}, {args.size} x {args.size} x {args.size}", flush=True)
        record = measured(savings_programs.programs(args.impl, args.size, device), device, method)
    if args.out:
        write(record, args.out)
        print(f"written to {args.out}")
    return record


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = parser_of(__doc__)
    add: Any = parser.add_argument
    add("--out", type=Path, metavar="FILE", help="write the results to this JSON file")
    add("--picture", type=Path, metavar="FILE", help="draw the results, as .svg or .png")
    add(
        "--from",
        type=Path,
        metavar="FILE",
        dest="stored",
        help="draw the results in this file instead of measuring",
    )
    add("--impl", nargs="+", default=IMPL, help=f"ours, beside cuBLAS (default {' '.join(IMPL)})")
    add("--size", type=int, default=SIZE, help=f"rows, columns and terms of the product (default {SIZE})")
    add("--seconds", type=float, default=Method().run_s, metavar="S", help="of each program's run")
    given = parser.parse_args(words)
    return status_of(lambda: run(given))


if __name__ == "__main__":
    sys.exit(main())
