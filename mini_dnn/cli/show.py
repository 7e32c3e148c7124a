"""Verb ``show``: a variant's kernel as it is, as one self-contained file, or as a folder that builds."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console
from rich.syntax import Syntax

from mini_dnn.checking.launches import SHARED_LIMIT, shared_limit
from mini_dnn.cli.assembly import assembled, listing
from mini_dnn.cli.common import ARCH, check_arch, find_filled, problems_of
from mini_dnn.device.assembly import PTX, SASS
from mini_dnn.device.sources import read_source
from mini_dnn.errors import MiniDnnError, UsageError, reason
from mini_dnn.measuring.machine import commit
from mini_dnn.progress import busy
from mini_dnn.variant import Variant, find
from mini_dnn.variant.export import expand
from mini_dnn.variant.standalone import Origin, standalone

UNNAMED = Path()  # the value of --standalone without a folder


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "show",
        help="print a variant's kernel, or export it as one .cu or as a program",
        description="Print the kernel of a variant. With --expand, print one self-contained .cu file for "
        "one problem, such as a layer of the course's network: included files are inlined, definitions are "
        "written out, and a comment lists the launches. With --standalone, write a folder with this file, a "
        "host program and a Makefile: 'make && ./main' needs only nvcc, checks the kernel against float64 "
        "and measures it. With --ptx or --sass, print the code that nvcc generates, below the source lines "
        "that it comes from.",
    )
    parser.add_argument("impl", metavar="NAME", help="the variant")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--expand", action="store_true", help="print one self-contained file")
    form.add_argument("--ptx", action="store_true", help="print PTX, registers, spills and shared memory")
    form.add_argument("--sass", action="store_true", help="the same with machine code, which needs nvdisasm")
    parser.add_argument(
        "--at",
        "--layer",
        metavar="NAME",
        help="the problem for --expand, --ptx and --sass (default: the first one that the variant's own "
        "kernels solve)",
    )
    parser.add_argument("--shapes", metavar="SIZES", help="the problem as sizes, such as 1,1,86,86,4,7,7")
    parser.add_argument(
        "--arch",
        type=int,
        choices=SHARED_LIMIT,
        help="the GPU for --expand, --ptx and --sass, by compute capability: 75 is 7.5 (default 90)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write to this file instead of standard output"
    )
    parser.add_argument(
        "--standalone",
        type=Path,
        nargs="?",
        const=UNNAMED,
        metavar="FOLDER",
        help="write a new folder with the expanded kernel, a host program and a Makefile (default: named "
        "after the variant, such as v8_final)",
    )
    parser.add_argument(
        "--as",
        dest="form",
        choices=("c", "cupy", "torch"),
        help="with --standalone: the host program's language, CUDA C++ (default) or Python, and there the "
        "library, CuPy or PyTorch",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print or write the kernel."""
    variant = (find_filled if args.standalone or args.ptx or args.sass else find)(args.impl)
    for flag in ("at", "shapes", "arch"):
        if getattr(args, flag) and not (args.expand or args.standalone or args.ptx or args.sass):
            raise UsageError(f"--{flag} needs --expand, because the kernel file itself is for all problems")
    if args.standalone and (args.ptx or args.sass):
        raise UsageError(
            "--standalone writes a program, and --ptx and --sass print code; use only one of them"
        )
    if args.form and not args.standalone:
        raise UsageError("--as needs --standalone, which writes a program")
    if args.standalone and args.out:
        raise UsageError("--standalone writes a folder, and --out writes a file; use only one of them")
    if args.standalone:
        folder = Path(variant.folder.name) if args.standalone is UNNAMED else args.standalone
        _take_home(variant, folder, args)
        return 0
    if args.ptx or args.sass:
        text, language = _assembly(variant, args), "text"
    elif args.expand:
        arch, (name, problem) = (
            check_arch(variant, args.arch or ARCH),
            _problem(variant, args.at, args.shapes),
        )
        text, language = expand(variant, problem, name, shared_limit(arch), arch), "cuda"
    else:
        file = variant.source if variant.plan else variant.folder / "variant.py"
        text = read_source(file)
        language = "cuda" if variant.plan else "python"
    if args.out:
        _write(args.out, text)
        print(f"written to {args.out}")
    else:
        _print(text, language)
    return 0


def _assembly(variant: Variant, args: argparse.Namespace) -> str:
    """The output of nvcc for the kernels at a problem."""
    arch, (name, problem) = check_arch(variant, args.arch or ARCH), _problem(variant, args.at, args.shapes)
    solver = variant.solver(problem)
    with busy(f"nvcc compiles {solver.name} ..."):
        kernels = assembled(solver, problem, arch, SASS if args.sass else PTX)
    caller = "" if solver is variant else f" (called by {variant.name})"
    return listing(kernels, solver, f"{name}, {problem}{caller}", arch)


def _take_home(variant: Variant, folder: Path, args: argparse.Namespace) -> None:
    """Write the folder."""
    _check_folder(folder)
    arch, (name, problem) = check_arch(variant, args.arch or ARCH), _problem(variant, args.at, args.shapes)
    origin = Origin(name, _commit())
    with busy(f"float64 answers for {problem} ..."):
        files = standalone(variant, problem, origin, arch, shared_limit(arch), args.form or "c")
    _write_folder(folder, files)
    solver = variant.solver(problem)
    kernel = "" if solver is variant else f", with the kernel of {solver.name}, which {variant.name} calls"
    print(f"written to {folder}{kernel}: {', '.join(files)}")
    command = "make && ./main" if args.form in (None, "c") else "python main.py"
    print(f"next: cd {quote(str(folder))} && {command}")


def _commit() -> str:
    """The commit of the checkout, with a remark if files differ from it."""
    found = commit()
    return f"{(found['commit'] or 'unknown')[:10]}{' with changes' if found['dirty'] else ''}"


def _problem(variant: Variant, at: str | None, shapes: str | None) -> tuple[str, Any]:
    """Return the requested problem, or the first one for the variant's own kernels, with its name."""
    asked = problems_of(variant.operation, [at] if at else None, [shapes] if shapes else None)
    taken = [(name, problem) for name, problem in asked.items() if not variant.limit_for(problem)]
    own = [(name, problem) for name, problem in taken if variant.solver(problem) is variant]
    return (own or taken or list(asked.items()))[0]


def _check_folder(folder: Path) -> None:
    """Raise an error before the work if the folder exists and is not empty."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"--standalone {folder} already exists; remove it, or name another folder")


def _write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write all files or none: the next run would refuse a folder with only some of them."""
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        with suppress(OSError):
            for name in files:
                (folder / name).unlink(missing_ok=True)
            if is_new:
                folder.rmdir()
        raise MiniDnnError(
            f"--standalone {folder} cannot be written: {reason(error)}; name another folder"
        ) from error


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x") as file:  # never overwrites a file
            try:
                file.write(text)
                file.flush()
            except BaseException:
                with suppress(OSError):  # the next run would refuse half a file
                    path.unlink()
                raise
    except FileExistsError as error:
        raise UsageError(f"--out {path} already exists; remove it, or name another file") from error
    except OSError as error:
        raise MiniDnnError(f"--out {path} cannot be written: {reason(error)}; name another file") from error


def _print(text: str, language: str) -> None:
    """Print in colour on a terminal. Otherwise print exactly the text, so that it can go into a file."""
    console = Console(soft_wrap=True)
    if console.is_terminal:
        console.print(Syntax("", language, theme="ansi_dark").highlight(text), end="")
    else:
        print(text, end="")
