"""Functions shared by several verbs: exit statuses, output files, and the requested problems."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mini_dnn.errors import MiniDnnError, ShapeError, UsageError, meant, reason
from mini_dnn.ops import Operation
from mini_dnn.paths import ROOT, program, write_atomically
from mini_dnn.variant import Variant, exercise, find

BUILD = ROOT / "build"  # Git ignores this folder
DIFFERS = 1  # exit status: the run is complete, but its result is not the expected one
WRONG_USE = 2  # exit status: the user must correct something
INTERRUPTED = 130
ARCH = 90  # compute capability times ten of the GPU that code is shown for by default
MARKS = frozenset(("impl", "variant", "checksum", "schema"))  # each JSON file that we write has one of them
EMULATED = "n/a (emulator; CPU time does not predict GPU time)"  # replaces an op time


def say_lost(line: str) -> None:
    """Report on standard error, immediately, that one of several GPUs is lost."""
    print(f"WARNING: {line}", file=sys.stderr, flush=True)


def seed(text: str) -> int:
    """The type of ``--seed``. NumPy's generators accept nothing else."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a seed: expected an integer of 0 or more")
    return int(text)


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``: see `check_output`."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace an existing output file even if another program wrote it",
    )


def check_output(flag: str, path: Path | None, force: bool) -> None:
    """Raise an error before the work if an output file could not be written. None is accepted.

    Parameters
    ----------
    force
        Whether an existing file may be replaced even if this program did not write it.

    Raises
    ------
    UsageError
        The path is not a regular file, its folder does not exist or is not writable, or the file was not
        written by this program.
    """
    if path is None:
        return
    if path == Path("-"):
        raise UsageError(f"{flag} -: the output is a file here, not standard output; name a file")
    if path.is_file() and not force and not _is_output(path):
        raise UsageError(
            f"{flag} {path} exists, but mini_dnn did not write it; name another file, or use --force "
            "to replace it"
        )
    if path.is_dir():
        raise UsageError(f"{flag} {path} is a folder; name a file in it")
    folder = path.resolve().parent
    if folder == BUILD:
        folder.mkdir(exist_ok=True)  # every page writes there, and a fresh clone lacks it
    if not folder.is_dir():
        raise UsageError(f"{flag} {path}: there is no folder {folder}; create it first")
    if path.exists() and not path.is_file():  # a device or a pipe, which a file would replace
        raise UsageError(f"{flag} {path} is not a regular file; name one, such as {folder / 'out.json'}")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b" ")
    except OSError as error:
        raise UsageError(f"{flag} {path} cannot be written: {reason(error)}; name another file") from error


def add_variant(parser: argparse.ArgumentParser, default: str = "") -> None:
    """Add the argument for the variant of a verb: a name, or ``--impl``."""
    either = f"(default {default})" if default else ""
    parser.add_argument("name", nargs="?", metavar="VARIANT", help=f"a name or a path {either}".rstrip())
    parser.add_argument("--impl", metavar="VARIANT", help="the same")
    parser.set_defaults(default_variant=default)


def variant_of(args: argparse.Namespace) -> str:
    """Return the name of the requested variant: see `add_variant`.

    Raises
    ------
    UsageError
        No variant is named, or two are.
    """
    if args.name and args.impl:
        raise UsageError(f"{args.name} and --impl {args.impl} both name a variant; use one of them")
    name = args.name or args.impl or args.default_variant
    if not name:
        raise UsageError(f"name a variant, such as 'run.py {args.verb} m1'; 'run.py list' shows them all")
    return str(name)


def find_filled(name: str) -> Variant:
    """Find a variant, as `find` does, and refuse an exercise that still has blanks.

    Raises
    ------
    UsageError
        It has blanks. The message names them.
    VariantError
        There is no such variant.
    """
    variant = find(name)
    exercise.require_filled(variant.folder, program("hint", name))
    return variant


def _is_output(path: Path) -> bool:
    """Whether a file is empty, or is JSON that one of our verbs wrote."""
    try:
        text = path.read_bytes()
        found = json.loads(text) if text else {"variant": ""}
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and not MARKS.isdisjoint(found)


def check_arch(variant: Variant, arch: int) -> int:
    """Check the requested GPU, given by its compute capability times ten, and return it.

    Raises
    ------
    UsageError
        The GPU is too old for the variant.
    """
    if arch < variant.min_arch:
        raise UsageError(f"--arch {arch}: {variant.name} needs {variant.min_arch} or newer")
    return arch


def problems_of(
    operation: Operation,
    at: Sequence[str] | None = None,
    shapes: Sequence[str] | None = None,
    batch: int | None = None,
    most: int | None = None,
) -> dict[str, Any]:
    """Return the requested problems by name. The default is all course problems of the operation.

    Parameters
    ----------
    at
        Names of course problems. ``"all"`` and ``"both"`` select all of them.
    shapes
        Problems in the format of ``--shapes``, instead of ``at``.
    batch
        The batch size for all problems, instead of their own.
    most
        The largest batch size if ``batch`` is not given.

    Raises
    ------
    UsageError
        There is no such problem, or both ways of selecting problems were used.
    """
    if at and shapes:
        raise UsageError("--at names problems of the course, and --shapes gives sizes; use only one of them")
    if batch is not None and batch < 1:
        raise UsageError(f"--batch {batch}: expected 1 or more")
    if shapes:
        try:
            found = {text: operation.parse(text) for text in shapes}
        except ShapeError as error:
            raise UsageError(f"--shapes {error}") from error
    else:
        found = dict(operation.course)
        names = [name for name in at or () if name not in ("all", "both")]
        unknown = [name for name in names if name not in found]
        if unknown:
            known = ", ".join(found)
            hint = meant(unknown[0], found)
            what = f"{operation.name} has no such problem{hint}; expected one of {known}"
            raise UsageError(f"--at {unknown[0]}: {what}")
        found = {name: found[name] for name in names or found}
    if batch is not None:
        return {name: problem.with_batch(batch) for name, problem in found.items()}
    if most is not None and not shapes:
        return {name: p.with_batch(min(p.batch, most)) for name, p in found.items()}
    return found


def only(variants: Sequence[Variant], op: str, flag: str) -> Sequence[Variant]:
    """Check that all variants are of the operation that a verb is about, and return them.

    Raises
    ------
    UsageError
        A variant computes something else.
    """
    for variant in variants:
        if variant.op != op:
            raise UsageError(
                f"{flag} {variant.name}: it computes {variant.op}, but {op} is needed here; 'run.py list "
                f"{op}' shows suitable variants, and 'run.py run --impl {variant.name}' runs this one"
            )
    return variants


def write_json(flag: str, path: Path | None, value: Any) -> None:
    """Write a JSON file: see `write_output`. None writes nothing."""
    if path is not None:
        write_output(flag, path, (json.dumps(value, indent=1, default=str) + "\n").encode())


def write_output(flag: str, path: Path, content: bytes) -> None:
    """Write a file atomically.

    Raises
    ------
    MiniDnnError
        The file cannot be written.
    """
    try:
        write_atomically(path, content, 0o644)
    except OSError as error:
        raise MiniDnnError(f"{flag} {path} cannot be written: {reason(error)}; name another place") from error
