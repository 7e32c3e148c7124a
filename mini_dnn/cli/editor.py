"""Verb ``editor``: tell clangd, and thereby an editor, how to read each kernel."""

from __future__ import annotations

import argparse
from pathlib import Path

from mini_dnn.cli.common import check_output, write_json
from mini_dnn.device.base import Defines
from mini_dnn.device.emulator.runtime_build import INCLUDE
from mini_dnn.device.nvcc import nvcc_arch, require_nvcc
from mini_dnn.device.sources import INCLUDE as PROJECT_INCLUDE
from mini_dnn.errors import VariantError
from mini_dnn.paths import ROOT
from mini_dnn.variant import Variant, find, mine, names

FILE = "compile_commands.json"
ARCH = 80  # for clang with --cuda; most kernels can be compiled for it


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "editor",
        help="write compile_commands.json, so that clangd understands the kernels",
        description=f"Write {FILE} for clangd, which gives editors completion, errors and jumps to "
        "definitions. It has an entry for the kernel of each variant, including those in mine/, with the "
        "definitions for the first problem that it supports. clangd reads kernels with the headers of the "
        "emulator, so it needs no CUDA.",
    )
    parser.add_argument("--cuda", action="store_true", help="use the headers of the CUDA toolkit instead")
    parser.add_argument(
        "--out", type=Path, default=ROOT, metavar="DIR", help="the folder of the file (default: the checkout)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    check_output("--out", args.out / FILE, force=True)
    toolkit = require_nvcc("--cuda uses its headers").resolve().parent.parent if args.cuda else None
    entries = []
    for name in (*names(), *mine()):
        try:
            variant = find(name)
        except VariantError as error:  # an unfinished variant must not affect the others
            print(f"NOTE: skipped: {error}")
            continue
        if variant.plan:
            entries.append(entry(variant, toolkit))
    write_json("--out", args.out / FILE, entries)
    print(f"written: {args.out / FILE}, {len(entries)} kernels")
    return 0


def entry(variant: Variant, toolkit: Path | None = None) -> dict[str, object]:
    """Describe how the kernel of a variant is compiled, with CUDA's headers if a toolkit is given."""
    language = (
        _cuda(toolkit) if toolkit else ["-xc++", "-std=c++20", f"-isystem{INCLUDE}", "-include", "emulator.h"]
    )
    words = ["clang++", *language, f"-I{PROJECT_INCLUDE}"]
    words += [f"-D{name}={value}" for name, value in _defines(variant).items()]
    return {
        "directory": str(variant.folder),
        "file": str(variant.source),
        "arguments": [*words, "-fsyntax-only", str(variant.source)],
    }


def _cuda(toolkit: Path) -> list[str]:
    return [
        "-xcuda",
        "-std=c++17",
        f"--cuda-path={toolkit}",
        f"--cuda-gpu-arch={nvcc_arch(ARCH)}",
        "-nocudalib",
    ]


def _defines(variant: Variant) -> Defines:
    """The definitions of the first problem that the variant accepts, or none if they cannot be determined."""
    try:
        taken = (one for one in variant.operation.course.values() if not variant.limit_for(one))
        problem = next(taken, None)
        return variant.defines_for(problem) if problem else {}
    except VariantError:
        return {}
