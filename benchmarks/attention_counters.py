"""Measure Nsight Compute's counters for rungs of attention, on a GPU.

``python benchmarks/attention_counters.py --impl attention/v0,attention/v6 --out FILE.json``

One launch of each variant is profiled at one problem: 12 heads of 64 and 197 tokens, unless ``--shape``
changes it. `attention_page.py` turns the file into a table.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from command_line import add_impl, add_out, check_variants, head, parser_of, write

from mini_dnn.cli import status_of
from mini_dnn.profiling import ncu
from mini_dnn.profiling.job import Job, rehearse
from mini_dnn.variant import find

SHAPE = "1,12,197,64"  # the problem of the original project
METRICS = {
    "seconds": "gpu__time_duration.sum",
    "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "by_registers": "launch__occupancy_limit_registers",  # blocks of a multiprocessor
    "by_shared_memory": "launch__occupancy_limit_shared_mem",
}


def counted(kernel: ncu.Kernel) -> dict[str, Any]:
    """The metrics of one launch. A metric that the report lacks is None."""
    found = {name: kernel.first(metric) for name, metric in METRICS.items()}
    return {"kernel": kernel.name, "grid": kernel.grid, "block": kernel.block, **found}


def main(words: Sequence[str] | None = None) -> int:
    """Profile one variant after the other, and write the counters."""
    parser = parser_of(__doc__)
    add_impl(parser)
    parser.add_argument("--shape", default=SHAPE, help=f"the problem (default: {SHAPE})")
    add_out(parser, required=True)
    given = parser.parse_args(words)
    check_variants(given.impl, "attention")
    about, rows = head(given.impl, problem=given.shape), []
    for name in given.impl:
        variant = find(name)
        problem = variant.operation.parse(given.shape)
        with tempfile.TemporaryDirectory() as folder:
            job = Job(variant, {"problem": problem}, Path(folder))
            gpu = rehearse(job)
            kernels, _ = ncu.profile(job, "problem")
        rows += [{"variant": variant.name, **counted(kernel)} for kernel in kernels]
        print(json.dumps(rows[-1]), flush=True)
        write(given.out, {"device": gpu, **about, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
