"""Rungs of attention beside PyTorch's backends: math, FlashAttention and cuDNN.

``python benchmarks/attention.py --impl attention/v5,attention/v6 --tokens 197,577,1025 --out FILE.json``

32 x 12 heads of 64 in halves, unless ``--heads`` says otherwise. Everything runs on PyTorch's arrays, is
captured in a CUDA graph, and is timed between events on the GPU. Candidates take turns. Three figures each:

- ``written``: before each run, the L2 cache is filled with lines of another array that were written, and have
  to go to memory first.
- ``read``: the same with lines that were only read.
- ``warm``: one run after the other, on the same arrays.

Every candidate is tried with arrays that are contiguous and with parts of one packed array; the table has the
better one. ``empty`` is a kernel that does nothing, and ``copy`` one that moves as many bytes. A run of the
first rungs takes up to a second: ``--layouts contiguous --modes written --libraries ""`` is enough for them.

``--random 100`` adds problems of random sizes against cuDNN alone: odd numbers of tokens up to 4095, 1 to
1024 heads, contiguous arrays, an L2 of written lines. Errors are against float64, on the same inputs.

``--draws 6`` computes the errors of six inputs of each problem, and not of one. ``--deviation 2`` multiplies
all scores by 2.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from attention_gpu import BACKENDS, Bench
from attention_tables import LIBRARY, MODES, Row, outcome, table, wrong_words
from products import build_ahead

from mini_dnn.measuring.machine import commit, versions
from mini_dnn.ops.attention import AttentionShape

LAYOUTS = ("contiguous", "packed")
MOST_TOKENS, MOST_HEADS = 4096, 1024
HEADS = (12, 8, 6, 4, 3, 2, 1)  # of an entry of a random problem: the first that divides
RANDOM_TURNS = 11
NOTE = "microseconds a run, turn by turn"


def random_problems(count: int, seed: int = 0) -> list[AttentionShape]:
    """Odd numbers of tokens, evenly; heads so that their logarithm is spread evenly."""
    rng = np.random.default_rng(seed)
    tokens = 2 * rng.integers(0, MOST_TOKENS // 2, count) + 1
    heads = np.rint(MOST_HEADS ** rng.random(count)).astype(int)
    found = []
    for T, BH in zip(tokens.tolist(), heads.tolist(), strict=True):
        H = next(h for h in HEADS if BH % h == 0)
        found.append(AttentionShape(BH // H, H, T, 64))
    return found


def measure(
    bench: Bench,
    p: AttentionShape,
    impl: Sequence[str],
    libraries: Sequence[str],
    layouts: Sequence[str],
    modes: Sequence[str],
    draws: int = 1,
) -> tuple[list[Row], list[Row]]:
    """Times and errors of one problem, in each layout and mode."""
    print(f"\n{p}", flush=True)
    errors = []
    for draw in reversed(range(draws)):  # the first draw is the one that is timed
        given = bench.inputs(p, draw)
        candidates = [
            one
            for layout in layouts
            for one in bench.candidates(
                replace(p, layout=layout), given, impl, libraries, warm="warm" in modes
            )
        ]
        errors += [{**row, "draw": draw} for row in bench.errors(p, given, candidates)]
    candidates += bench.floors(p)
    rows = []
    for mode in modes:
        for one, us in zip(candidates, bench.take_turns(candidates, mode), strict=True):
            rows.append({**one.named, "mode": mode, "us": us})
    print("\n".join([table(rows, errors), *wrong_words(errors)]), flush=True)
    return rows, errors


def measure_random(
    bench: Bench, problems: Sequence[AttentionShape], impl: Sequence[str]
) -> tuple[list[Row], list[Row]]:
    """Times and errors of problems of random sizes, beside the library's."""
    rows: list[Row] = []
    errors: list[Row] = []
    for p in problems:
        given = bench.inputs(p)
        candidates = bench.candidates(p, given, impl, [LIBRARY], warm=False)
        found = bench.errors(p, given, candidates)
        times = bench.take_turns(candidates, "written", RANDOM_TURNS)
        rows += [
            {**one.named, "mode": "written", "us": us} for one, us in zip(candidates, times, strict=True)
        ]
        words = [
            f"{one.name} {statistics.median(us):.2f} us" for one, us in zip(candidates, times, strict=True)
        ]
        print("\n".join([f"{p}: {', '.join(words)}", *wrong_words(found)]), flush=True)
        errors += found
        del candidates
        bench.torch.cuda.empty_cache()
    for name in impl:
        print(outcome(rows, errors, name), flush=True)
    return rows, errors


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--impl", required=True, help="variants, with commas between them")
    parser.add_argument("--tokens", default="197,577,1025", help="numbers of tokens; empty for none")
    parser.add_argument("--heads", default="32,12", help="entries and heads of each")
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--random", type=int, default=0, help="problems of random sizes, beyond those")
    parser.add_argument("--layouts", default=",".join(LAYOUTS), help="of the arrays (default: %(default)s)")
    parser.add_argument("--modes", default=",".join(MODES), help="states of the L2 (default: %(default)s)")
    parser.add_argument(
        "--libraries",
        default=",".join(BACKENDS),
        help="PyTorch's backends; empty for none (default: all)",
    )
    parser.add_argument("--draws", type=int, default=1, help="inputs whose errors are computed")
    parser.add_argument("--deviation", type=float, default=1.0, help="standard deviation of the scores")
    parser.add_argument("--seed", type=int, default=0, help="of the random sizes")
    parser.add_argument("--out", type=Path)
    return parser.parse_args(words)


def listed(words: str) -> list[str]:
    """The words between commas."""
    return [word for word in words.split(",") if word]


def write(path: Path | None, found: Mapping[str, object]) -> None:
    """Write a results file, if one is asked for."""
    if path:
        path.write_text(json.dumps(found, indent=1) + "\n")


def problems_of(given: argparse.Namespace) -> list[AttentionShape]:
    """Those that are asked for by their numbers of tokens."""
    B, H = map(int, given.heads.split(","))
    tokens = [int(word) for word in listed(given.tokens)]
    return [AttentionShape(B, H, T, given.d, causal=given.causal) for T in tokens]


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    given = parsed(words)
    impl, libraries, layouts, modes = (
        listed(words) for words in (given.impl, given.libraries, given.layouts, given.modes)
    )
    problems, chosen = problems_of(given), random_problems(given.random, given.seed)
    import torch

    from mini_dnn.interop.calls import CALLS

    device = CALLS.device(torch.cuda.current_device())
    in_layouts = [replace(p, layout=layout) for p in problems for layout in layouts]
    build_ahead([*in_layouts, *chosen], impl, device)
    bench = Bench(torch, given.deviation)
    found: dict[str, list[Row]] = {"rows": [], "errors": [], "random": [], "random_errors": []}
    used = {**versions(), "torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version())}
    about = {"note": NOTE, "device": device.description, "commit": commit(), "versions": used}
    about |= {"deviation": given.deviation}
    with torch.no_grad():
        for problem in problems:
            rows, errors = measure(bench, problem, impl, libraries, layouts, modes, given.draws)
            found["rows"].extend(rows)
            found["errors"].extend(errors)
            write(given.out, {**about, **found})  # kept if a later problem takes too long
        if chosen:
            rows, errors = measure_random(bench, chosen, impl)
            found["random"].extend(rows)
            found["random_errors"].extend(errors)
    write(given.out, {**about, **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
