"""Compare the emulator's counters with those measured by ncu.

``python benchmarks/counters_compare.py`` runs the cases of `counters_cases` in the emulator, and compares
them with the files in results/counters. It takes some minutes, and needs no GPU. The number of instructions,
which is an estimate, is printed separately. The exit status is 1 if a difference is not explained.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from command_line import parser_of
from counters_cases import ladder_cases, launch_probes, probes

from mini_dnn.cli import status_of
from mini_dnn.device.emulator.counted import CountedEmulator, CountedLaunch
from mini_dnn.profiling.bracket import instructions
from mini_dnn.profiling.counters import Counters
from mini_dnn.profiling.totals import counters
from mini_dnn.profiling.workload import solve

ATOMICS = [f"l1tex__t_{what}_pipe_lsu_mem_global_op_atom+red.sum" for what in ("requests", "sectors")]
PRODUCTS = "sm__ops_path_tensor_src_fp16.sum / 2"
# Why a counter of a case differs from the GPU's. `main` reports differences without a reason.
MERGED = "nvcc makes one access of 8 or 16 bytes of several that lie side by side, and g++ does not"
WAVEFRONTS = ("shared_op_ld.sum", "shared_op_st.sum", "memory_l1_wavefronts_shared")
EXPLAINED: dict[str, tuple[tuple[str, ...], str]] = {
    "atomic_same 3": (
        ("sectors_pipe_lsu_mem_global_op_atom",),
        "ncu counts a sector for each lane of an exchange at one address",
    ),
    "copied16 2": (
        ("sectors_pipe_lsu_mem_global_op_ld",),
        "the hardware's counter has half of a cp.async of 16 bytes with gaps; ncu's own count for "
        "that instruction (smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum) is 128, as ours",
    ),
    **dict.fromkeys(
        (
            "m2/unroll_gemm",
            "m3/fusion",
            "m3/restrict",
            "m3/register_tiling",
            "m3/fp16",
            "layers/custom",
            "gemm/v2_tiled",
            "gemm/v3_registers",
            "attention/v1_shared",
            "attention/v2_coalesced",
        ),
        (WAVEFRONTS, MERGED),
    ),
    "gemm/v6_wgmma": (("global_op_st",), MERGED),
    "softmax/v0_naive": (
        ("global_op_ld", "sectors_global"),
        "g++ keeps the first value of a row for the next loop, and nvcc loads it again: 10 loads of 750",
    ),
    "linear/v1_tiles": (("shared_op_st.sum",), "ncu counts stores by stmatrix apart, and we do not"),
    "attention/v0_naive": (
        ("global_op_ld", "sectors_global"),
        "nvcc makes half of the loads; which of them it leaves out has not been looked up",
    ),
}
RESULTS = Path(__file__).parent / "results" / "counters"


@dataclass(frozen=True)
class Figure:
    """One counter of one launch, from both sides."""

    case: str
    kernel: str
    metric: str
    ours: float
    gpu: float

    @property
    def is_equal(self) -> bool:
        """Whether they agree: counts exactly, ratios to a thousandth."""
        return abs(self.ours - self.gpu) <= 1e-3 * abs(self.gpu) * self.metric.endswith(".ratio")


def measured(kind: str) -> list[dict[str, Any]]:
    """The launches that ncu has profiled, in order."""
    files = sorted(RESULTS.glob(f"{kind}-*.json"), key=lambda path: int(path.stem.rpartition("-")[2]))
    return [row for file in files for row in json.loads(file.read_text())["rows"]]


def ours(found: Counters) -> dict[str, float]:
    """Our counters under the names of ncu."""
    atomics = [found.sum(field, "global", "atomic") for field in ("instructions", "sectors")]
    products = sum(count for name, count in found.products.items() if "tf32" not in name)
    return {**found.metrics, ATOMICS[0]: atomics[0], ATOMICS[1]: atomics[1], PRODUCTS: products}


def with_sums(row: Mapping[str, Any]) -> dict[str, Any]:
    """The measurements of ncu, with sums of counters that are one for us and two for ncu."""
    loads = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld"
    sums = {
        f"{loads}.sum": row[f"{loads}.sum"] + row[f"{loads}sm.sum"],
        PRODUCTS: row["sm__ops_path_tensor_src_fp16.sum"] / 2,
    }
    for name in ATOMICS:
        sums[name] = sum(row[name.replace("atom+red", op)] for op in ("atom", "red"))
    return {**row, **sums}


def figures(case: str, launch: CountedLaunch, row: Mapping[str, Any]) -> Iterator[Figure]:
    """Yield all counters of a launch that both sides have."""
    (found,) = counters([launch])
    all_of_it = with_sums(row)
    for metric, value in ours(found).items():
        if metric in all_of_it:
            yield Figure(case, launch.kernel, metric, value, all_of_it[metric])


def of_probes(device: CountedEmulator) -> list[Figure]:
    """Compare the small kernels."""
    device.launches.clear()
    launch_probes(device)
    rows = measured("probes")
    both = zip(probes(), device.launches, rows, strict=False)
    return [figure for probe, launch, row in both for figure in figures(probe.name, launch, row)]


def of_ladders(device: CountedEmulator, first: int = 0, last: int | None = None) -> list[Figure]:
    """Compare the ladders' kernels."""
    return [figure for one in of_launches(device, first, last) for figure in figures(*one)]


