"""Variants are found by their folders, so a new one needs no registration.

- the short names of the course, ``cpu``, ``m1``, ``m2`` and ``m3``;
- ``m2/unroll_gemm``: a folder under ``milestones/``;
- ``gemm/v0_naive``: a folder under ``ladders/``; ``gemm/v0`` is enough if no other name begins with it;
- ``layers/custom``, ``networks/NAME/whole``: a folder of the repository; ``NAME/whole`` is enough;
- ``mine/my_idea``, or ``my_idea``: the user's own folder in ``mine/``, which git ignores;
- the path of any folder with a ``variant.py``, inside or outside of the repository.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, ModuleType

from mini_dnn import ops
from mini_dnn.errors import VariantError, meant, reason, where
from mini_dnn.ops import Operation
from mini_dnn.ops.compare import PRECISIONS
from mini_dnn.paths import HANDOUT, ROOT, expanded
from mini_dnn.variant.variant import COMPUTE_TYPES, Variant

SHORT_NAMES = {"cpu": "m1/cpu", "m1": "m1/direct", "m2": "m2/unroll_gemm", "m3": "layers/custom"}
HOMES = ("milestones", "ladders")  # the name of a variant omits this folder
MINE = "mine"  # where the user's own variants are
PLACES = ("milestones/*/*", "layers/*", "ladders/*/*", "networks/*/*")  # in this order they are listed
MOST_NAMED = 8  # variants in a message
MOVED = {  # modules that older variant.py files import, and their present names
    "mini_dnn.fused": "mini_dnn.ops.conv2d_relu_pool",
    "mini_dnn.numpy_conv": "mini_dnn.nn.numpy_conv",
    "mini_dnn.plan": "mini_dnn.variant.plan",
    "mini_dnn.shapes": "mini_dnn.variant",
}


def names(op: str | None = None) -> list[str]:
    """Names of the repository's variants in the order of the course, for one operation or for all.

    A variant that cannot be loaded belongs to no operation.
    """
    return _names(PLACES, op)


def mine(op: str | None = None) -> list[str]:
    """Names of the user's own variants in ``mine/``, for one operation or for all."""
    return _names((f"{MINE}/*", f"{MINE}/*/*"), op)


def _names(places: Iterable[str], op: str | None) -> list[str]:
    found = [
        _official_name(file.parent) for place in places for file in sorted(ROOT.glob(f"{place}/variant.py"))
    ]
    return found if op is None else [name for name in found if operation_of(name) == op]


def climbed(parents: Mapping[str, str | None]) -> list[str]:
    """Names of variants in the order of the ladder: each one after its parent, and before its siblings.

    Parameters
    ----------
    parents
        Each variant's parent. Variants without a parent, or with one from another ladder, keep their order.
    """
    children: dict[str | None, list[str]] = {}
    for name, parent in parents.items():
        children.setdefault(parent if parent in parents else None, []).append(name)

    def climb(parent: str | None) -> Iterator[str]:
        for name in children.get(parent, ()):
            yield name
            yield from climb(name)

    found = list(climb(None))
    return found + [name for name in parents if name not in found]  # these are parents of each other


def default_of(op: str, wanted: str) -> str:
    """The variant that is used if none is named. In a copy that lacks it, it is the last one of its ladder.

    If the operation has no default, the result is empty.
    """
    if not wanted or _is_here(SHORT_NAMES.get(wanted, wanted)):
        return wanted
    ladder = climbed({name: find(name).parent for name in names(op)})
    return ladder[-1] if ladder else wanted


def preferred(operation: Operation) -> Iterator[Variant]:
    """The operation's preferred variants that exist in this copy, the best first."""
    return (find(name) for name in operation.preferred if _is_here(name))


def has_variants(operation: Operation) -> bool:
    """Whether this copy has a variant of an operation; a handout may have none."""
    return any(True for _ in preferred(operation)) or bool(names(operation.name))


def _is_here(name: str) -> bool:
    """Whether this copy of the repository has the variant with this full name.

    Every call of an operation without a variant needs this, so it must not list folders.
    """
    return any((ROOT / home / name / "variant.py").is_file() for home in (*HOMES, "."))


def operation_of(name: str) -> str:
    """The operation of a variant of the repository; empty if it cannot be loaded."""
    try:
        return find(name).op
    except VariantError:
        return ""


def own(name: str) -> Variant | None:
    """The repository's variant with this full name; None if there is none.

    Only files of the repository are loaded, so that a name in a file from elsewhere cannot run other code.

    Raises
    ------
    VariantError
        It is broken.
    """
    return find(name) if name in names() else None


def find(name: str | Path) -> Variant:
    """Load the variant with this name, or the one in the folder with this path.

    Raises
    ------
    VariantError
        There is no such variant, or its ``variant.py`` is broken; the message names the line.
    """
    return _load(folder_of(name))


def folder_of(name: str | Path) -> Path:
    """The folder of the variant with this name, or the folder with this path.

    Raises
    ------
    VariantError
        There is none, or the system refuses to say whether there is one.
    """
    try:
        return _folder_of(str(name))
    except OSError as error:
        raise VariantError(
            f"no variant '{name}': {reason(error)}; expected a variant's name ('run.py list' shows all), or "
            "the path of a folder that you may read"
        ) from error


