"""Flags ``--log`` and ``--expect``: record in a work log what was tried."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from mini_dnn.device.sources import read_source
from mini_dnn.errors import MiniDnnError, UsageError, VariantError
from mini_dnn.measuring.bench import code_of
from mini_dnn.measuring.work_log import Entry, Tried, append, check_log
from mini_dnn.variant import Variant, exercise, find
from mini_dnn.variant.header import sections
from mini_dnn.variant.scaffold import IDEA

VARIABLE = "MINI_DNN_LOG"  # environment variable with the default log
OUTPUTS = ("json", "out")  # flags that name other files


def add_log(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a verb."""
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help=f"append this attempt to this work log (default: the file that {VARIABLE} names, if any); "
        "'run.py report --log FILE' makes a page from it",
    )
    parser.add_argument(
        "--expect",
        metavar="TEXT",
        help="your expectation, for the log (default: the section Gain of the kernel's header)",
    )


@dataclass
class Trial:
    """The results of a command so far."""

    device: str = ""
    ok: bool = True
    verdict: str = "done"
    notes: list[str] = field(default_factory=list)
    results: dict[str, list[Tried]] = field(default_factory=dict)  # by variant
    failed: dict[str, str] = field(default_factory=dict)  # error message by variant

    def add(self, variant: str, result: Tried) -> None:
        """Add the result of a variant at a problem."""
        self.results.setdefault(variant, []).append(result)


@contextmanager
def logged(args: argparse.Namespace, variants: Sequence[Variant]) -> Iterator[Trial]:
    """Append an entry for each variant at the end, even if an error ends the command.

    Wrong use of the command line is not logged, because nothing was tried. Neither is a command that the user
    ends, with Ctrl-C or by closing its output: this says nothing about a variant.

    Raises
    ------
    UsageError
        The file is not a work log, or ``--expect`` was given without a log.
    """
    path = _log_of(args)
    trial = Trial()
    if path is None:
        yield trial
        return
    check_log(path)
    # Computed now, because files may change during the run
    hashes = {variant.name: code_of(variant) for variant in variants}
    try:
        yield trial
    except (UsageError, BrokenPipeError):
        raise
    except Exception as error:
        _fail(trial, [variant.name for variant in variants], _text(error))
        tried = [one for one in variants if one.name in trial.results or one.name in trial.failed]
        try:
            _append(path, args, tried, hashes, trial)
        except MiniDnnError as second:  # such as a full disk, which may also be the first error
            print(f"WARNING: not logged: {second}", file=sys.stderr)
        raise
    _append(path, args, variants, hashes, trial)
    print(f"logged in {path}")


def _text(error: Exception) -> str:
    """An error in words. Errors that are not of this project do not say what they are."""
    return str(error) if isinstance(error, MiniDnnError) else f"{type(error).__name__}: {error}"


def _fail(trial: Trial, names: Sequence[str], error: str) -> None:
    """Record an error: for the variant that it names, or else for all that have no result, or for all.

    The entries of the others state that the command did not complete.
    """
    named = [name for name in names if re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w/-])", error)]
    without = [name for name in names if name not in trial.results]
    trial.failed.update(dict.fromkeys(named or without or names, error))
    trial.verdict = f"{trial.verdict}, until an error ended the command: {error}"


def _log_of(args: argparse.Namespace) -> Path | None:
    """Return the log that the flag names, or else the environment."""
    named = os.environ.get(VARIABLE)
    path: Path | None = args.log or (Path(named) if named else None)
    if path is None and args.expect:
        raise UsageError(f"--expect is for the work log; name its file with --log FILE or in {VARIABLE}")
    same = next((flag for flag in OUTPUTS if path and getattr(args, flag, None) == path), None)
    if same:
        raise UsageError(f"--log and --{same} both name {path}; use two files")
    return path


def _append(
    path: Path,
    args: argparse.Namespace,
    variants: Sequence[Variant],
    hashes: Mapping[str, str | None],
    trial: Trial,
) -> None:
    """Append an entry for each variant."""
    for variant in variants:
        failure = trial.failed.get(variant.name)
        entry = Entry(
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            verb=args.verb,
            variant=variant.name,
            parent=variant.parent,
            op=variant.op,
            idea="" if variant.idea == IDEA else variant.idea,
            code_hash=hashes[variant.name],
            expected=args.expect or _gain(variant),
            device=trial.device,
            ok=trial.ok and failure is None,
            verdict=trial.verdict if failure is None else f"failed: {failure}",
            notes=list(trial.notes),
            results=list(trial.results.get(variant.name, ())),
        )
        append(path, entry)


def _gain(variant: Variant) -> str:
    """The gain that the author of the kernel expects, or an empty string.

    A new variant has the header of its parent at first, which says nothing about the new one.
    """
    gain = _gain_in_header(variant)
    if exercise.is_question("Gain", gain):
        return ""
    with suppress(VariantError):  # the parent may be missing
        if variant.parent and gain == _gain_in_header(find(variant.parent)):
            return ""
    return gain


def _gain_in_header(variant: Variant) -> str:
    return "" if variant.host else sections(read_source(variant.source)).get("Gain", "")
