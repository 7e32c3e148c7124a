"""The command line: one small module for each verb, which is imported only when needed."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from errno import EDQUOT, ENOSPC
from importlib import import_module
from io import TextIOWrapper

from mini_dnn.cli.common import DIFFERS, INTERRUPTED, WRONG_USE
from mini_dnn.cli.parser import Parser
from mini_dnn.errors import CheckError, MiniDnnError

VERBS = {  # the verbs and their modules
    "infer": "infer",
    "classify": "classify",
    "list": "list_variants",
    "run": "one",
    "train": "train",
    "weights": "weights",
    "bench": "bench",
    "check": "check",
    "grade": "grade",
    "report": "report",
    "profile": "profile",
    "explain": "explain",
    "diff": "diff",
    "show": "show",
    "new": "new",
    "hint": "hint",
    "editor": "editor",
    "handout": "handout",
    "assign": "assign",
}
DEFAULT_VERB = "infer"

__all__ = ["main", "status_of"]


def main(argv: Sequence[str] | None = None, on_loaded: Callable[[], object] = lambda: None) -> int:
    """Run the command line and return its exit status.

    Parameters
    ----------
    on_loaded
        Called before the work begins, when the modules of the verb have been imported.
    """
    _open_standard_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    if words == ["--version"]:
        return _version()
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, DEFAULT_VERB)
    named = [words[0]] if words[0] in VERBS else VERBS  # the other verbs need not be imported
    args = _parser(named).parse_args(words)
    on_loaded()
    if not getattr(args, "watch", False):
        return status_of(lambda: args.run(args))
    from mini_dnn.cli.watch import watch

    return status_of(lambda: watch(args.watched(args), lambda: status_of(lambda: args.run(args))))


def status_of(work: Callable[[], int]) -> int:
    """Run a verb or a benchmark and return its exit status. If it fails, print a message."""
    try:
        status = int(work())
        sys.stdout.flush()
        return status
    except MiniDnnError as error:
        return _failed(str(error), DIFFERS if isinstance(error, CheckError) else WRONG_USE)
    except BrokenPipeError:  # the reader, such as head, has ended
        _discard_output()
        return DIFFERS
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        full = error.errno in (ENOSPC, EDQUOT)
        next_step = ". Free some space on that disk, then repeat the command" if full else ""
        return _failed(
            f"the operating system reports: {error.strerror or error}{where}{next_step}", WRONG_USE
        )
    except UnicodeError as error:
        if isinstance(error, UnicodeDecodeError) and error.encoding == "utf-8":
            return _failed(f"a file is not text in UTF-8: {error}. Save it in UTF-8", WRONG_USE)
        what, cure = "a text has characters that this locale cannot represent", "Set PYTHONUTF8=1"
        if "surrogates" in str(error):
            what = f"the name of a file or folder is not text in {sys.getfilesystemencoding()}"
            cure = "Rename it"
        return _failed(f"{what}: {error}. {cure}", WRONG_USE)
    except MemoryError as error:
        why = f": {error}" if str(error) else ""
        return _failed(f"out of memory{why}. Use a smaller --batch, or free memory", WRONG_USE)
    except RuntimeError as error:
        if "can't start new thread" not in str(error):
            raise
        what = "the system cannot start more threads. Free memory, or raise the limit on processes: ulimit -u"
        return _failed(what, WRONG_USE)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _version() -> int:
    from mini_dnn.measuring.machine import commit, versions

    found, known = commit(), versions()
    changed = ", with changes" if found["dirty"] else ""
    where = f" (commit {found['commit'][:10]}{changed})" if found["commit"] else ""
    print(f"mini_dnn {known.get('mini-dnn', 'not installed')}{where}, Python {known['python']}")
    return 0


def _failed(message: str, status: int) -> int:
    try:
        sys.stdout.flush()
    except OSError as error:
        message += f"; and the output cannot be written: {error.strerror}"
        _discard_output()
    print(f"error: {message}", file=sys.stderr)
    return status


def _discard_output() -> None:
    """Discard output that is still to be written, because Python would try to write it again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_standard_streams() -> None:
    """Connect closed standard streams to /dev/null, so that files opened later do not get their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
        stream = getattr(sys, name)
        if number and isinstance(stream, TextIOWrapper):  # an unencodable character must not stop the program
            stream.reconfigure(errors="replace")


def _parser(named: Iterable[str]) -> argparse.ArgumentParser:
    parser = Parser(
        prog="run.py",
        description="Small networks whose heavy layers run in CUDA kernels that you can read.",
        epilog=f"Flags without a verb belong to '{DEFAULT_VERB}': run.py --batch 10000 --impl m1",
    )
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for name in named:
        import_module(f"{__name__}.{VERBS[name]}").add_parser(verbs)
        verbs.choices[name].set_defaults(verb=name)
    return parser
