"""What several verbs share: exit statuses, files to be written, and the problems that are asked for."""

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
from mini_dnn.paths import ROOT, write_atomically
from mini_dnn.variant import Variant

BUILD = ROOT / "build"  # which Git ignores
DIFFERS = 1  # the run is complete, and its result is not what was expected
WRONG_USE = 2  # something for the user to put right
INTERRUPTED = 130
ARCH = 90  # of the GPU, by its compute capability times ten, that code is shown for where none is named
MARKS = frozenset(("impl", "variant", "checksum", "schema"))  # one is in each JSON file that we write
EMULATED = "n/a (emulator; CPU time does not predict GPU time)"  # instead of an op time


def say_lost(line: str) -> None:
    """Say at once, on standard error, that a GPU of several is lost."""
    print(f"WARNING: {line}", file=sys.stderr, flush=True)


def seed(text: str) -> int:
    """The type of ``--seed``: NumPy's generators accept nothing else."""
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
    """Refuse, before the work and not after it, a file that could not be written; None is fine.

    Parameters
    ----------
    force
        Whether a file that is there may be replaced if this program did not write it.

    Raises
    ------
    UsageError
        The path is no regular file, or lies in a folder that does not exist or takes no file; or it holds
        what somebody else wrote.
    """
    if path is None:
        return
    if path.is_file() and not force and not _is_output(path):
        raise UsageError(
            f"{flag} {path} exists, but mini_dnn did not write it; name another file, or use --force "
            "to replace it"
        )
    if path.is_dir():
        raise UsageError(f"{flag} {path} is a folder; name a file in it, such as {path / 'out.json'}")
    folder = path.resolve().parent
    if folder == BUILD:
        folder.mkdir(exist_ok=True)  # every page writes there, and a fresh clone lacks it
    if not folder.is_dir():
        raise UsageError(f"{flag} {path}: there is no folder {folder}; create it first")
    if path.exists() and not path.is_file():  # a device or a pipe, which a file would take the place of
        raise UsageError(f"{flag} {path} is not a regular file; name one, such as {folder / 'out.json'}")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b" ")
    except OSError as error:
        raise UsageError(f"{flag} {path} cannot be written: {error.strerror}; name another file") from error


def add_variant(parser: argparse.ArgumentParser, default: str = "") -> None:
    """Add the variant that a verb is about, which a name alone gives, and ``--impl`` too."""
    either = f"(default {default})" if default else ""
    parser.add_argument("name", nargs="?", metavar="VARIANT", help=f"a name or a path {either}".rstrip())
    parser.add_argument("--impl", metavar="VARIANT", help="the same")
    parser.set_defaults(default_variant=default)


def variant_of(args: argparse.Namespace) -> str:
    """The variant that is asked for, by name: see `add_variant`.

    Raises
    ------
    UsageError
        None is named, or two are.
    """
    if args.name and args.impl:
        raise UsageError(f"{args.name} and --impl {args.impl} both name a variant; use one of them")
    name = args.name or args.impl or args.default_variant
    if not name:
        raise UsageError(f"name a variant, such as 'run.py {args.verb} m1'; 'run.py list' shows them all")
    return str(name)


def _is_output(path: Path) -> bool:
    """Whether a file is empty, or the JSON of one of our verbs."""
    try:
        text = path.read_bytes()
        found = json.loads(text) if text else {"variant": ""}
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and not MARKS.isdisjoint(found)


def check_arch(variant: Variant, arch: int) -> int:
    """The GPU that is asked for, by its compute capability times ten.

    Raises
    ------
    UsageError
        It is too old for the variant.
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
    """The problems that a command line asks for, by name: all of the operation's course problems by default.

    Parameters
    ----------
    at
        Names of course problems; ``"all"`` and ``"both"`` are all of them.
    shapes
        Problems as ``--shapes`` takes them, instead.
    batch
        How many entries the batch of each has, instead of its own.
    most
        Where ``batch`` does not say: at most so many.

    Raises
    ------
    UsageError
        There is no such problem, or both ways to name some were used.
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
    """Refuse variants of other operations than the one that a verb is about.

    Raises
    ------
    UsageError
        One computes something else.
    """
    for variant in variants:
        if variant.op != op:
            raise UsageError(
                f"{flag} {variant.name}: it computes {variant.op}, but {op} is needed here; 'run.py list "
                f"{op}' "
                f"shows suitable variants, and 'run.py run --impl {variant.name}' runs this one"
            )
    return variants


def write_json(flag: str, path: Path | None, value: Any) -> None:
    """Write a file of JSON, whole or not at all; None writes nothing.

    Raises
    ------
    MiniDnnError
        It cannot be written.
    """
    if path is None:
        return
    try:
        write_atomically(path, (json.dumps(value, indent=1, default=str) + "\n").encode(), 0o644)
    except OSError as error:
        raise MiniDnnError(f"{flag} {path} cannot be written: {reason(error)}; name another file") from error
