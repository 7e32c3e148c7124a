"""Verb ``explain``: a page that shows what each line, warp and block of a variant's kernels does."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mini_dnn.cli.common import (
    add_force,
    add_variant,
    check_output,
    find_filled,
    only,
    problems_of,
    seed,
    variant_of,
    write_output,
)
from mini_dnn.errors import UsageError
from mini_dnn.explain.collect import check_countable, collect
from mini_dnn.explain.findings import findings
from mini_dnn.explain.kernels import Counted
from mini_dnn.explain.page import MARK, page
from mini_dnn.variant import Variant, find

MOST = 2  # default batch size: enough to see the work for each entry
MOST_FLOPS = 400_000_000  # of the default problem, which takes about ten seconds
HEAD_BYTES = 1000  # bytes of a page in which its mark is found


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "explain",
        help="make a page that shows what a kernel does: lines, warps, blocks, grid",
        description="Run a variant in the counted mode of the emulator at one problem, and write a page "
        "that shows what its kernels do: sectors and bank conflicts per line, addresses of each warp, steps "
        "of a block, and elements that several blocks read. It describes findings and remedies in words. The "
        "page is a single file that works offline.",
    )
    add_variant(parser)
    parser.add_argument(
        "--at", metavar="NAME", help="name of a problem (default: the first problem of the course)"
    )
    parser.add_argument("--shapes", metavar="SIZES", help="a problem as sizes, instead of --at")
    parser.add_argument("--batch", type=int, help=f"size of the batch (default: at most {MOST})")
    parser.add_argument(
        "--beside",
        nargs="?",
        const="",
        metavar="VARIANT",
        help="also show another variant, for comparison (default: the parent)",
    )
    parser.add_argument("--seed", type=seed, default=0, help="seed of the inputs (default 0)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.html", help="file for the page")
    add_force(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Count, write the page, and print the findings."""
    variant = find_filled(variant_of(args))
    variants = [variant, *_beside(args, variant)]
    _check_page(args.out, args.force)
    problem = _problem(args, variant)
    for one in variants:
        check_countable(one, problem)
    shown = []
    for one in variants:
        solver = one.solver(problem)
        by = "" if solver is one else f", which calls {solver.name}"
        print(f"counting  {one.name} at {problem}{by} ...", flush=True)
        shown.append((one, problem, collect(one, problem, args.seed)))
    text = page(shown).encode()
    write_output("--out", args.out, text)
    for kernel in shown[0][2]:
        print("\n".join(describe(kernel)))
    print(f"\nwritten to {args.out} ({len(text) / 1e6:.1f} MB): open it in a browser")
    return 0


def describe(kernel: Counted) -> list[str]:
    """The findings about a kernel, as lines."""
    lines = [f"\n{kernel.name}"]
    for finding in findings(kernel):
        where = f"{Path(finding.place.file).name}:{finding.place.line}: " if finding.place else ""
        lines += [f"  {where}{finding.title} {finding.what}", f"    try: {finding.cure}"]
    return lines if len(lines) > 1 else [*lines, "  no findings"]


def _beside(args: argparse.Namespace, variant: Variant) -> list[Variant]:
    """Return the variant to compare with, if one was requested."""
    if args.beside is None:
        return []
    name = args.beside or variant.parent
    if not name:
        raise UsageError(f"{variant.name} has no parent; name the variant to compare with: --beside VARIANT")
    other = find(name)
    only([other], variant.op, "--beside")
    if other.host:
        raise UsageError(
            f"--beside {other.name}: it is NumPy and runs on the host, so it has no kernels to show; name "
            "another variant, or leave --beside out"
        )
    return [other]


def _problem(args: argparse.Namespace, variant: Variant) -> Any:
    """Return the requested problem, or else one for the variant's own kernels that is counted quickly."""
    at, shapes = [args.at] if args.at else None, [args.shapes] if args.shapes else None
    course = list(problems_of(variant.operation, at, shapes, args.batch, MOST).values())
    if at or shapes:
        return course[0]
    operation = variant.operation
    small = () if args.batch else (*operation.check, *operation.spare, *operation.particular)
    others = sorted(small, key=lambda one: one.flops, reverse=True)
    taken = [one for one in (*course, *others) if not variant.limit_for(one)]
    quick = [one for one in taken if one.flops <= MOST_FLOPS]
    by_size = sorted(taken, key=lambda one: one.flops)
    own = (one for one in (*quick, *by_size) if variant.solver(one) is variant)
    chosen = next(own, (quick or by_size or course)[0])
    if chosen not in course:
        print(f"NOTE: using {chosen}, which is quick to count (--shapes selects another)")
    elif chosen.flops > MOST_FLOPS:
        print("NOTE: the smallest problem for its own kernels is large, so this may take some minutes")
    return chosen


def _check_page(path: Path, force: bool) -> None:
    """Raise an error if the file exists and is not a page of explain; see `check_output`."""
    if path.is_file() and not force:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if head and MARK.encode() not in head:
            raise UsageError(
                f"--out {path} exists, but it is not a page of explain; name another file, or use --force to "
                "replace it"
            )
    check_output("--out", path, force=True)