def _folder_of(name: str) -> Path:
    official = SHORT_NAMES.get(name, name)
    path = expanded(name)
    explicit = name.startswith((".", "/", "~"))  # ./m1/direct is the user's variant, not the repository's
    homes = [ROOT / home / official for home in HOMES]
    for folder in (path,) if explicit else (*homes, ROOT / official, ROOT / MINE / official, path):
        if (folder / "variant.py").is_file():
            return folder.resolve()
    if path.name in ("variant.py", "kernel.cu") and (path.parent / "variant.py").is_file():
        return path.parent.resolve()
    if path.is_dir():
        raise VariantError(
            f"the folder '{name}' holds no variant.py; a variant is a folder with variant.py and kernel.cu "
            "(CONTRIBUTING.md shows one)"
        )
    if name in ops.names():
        one = default_of(name, ops.find(name).default)
        such = f", such as {one}" if names(name) else ""  # a handout may have none
        raise VariantError(
            f"{name} is an operation; name one of its variants{such}. 'run.py list {name}' shows them"
        )
    full = [*names(), *mine()]
    begin = [n for n in full if n.startswith(f"{name}_")] or [n for n in full if f"/{name}_" in f"{n}_"]
    begin = [] if explicit or "/" not in name else begin
    if len(begin) == 1:
        return _folder_of(begin[0])
    raise VariantError(f"no variant {_why_unknown(name, begin, full)}")


def _why_unknown(name: str, begin: list[str], full: list[str]) -> str:
    """The rest of a message, about a name that means none of all variants, or several that begin with it."""
    official = SHORT_NAMES.get(name, name)
    known = [*(short for short, name in SHORT_NAMES.items() if name in full), *full]
    asked = f"'{name}'" if official == name else f"'{name}', which is '{official}'"
    if not known:
        return (
            f"{asked}: there are none here. They are folders of a checkout, which 'pip install -e .' "
            "installs; a graded submission cannot load others"
        )
    if not begin and any(f"/{official}_" in f"/{left}_" for left in _left_out()):
        return (
            f"{asked}: this copy is a handout, which leaves it out. 'run.py list' shows what it has; a path "
            "to a folder works too"
        )
    some = begin or known[:MOST_NAMED]
    more = f" and {len(known) - len(some)} more" if not begin and len(known) > len(some) else ""
    hint = meant(name, known) or f"; expected one of {', '.join(some)}{more}"
    return f"{asked}{hint}. 'run.py list' shows all; a path to a folder works too"


def _left_out() -> list[str]:
    """Names of the variants that this copy lacks if it is a handout."""
    return list(json.loads(HANDOUT.read_text())["left"]) if HANDOUT.is_file() else []


def _load(folder: Path) -> Variant:
    file = folder / "variant.py"
    if str(folder) != (shown := str(folder).encode(errors="replace").decode()):
        code = sys.getfilesystemencoding()
        raise VariantError(f"{shown}: the name of this folder is not text in {code}; rename it")
    for old, new in MOVED.items():
        sys.modules.setdefault(old, import_module(new))
    module = ModuleType(f"mini_dnn_variant {folder}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look up their module
    try:  # compiled here, not imported: an edit within the same second must not use a stale .pyc
        # Editors may write a byte order mark
        exec(_compiled(file.read_text("utf-8-sig"), str(file)), vars(module))
    except (Exception, SystemExit) as error:
        raise VariantError(f"{file} cannot be loaded: {where(error, file)}") from error
    variant = getattr(module, "VARIANT", None)
    if not isinstance(variant, Variant):
        raise VariantError(f"{file} defines no VARIANT; it must end with VARIANT = Variant(...)")
    if (variant.plan is None) == (variant.host is None):
        raise VariantError(f"{file}: VARIANT needs either plan= (kernels) or host= (a NumPy function)")
    known = {"op": ops.names(), "precision": PRECISIONS, "compute_type": COMPUTE_TYPES}
    for name, allowed in known.items():
        given = getattr(variant, name)
        if not callable(given) and given not in allowed:
            raise VariantError(f"{file}: {name} {given!r} is not one of {', '.join(map(repr, allowed))}")
    for name in ("idea", "needs_gpu"):
        if not isinstance(getattr(variant, name), str):
            raise VariantError(f"{file}: {name} is {getattr(variant, name)!r}; expected a text in quotes")
    if variant.parent is not None and not (isinstance(variant.parent, str) and variant.parent):
        raise VariantError(f"{file}: parent is {variant.parent!r}; expected the name of a variant, or None")
    if not isinstance(variant.min_arch, int):
        raise VariantError(f"{file}: min_arch is {variant.min_arch!r}; expected a number: 75 is sm_75")
    variant = replace(variant, name=_official_name(folder), folder=folder, lookup=find)
    if variant.plan is not None and not variant.source.is_file():
        raise VariantError(f"{file} has a plan, but there is no {variant.source}; put its kernels there")
    return variant


@cache
def _compiled(text: str, file: str) -> CodeType:
    """Compiled files, cached by their text, because listing the variants loads all of them."""
    return compile(text, file, "exec")


def _official_name(folder: Path) -> str:
    name = folder.as_posix()
    inside = name.removeprefix(f"{ROOT.as_posix()}/")
    home, _, rest = inside.partition("/")
    return rest if inside != name and rest and home in HOMES else inside
