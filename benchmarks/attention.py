"""Compare rungs of attention with PyTorch's backends: math, FlashAttention and cuDNN.

``python benchmarks/attention.py --impl attention/v5,attention/v6 --tokens 197,577,1025 --out FILE.json``

The problem is 32 x 12 heads of 64 in halves, unless ``--heads`` changes it. All candidates use PyTorch's
arrays, are captured in CUDA graphs, take turns, and are timed between events on the GPU. There are three
figures for each:

- ``written``: before each run, the L2 cache is filled with modified lines of another array, which must be
  written back to memory first.
- ``read``: the same with lines that were only read.
- ``warm``: consecutive runs on the same arrays.

Each candidate is tried with contiguous arrays and with parts of one packed array, and the table shows the
faster one. ``empty`` is a kernel that does nothing, and ``copy`` is one that moves the same number of bytes.
For the first rungs, a run takes up to a second, and ``--layouts contiguous --modes written --libraries ""``
is enough.

``--random 100`` adds 100 problems of random sizes, compared with cuDNN only: odd numbers of tokens up to
4095, 1 to 1024 heads, contiguous arrays, and the mode ``written``. Errors are relative to float64 on the same
inputs.

``--draws 6`` computes the errors for six inputs of each problem instead of one. ``--deviation 2`` multiplies
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

from mini_dnn.cli import status_of
from mini_dnn.cli.common import DIFFERS
from mini_dnn.measuring.machine import commit, versions
from mini_dnn.ops.attention import AttentionShape

LAYOUTS = ("contiguous", "packed")
MOST_TOKENS, MOST_HEADS = 4096, 1024
HEADS = (12, 8, 6, 4, 3, 2, 1)  # heads of an entry of a random problem: the first divisor is used
RANDOM_TURNS = 11
NOTE = "microseconds a run, turn by turn"


def random_problems(count: int, seed: int = 0) -> list[AttentionShape]:
    """Odd numbers of tokens, uniformly distributed, and numbers of heads whose logarithm is uniform."""
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
    """Measure times and errors of one problem, in each layout and mode."""
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
    """Measure times and errors of problems of random sizes, and of the library."""
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
    """Parse the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--impl", required=True, help="variants, separated by commas")
    parser.add_argument(
        "--tokens", default="197,577,1025", help="numbers of tokens, separated by commas; empty for none"
    )
    parser.add_argument(
        "--heads", default="32,12", help="batch size and number of heads (default: %(default)s)"
    )
    parser.add_argument("--d", type=int, default=64, help="size of a head (default: %(default)s)")
    parser.add_argument("--causal", action="store_true", help="with a causal mask")
    parser.add_argument("--random", type=int, default=0, help="number of additional problems of random sizes")
    parser.add_argument(
        "--layouts", default=",".join(LAYOUTS), help="layouts of the arrays (default: %(default)s)"
    )
    parser.add_argument(
        "--modes", default=",".join(MODES), help="states of the L2 cache (default: %(default)s)"
    )
    parser.add_argument(
        "--libraries",
        default=",".join(BACKENDS),
        help="PyTorch's backends; empty for none (default: all)",
    )
    parser.add_argument("--draws", type=int, default=1, help="number of inputs whose errors are computed")
    parser.add_argument("--deviation", type=float, default=1.0, help="standard deviation of the scores")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random sizes")
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    return parser.parse_args(words)


def listed(words: str) -> list[str]:
    """Split at commas."""
    return [word for word in words.split(",") if word]


def write(path: Path | None, found: Mapping[str, object]) -> None:
    """Write a results file, if one is requested."""
    if path:
        path.write_text(json.dumps(found, indent=1) + "\n")


def problems_of(given: argparse.Namespace) -> list[AttentionShape]:
    """The problems that the numbers of tokens select."""
    B, H = map(int, given.heads.split(","))
    tokens = [int(word) for word in listed(given.tokens)]
    return [AttentionShape(B, H, T, given.d, causal=given.causal) for T in tokens]


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write. Return 1 if a result is wrong."""
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
            write(given.out, {**about, **found})  # kept even if a later problem takes too long
        if chosen:
            rows, errors = measure_random(bench, chosen, impl)
            found["random"].extend(rows)
            found["random_errors"].extend(errors)
    write(given.out, {**about, **found})
    return DIFFERS if wrong_words([*found["errors"], *found["random_errors"]]) else 0


if __name__ == "__main__":
    sys.exit(status_of(main))
