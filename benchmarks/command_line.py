"""Code shared by the command lines of the benchmarks: flags, variants, PyTorch and results files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from mini_dnn.cli.common import check_output
from mini_dnn.errors import DataError, MiniDnnError, UsageError, meant, meant_file, reason
from mini_dnn.measuring.bench import code_of
from mini_dnn.measuring.machine import commit, cpu_name, versions
from mini_dnn.paths import write_atomically
from mini_dnn.variant import find


def listed(text: str) -> list[str]:
    """The type of a flag with words that are separated by commas. It may be empty."""
    return [word for word in text.split(",") if word]


def positive(text: str) -> int:
    """The type of a flag with an integer of 1 or more."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}': expected an integer of 1 or more")
    return int(text)


def whole(text: str) -> int:
    """The type of a flag with an integer of 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}': expected an integer of 0 or more")
    return int(text)


def counts(text: str) -> list[int]:
    """The type of a flag with integers of 1 or more, separated by commas."""
    return [positive(word) for word in text.split(",")]


def some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """The type of a flag with some of the known words, separated by commas. It may be empty."""

    def parsed(text: str) -> list[str]:
        for word in listed(text):
            if word not in known:
                raise argparse.ArgumentTypeError(
                    f"'{word}'{meant(word, known)}: expected some of {', '.join(known)}, separated by commas"
                )
        return listed(text)

    return parsed


def output(text: str) -> Path:
    """The type of a flag that names an output file, which is checked before the work."""
    try:
        check_output("the file", Path(text), force=True)
    except MiniDnnError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return Path(text)


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Return a parser whose ``--help`` shows a module's docstring as it is."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def add_impl(parser: argparse.ArgumentParser, default: str | None = None, more: str = "") -> None:
    """Add ``--impl``, names of variants. Without a default, it is required."""
    shown = "" if default is None else " (default: %(default)s)"
    parser.add_argument(
        "--impl",
        type=listed,
        default=default,
        required=default is None,
        help=f"variants, separated by commas{more}{shown}",
    )


def add_out(parser: argparse.ArgumentParser, required: bool = False) -> None:
    """Add ``--out``, the results file."""
    parser.add_argument(
        "--out", type=output, metavar="FILE", required=required, help="write the results to this JSON file"
    )


def check_variants(names: Collection[str], op: str) -> None:
    """Check before the work that all names are variants of an operation that run on a GPU.

    Raises
    ------
    UsageError
        There is no name, or a variant computes something else, or runs on the host.
    VariantError
        There is no variant with such a name.
    """
    if not names:
        raise UsageError(f"--impl names no variant; 'run.py list {op}' shows those of {op}")
    for name in names:
        variant = find(name)
        if variant.op != op or variant.host is not None:
            raise UsageError(
                f"--impl {name}: expected a variant of {op} that runs on a GPU; 'run.py list {op}' shows them"
            )


def imported(name: str, title: str, cure: str) -> Any:
    """Import a library with which a benchmark compares. ``cure`` says what to do without it.

    Raises
    ------
    UsageError
        It cannot be imported.
    """
    try:
        return import_module(name)
    except (ImportError, OSError) as error:  # OSError: from a library that it loads
        raise UsageError(f"{title} cannot be imported: {error}. {cure}") from error


def gpu_library(name: str, title: str, cure: str) -> Any:
    """Import a library of the GPU: `imported`, and a check that it can use one.

    Raises
    ------
    UsageError
        It is not installed, or cannot use a GPU.
    """
    module = imported(name, title, cure)
    if not module.cuda.is_available():
        raise UsageError(
            f"this benchmark needs a GPU, and {name}.cuda.is_available() says that there is none"
        )
    return module


def pytorch() -> Any:
    """Return the module torch: see `gpu_library`."""
    return gpu_library("torch", "PyTorch", "This benchmark compares with it; install it: pip install torch")


def head(names: Iterable[str] = (), **more: Any) -> dict[str, Any]:
    """Return the head of a results file, when the measurements begin.

    Parameters
    ----------
    names
        The measured variants, whose code is hashed.
    more
        Further fields, such as the device.
    """
    found = {
        **more,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_name(),
        "commit": commit(),
        "versions": versions(),
    }
    hashes = {name: code_of(find(name)) for name in names}
    return found | ({"code_hashes": hashes} if hashes else {})


def read(path: Path) -> dict[str, Any]:
    """Read a results file that has rows.

    Raises
    ------
    DataError
        It cannot be read, or has no rows.
    """
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}{meant_file(path)}") from error
    except ValueError as error:
        raise DataError(f"{path} is not a results file: {error}. Name a JSON file of a benchmark") from error
    if not isinstance(found, dict) or not isinstance(found.get("rows"), list) or not found["rows"]:
        raise DataError(f"{path} is not a results file: it has no rows. Name a JSON file of a benchmark")
    return found


def write(path: Path | None, content: Mapping[str, Any]) -> None:
    """Write a results file, if one is requested."""
    if path:
        write_atomically(path, json.dumps(content, indent=1).encode() + b"\n", 0o644)
