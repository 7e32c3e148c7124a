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
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from attention_gpu import BACKENDS, Bench
from attention_tables import LIBRARY, MODES, Row, outcome, table, wrong_words
from command_line import (
    add_impl,
    add_out,
    check_variants,
    counts,
    head,
    parser_of,
    positive,
    pytorch,
    some_of,
    whole,
    write,
)
from products import build_ahead

from mini_dnn.cli import status_of
from mini_dnn.cli.common import DIFFERS
from mini_dnn.errors import UsageError
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


def measure_random(bench: Bench, p: AttentionShape, impl: Sequence[str]) -> tuple[list[Row], list[Row]]:
    """Measure times and errors of one problem of random sizes, and of the library."""
    given = bench.inputs(p)
    candidates = bench.candidates(p, given, impl, [LIBRARY], warm=False)
    errors = bench.errors(p, given, candidates)
    times = bench.take_turns(candidates, "written", RANDOM_TURNS)
    words = [f"{one.name} {statistics.median(us):.2f} us" for one, us in zip(candidates, times, strict=True)]
    print("\n".join([f"{p}: {', '.join(words)}", *wrong_words(errors)]), flush=True)
    rows = [{**one.named, "mode": "written", "us": us} for one, us in zip(candidates, times, strict=True)]
    del candidates
    bench.torch.cuda.empty_cache()
    return rows, errors


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add_impl(parser)
    of_tokens = "numbers of tokens; empty for none (default: %(default)s)"
    add("--tokens", type=counts_or_none, default="197,577,1025", help=of_tokens)
    add("--heads", type=counts, default="32,12", help="batch size and number of heads (default: %(default)s)")
    add("--d", type=positive, default=64, help="size of a head (default: %(default)s)")
    add("--causal", action="store_true", help="with a causal mask")
    add("--random", type=whole, default=0, help="number of additional problems of random sizes")
    for name, known, help_ in (
        ("layouts", LAYOUTS, "layouts of the arrays"),
        ("modes", MODES, "states of the L2 cache"),
        ("libraries", tuple(BACKENDS), "PyTorch's backends; empty for none"),
    ):
        default = ",".join(known)
        add(f"--{name}", type=some_of(known), default=default, help=f"{help_} (default: {default})")
    add("--draws", type=positive, default=1, help="number of inputs whose errors are computed")
    add("--deviation", type=float, default=1.0, help="standard deviation of the scores")
    add("--seed", type=whole, default=0, help="seed of the random sizes")
    add_out(parser)
    return parser.parse_args(words)


def counts_or_none(text: str) -> list[int]:
    """The type of a flag with integers of 1 or more, separated by commas, or with nothing."""
    return counts(text) if text else []


def problems_of(given: argparse.Namespace) -> list[AttentionShape]:
    """The problems that the numbers of tokens select.

    Raises
    ------
    UsageError
        ``--heads`` has not two numbers, or no problem is selected.
    """
    if len(given.heads) != 2:
        raise UsageError("--heads: expected the batch size and the number of heads, such as 32,12")
    if not given.tokens and not given.random:
        raise UsageError("no problem to measure; name numbers of tokens with --tokens, or use --random")
    return [AttentionShape(*given.heads, T, given.d, causal=given.causal) for T in given.tokens]


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write. Return 1 if a result is wrong."""
    given = parsed(words)
    impl, layouts, modes = given.impl, given.layouts, given.modes
    check_variants(impl, "attention")
    problems, chosen = problems_of(given), random_problems(given.random, given.seed)
    torch = pytorch()
    from mini_dnn.interop.calls import CALLS

    device = CALLS.device(torch.cuda.current_device())
    in_layouts = [replace(p, layout=layout) for p in problems for layout in layouts]
    build_ahead([*in_layouts, *chosen], impl, device)
    bench = Bench(torch, given.deviation)
    found: dict[str, list[Row]] = {"rows": [], "errors": [], "random": [], "random_errors": []}
    about = head(impl, note=NOTE, device=device.description, deviation=given.deviation)
    about["versions"] |= {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version())}
    with torch.no_grad():
        for problem in problems:
            rows, errors = measure(bench, problem, impl, given.libraries, layouts, modes, given.draws)
            found["rows"].extend(rows)
            found["errors"].extend(errors)
            write(given.out, {**about, **found})  # kept even if a later problem takes too long
        for problem in chosen:
            rows, errors = measure_random(bench, problem, impl)
            found["random"].extend(rows)
            found["random_errors"].extend(errors)
            write(given.out, {**about, **found})
    for name in impl if chosen else ():
        print(outcome(found["random"], found["random_errors"], name), flush=True)
    return DIFFERS if wrong_words([*found["errors"], *found["random_errors"]]) else 0


if __name__ == "__main__":
    sys.exit(status_of(main))