def of_launches(
    device: CountedEmulator, first: int = 0, last: int | None = None
) -> Iterator[tuple[str, CountedLaunch, dict[str, Any]]]:
    """Yield launches of the ladders, with the name of the variant and the measurements of ncu."""
    rows = iter(measured("ladders"))
    for number, (variant, problem) in enumerate(ladder_cases()):
        wanted = first <= number and (last is None or number < last)
        device.launches.clear()
        if wanted:
            solve(variant, [(problem, variant.operation.inputs(problem, seed=0))], device)
        planned = variant.planned(problem, device.max_shared_bytes)
        for at, launch in enumerate(planned.launches):
            row = next(rows, None)
            if row is None:
                return
            assert row["kernel"] == launch.kernel, f"{variant.name}: {row['kernel']} {launch.kernel}"
            if wanted:
                yield variant.name, device.launches[at], row


def estimates(launches: Iterable[tuple[str, CountedLaunch, Mapping[str, Any]]]) -> str:
    """Describe how far the estimated instructions of launches are from ncu's."""
    ratios = {
        f"{case} {launch.kernel}": instructions(counters([launch])[0]) / row["smsp__inst_executed.sum"]
        for case, launch, row in launches
    }
    low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    median = statistics.median(max(ratio, 1 / ratio) for ratio in ratios.values())
    return (
        f"instructions of {len(ratios)} launches: median factor {median:.2f}, from {ratios[low]:.2f} ({low}) "
        f"to {ratios[high]:.2f} ({high})"
    )


def reason(figure: Figure) -> str:
    """Return why a figure differs, or an empty string if the reason is unknown."""
    metrics, why = EXPLAINED.get(figure.case, ((), ""))
    return why if any(part in figure.metric for part in metrics) else ""


def main(words: Sequence[str] | None = None) -> int:
    """Compare everything, and print the differences. Return 1 if one is not explained."""
    parser_of(__doc__).parse_args(words)
    with closing(CountedEmulator()) as device:
        ladders = list(of_launches(device))
        found = [*of_probes(device), *(figure for one in ladders for figure in figures(*one))]
    different = [figure for figure in found if not figure.is_equal]
    for figure in different:
        known = "explained" if reason(figure) else "NOT EXPLAINED"
        print(f"{figure.case:24} {figure.metric:75} {figure.ours:12g} {figure.gpu:12g}  {known}")
    cases = {figure.case for figure in found}
    print(estimates(ladders))
    print(f"{len(found)} figures of {len(cases)} cases; {len(different)} differ")
    return int(any(not reason(figure) for figure in different))


if __name__ == "__main__":
    sys.exit(status_of(main))
