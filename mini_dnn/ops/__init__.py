"""Operations, each found by its file in this folder: `find`, `names`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from mini_dnn.errors import VariantError, meant, where
from mini_dnn.ops.operation import Operation, Trial
from mini_dnn.ops.problem import Array, Arrays, Problem

FOLDER = Path(__file__).parent
DEFAULT = "conv2d"  # used if a rubric, a results file or a command line names no operation

__all__ = ["DEFAULT", "Array", "Arrays", "Operation", "Problem", "Trial", "find", "names"]


@cache
def names() -> tuple[str, ...]:
    """Names of all operations: the default one first, then in alphabetical order.

    Raises
    ------
    VariantError
        A file of this folder cannot be loaded, or its operation has another name.
    """
    found = [file.stem for file in sorted(FOLDER.glob("*.py")) if _defines_operation(file)]
    return tuple(sorted(found, key=lambda name: (name != DEFAULT, name)))


def _defines_operation(file: Path) -> bool:
    """Whether a file defines an ``OPERATION``. Refuse one that does not have the name of the file."""
    module = _load(file)
    if not hasattr(module, "OPERATION"):
        return False
    found = module.OPERATION
    if not isinstance(found, Operation) or found.name != file.stem:
        what = f"has the name '{found.name}'" if isinstance(found, Operation) else f"is {found!r:.40}"
        raise VariantError(f"{file}: OPERATION {what}; expected Operation(name={file.stem!r}, ...)")
    return True


def _load(file: Path) -> ModuleType:
    try:
        return import_module(f"{__name__}.{file.stem}")
    except (Exception, SystemExit) as error:
        raise VariantError(
            f"{file} cannot be loaded: {where(error, file)}; CONTRIBUTING.md shows what such a file contains"
        ) from error


def find(name: str) -> Operation:
    """The operation with this name.

    Raises
    ------
    VariantError
        There is no such operation.
    """
    if name not in names():
        hint = meant(name, names()) or f"; expected one of {', '.join(names())}"
        raise VariantError(f"no operation '{name}'{hint}. 'run.py list' shows all operations")
    operation: Operation = import_module(f"{__name__}.{name}").OPERATION
    return operation
