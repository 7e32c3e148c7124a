"""Measure Nsight Compute's counters of small kernels and of the ladders, for comparison with the emulator.

``python benchmarks/counters.py --out benchmarks/results/counters`` needs a GPU with access to its counters.

Each group of launches is one run of ncu and one file. `tests/test_counters_proof.py` compares the emulator's
present counters with these files, and docs/counters.md shows both.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

from brackets import measured, problem_of
from command_line import head, parser_of, write
from counters_cases import LADDERS, SOURCE, ladder_cases, launch_probes, probes
from products import build_plans

from mini_dnn.checking.launches import shared_limit
from mini_dnn.cli import status_of
from mini_dnn.device import open_device
from mini_dnn.device.nvcc import build_cubin, nvcc_arch
from mini_dnn.device.tools import find_tool
from mini_dnn.profiling import ncu
from mini_dnn.profiling.workload import profiler_range, solve
from mini_dnn.variant import find

GROUPS = {"probes": 20, "ladders": 7, "limits": 12}  # cases per run
ARCH = 90  # the compute capability of an H100 or H200
SECONDS = 150  # for a group
ENTRIES = 400  # batch size, which fills the GPU
ALSO = (  # course problems of variants without published op times, with smaller batches
    *((f"attention/{name}", "tokens-197", 400) for name in ("v0_naive", "v1_shared", "v2_coalesced")),
    ("gemm/v9_fp32", "fp32-1024", 400),
    *(
        (f"conv2d_padded/{name}", "layer1.0.conv1", 400)
        for name in ("v0_naive", "v1_shared", "v2_wmma", "v3_wgmma", "v4_rows")
    ),
    *((f"linear/{name}", "qkv", 400) for name in ("v0_naive", "v1_tiles")),
    *((f"softmax/{name}", "classes", 20_000) for name in ("v0_naive", "v1_warp")),
    *(
        (f"networks/lenet/{name}", "uint8", 400)
        for name in ("layer_by_layer", "fused_pool", "tensor_cores", "whole")
    ),
    *(  # v7_one_kernel is left out: the emulator takes minutes for the smallest network that it accepts
        (f"networks/resnet18/{name}", "fashion-mnist", 400)
        for name in ("v0_transfers", "v1_conv_bn", "v2_layers", "v3_shared", "v4_tensor_cores")
    ),
    *((f"networks/resnet18/{name}", "fashion-mnist", 400) for name in ("v5_fused", "v6_graph")),
    *((f"networks/vit/{name}", "fashion-mnist", 400) for name in ("layer_by_layer", "fused")),
)

LOADS = ("ld", "st", "atom", "red")
SHARED = ("ld", "st", "atom", "ldsm", "ldgsts")
EXECUTED = (
    *("global_ld", "global_st", "global_red", "local_ld", "local_st", "shared_ld", "shared_st"),
    *("shared_atom", "ldsm", "ldgsts", "ldc", "branch", "tma_ld", "tma_st"),
)
SASS = (
    *(f"thread_inst_executed_op_{kind}_pred_on.sum" for kind in ("ffma", "fadd", "fmul", "hfma")),
    *(f"average_data_bytes_per_sector_mem_global_op_{op}.ratio" for op in ("ld", "st")),
    *("branch_targets.sum", "branch_targets_threads_divergent.sum"),
    *(f"l1tex_t_sectors_pipe_lsu_mem_global_op_{op}.sum" for op in (*LOADS, "ldgsts")),
    *(f"l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in SHARED),
    *("l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum", "l1tex_tags_mem_global.sum"),
    *("l1tex_pipe_lsu_wavefronts_mem_shared.sum", "inst_executed_op_shared_gmma.sum"),
)
METRICS = [
    *(f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum" for what in ("requests", "sectors") for op in LOADS),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st")),
    *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st")),
    *(f"smsp__inst_executed_op_{op}.sum" for op in EXECUTED),
    *(f"smsp__sass_{name}" for name in SASS),
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed.sum",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    "smsp__inst_executed_pipe_xu.sum",
    "smsp__inst_executed_pipe_tensor.sum",
    "sm__ops_path_tensor_src_fp16.sum",
    "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "memory_l1_wavefronts_shared",
    "memory_l1_wavefronts_shared_ideal",
    "memory_l2_theoretical_sectors_global",
    "memory_l2_theoretical_sectors_global_ideal",
]
PERCENT = "avg.pct_of_peak_sustained_elapsed"
LIMITS = [  # utilisation of units
    "gpu__time_duration.sum",
    f"dram__throughput.{PERCENT}",
    f"lts__throughput.{PERCENT}",
    f"l1tex__data_pipe_lsu_wavefronts.{PERCENT}",
    f"l1tex__lsuin_requests.{PERCENT}",
    f"sm__inst_issued.{PERCENT}",
    f"sm__inst_executed_pipe_fma.{PERCENT}",
    f"sm__inst_executed_pipe_alu.{PERCENT}",
    f"sm__inst_executed_pipe_xu.{PERCENT}",
    f"sm__pipe_tensor_cycles_active.{PERCENT}",
]
KEPT = {*METRICS, *LIMITS, "launch__registers_per_thread"}
OUT_OF_TIME = "\n==ERROR== out of time"
DEVICE = re.compile(r"^device (.+)$", re.MULTILINE)
UNKNOWN = re.compile(r"Failed to find metric (?:regex:)?\W*(\w+)")


def limit_cases() -> Iterator[tuple[Any, Any]]:
    """Variants of all ladders, each at a problem that fills the GPU.

    The files ``limits-*.json`` have their launches in this order.
    """
    for (name, at), row in measured().items():
        if at in ("conv1", "tokens-197", "fp16-1024"):
            variant = find(name)
            problem = problem_of(variant, row)
            few = problem.with_batch(min(problem.batch, ENTRIES))
            if variant.plan is not None and not variant.needs_gpu and not variant.limit_for(few):
                yield variant, few
    for name, at, entries in ALSO:
        variant = find(name)
        problem = variant.operation.course[at]
        yield variant, problem.with_batch(min(problem.batch, entries))


def workload(group: str) -> None:
    """The profiled process: the launches of one group. Ladders run once before that."""
    kind, first = group.split("-")
    part = int(first), int(first) + GROUPS[kind]
    with closing(open_device("cuda")) as device:
        print(f"device {device.description}", flush=True)
        if kind == "probes":
            with profiler_range():
                launch_probes(device, *part)
            return
        chosen = islice(limit_cases(), *part) if kind == "limits" else ladder_cases(*part)
        cases = [
            (variant, [(problem, variant.operation.inputs(problem, seed=0))]) for variant, problem in chosen
        ]
        for variant, given in cases:
            solve(variant, given, device)
        for variant, given in cases:
            print(f"case {variant.name}", flush=True)
            with profiler_range():
                solve(variant, given, device)


def build() -> None:
    """Compile all kernels, so that ncu does not wait for a compiler."""
    build_cubin(SOURCE, {}, nvcc_arch(ARCH))
    cases = chain(ladder_cases(), limit_cases())
    build_plans((variant.planned(problem, shared_limit(ARCH)) for variant, problem in cases), ARCH)


def watched(metrics: Sequence[str], group: str, *words: str) -> str:
    """Run ncu on a group, and return its output."""
    command = [str(find_tool("ncu")), "--csv", "--page", "raw", "--print-units", "base"]
    command += ["--clock-control", "none", "--profile-from-start", "off", "--print-kernel-base", "function"]
    command += ["--section", "LaunchStats", "--section", "Occupancy"]
    command += ["--metrics", ",".join(metrics), *words]
    command += [sys.executable, str(Path(__file__).resolve()), "--workload", group]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace") + OUT_OF_TIME
    return done.stdout + done.stderr


def known_metrics() -> list[str]:
    """The metrics that this version of ncu supports for this GPU: it refuses a list with an unknown one."""
    done = subprocess.run(
        [str(find_tool("ncu")), "--query-metrics", "--chip", "gh100"],
        capture_output=True,
        text=True,
        check=False,
    )
    listed = set(re.findall(r"^([\w]+)", done.stdout, re.MULTILINE))
    metrics = [name for name in METRICS if name.split(".")[0] in listed or name.startswith("memory_")]
    for _ in range(10):
        text = watched(metrics, "probes-0", "--launch-count", "1")
        unknown = set(UNKNOWN.findall(text))
        if not unknown and ncu.parse(text):
            return metrics
        if not unknown:
            break
        metrics = [name for name in metrics if name.split(".")[0] not in unknown]
    print(f"{text}\nonly metrics that ncu lists are measured", flush=True)
    return [name for name in metrics if name.split(".")[0] in listed]


def measure(group: str, metrics: Sequence[str], out: Path) -> None:
    """Run ncu once, and write one file."""
    about = head()
    text = watched(metrics, group)
    kernels = ncu.parse(text)
    rows = [
        {
            "kernel": kernel.name,
            "grid": kernel.grid,
            "block": kernel.block,
            **{name: value for name, value in kernel.metrics.items() if name in KEPT},
        }
        for kernel in kernels
    ]
    # Without its last launches, a group would be taken for a complete one
    if rows and OUT_OF_TIME not in text and (device := DEVICE.search(text)):
        write(out / f"{group}.json", {"device": device[1], **about, "rows": rows})
        print(f"{group}: {len(rows)} launches", flush=True)
    else:
        (out / f"{group}.txt").write_text(text[-20000:])
        print(f"{group}: not measured; {out / group}.txt has the output of ncu", flush=True)


def groups() -> list[str]:
    """Small kernels and ladders alternately, so that both are measured if time runs out."""
    parts = [
        [f"{kind}-{first}" for first in range(0, count, GROUPS[kind])]
        for kind, count in (("probes", len(probes())), ("ladders", len(LADDERS)))
    ]
    limits = [f"limits-{first}" for first in range(0, len(list(limit_cases())), GROUPS["limits"])]
    return [*(group for pair in zip_longest(*parts) for group in pair if group), *limits]


def measure_all(out: Path, seconds: float) -> None:
    """Measure all groups without a file. Begin no further one when the time is over."""
    open_device("cuda").close()  # raises an error without a GPU, which ncu would not explain
    start = time.monotonic()
    proof = known_metrics()
    print(f"{len(proof)} metrics after {time.monotonic() - start:.0f} s", flush=True)
    for group in groups():
        metrics = LIMITS if group.startswith("limits") else proof
        if not (out / f"{group}.json").exists() and time.monotonic() - start < seconds:
            measure(group, metrics, out)
            print(f"{time.monotonic() - start:.0f} s", flush=True)


def main(words: Sequence[str] | None = None) -> int:
    """Measure all groups, or be the profiled process."""
    parser = parser_of(__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--out", type=Path, metavar="FOLDER", help="a folder for the results; groups that it has are kept"
    )
    what.add_argument("--workload", help=argparse.SUPPRESS)
    what.add_argument("--build", action="store_true", help="only compile all kernels")
    parser.add_argument("--seconds", type=float, default=3600, help="begin no further group after this time")
    given = parser.parse_args(words)
    if given.workload:
        workload(given.workload)
    elif given.build:
        build()
    else:
        given.out.mkdir(parents=True, exist_ok=True)
        measure_all(given.out, given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
