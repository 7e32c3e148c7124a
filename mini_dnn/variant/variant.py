"""Variants: a folder with a ``kernel.cu`` and a ``variant.py`` that says what to launch.

A variant is data. It is found by its folder, so a new one needs no registration:

- the short names of the course, ``cpu``, ``m1``, ``m2`` and ``m3``;
- ``m2/unroll_gemm``: a folder under ``milestones/``;
- ``networks/lenet/whole``: a whole network, which ``--resident`` takes;
- any path to a folder that holds a ``variant.py``, inside the repository or outside.
"""

from __future__ import annotations

import difflib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mini_dnn.errors import MiniDnnError, VariantError
from mini_dnn.ops.shapes import ConvShape, LenetBatch
from mini_dnn.paths import ROOT
from mini_dnn.variant.plan import CopyIn, CopyOut, CopyToSymbol, Gemm, Images, Launch, Step, check_geometry

SHORT_NAMES = {"cpu": "m1/cpu", "m1": "m1/direct", "m2": "m2/unroll_gemm", "m3": "layers/custom"}
PRECISIONS = ("fp32", "tf32", "fp16", "fp16_sum")
COMPUTE_TYPES = ("", *PRECISIONS, "3xtf32", "3xfp16")

HostFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (x, w) -> y

__all__ = [
    "ConvShape",
    "CopyIn",
    "CopyOut",
    "CopyToSymbol",
    "Gemm",
    "HostFunction",
    "Images",
    "Launch",
    "LenetBatch",
    "Step",
    "Sweep",
    "Variant",
    "ceil_div",
    "find",
    "names",
    "network_names",
]


def ceil_div(a: int, b: int) -> int:
    """``a / b`` rounded up."""
    return -(-a // b)


@dataclass(frozen=True)
class Sweep:
    """Two parameters of a variant, the values to try, and the variant for each pair of them."""

    x_name: str
    x_values: tuple[int, ...]
    y_name: str
    y_values: tuple[int, ...]
    make: Callable[[int, int], Variant]
    best: tuple[int, int]


@dataclass(frozen=True)
class Variant:
    """One way to compute a convolution, or a whole network.

    Parameters
    ----------
    op
        What it computes: ``"conv2d"`` of a `ConvShape`, or ``"lenet"`` of a `LenetBatch`; the functions
        below take that shape.
    idea
        The one idea, in a sentence.
    plan
        The steps for a shape: a pure function. None for a variant that runs on the host.
    scratch
        Names and shapes of the float32 buffers that the plan needs beside ``x``, ``w`` and ``y``.
    defines
        Preprocessor definitions for the kernel: a mapping, or a function of the shape for kernels
        that are specialised at compile time.
    parent
        The variant that this one improves on.
    precision
        How exact a check may expect it to be: ``"fp32"``; ``"tf32"`` or ``"fp16"`` when operands are
        rounded so; ``"fp16_sum"`` when sums are kept in half too.
    compute_type
        In what its products are computed, which says how fast a GPU could be at most: empty if in its
        precision; ``"3xfp16"`` if three products of halves stand for each one, or ``"3xtf32"``.
    min_arch
        The oldest compute capability that compiles the kernel, times ten: 75 is sm_75.
    refuses
        Says which limit a shape hits, or returns an empty string when the variant can do it.
    host
        Instead of a plan: ``(x, w) -> y`` of NumPy arrays.
    needs_gpu
        Why the emulator cannot run it; empty if it can.
    sweep
        The search that found its parameters.
    compact
        The same kernel in blocks of at most 64 KB of shared memory, for GPUs that grant too little.
    """

    op: str
    idea: str
    plan: Callable[[Any], Sequence[Step]] | None = None
    scratch: Callable[[Any], Mapping[str, tuple[int, ...]]] = lambda shape: {}
    defines: Mapping[str, int] | Callable[[Any], Mapping[str, int]] = field(default_factory=dict)
    parent: str | None = None
    precision: str = "fp32"
    compute_type: str = ""
    min_arch: int = 75
    refuses: Callable[[Any], str] = lambda shape: ""
    host: HostFunction | None = None
    needs_gpu: str = ""
    sweep: Sweep | None = None
    compact: Variant | None = None
    name: str = ""
    folder: Path = Path()

    @property
    def source(self) -> Path:
        """The kernel file."""
        return self.folder / "kernel.cu"

    def defines_for(self, shape: ConvShape | LenetBatch) -> Mapping[str, int]:
        """Preprocessor definitions for this shape."""
        given = self._call("defines", self.defines, shape) if callable(self.defines) else self.defines
        try:
            return {name: int(index(value)) for name, value in dict(given).items()}
        except (TypeError, ValueError) as error:
            raise VariantError(
                f"{self.name}: defines gives {given!r}; expected names with whole numbers: {{'TILE': 16}}"
            ) from error

    def scratch_for(self, shape: ConvShape | LenetBatch) -> Mapping[str, tuple[int, ...]]:
        """Names and shapes of the scratch buffers for this shape."""
        given = self._call("scratch", self.scratch, shape)
        try:
            return {name: tuple(map(index, sizes)) for name, sizes in dict(given).items()}
        except (TypeError, ValueError) as error:
            raise VariantError(
                f"{self.name}: scratch gives {given!r}; expected names with shapes in whole numbers: "
                "{'col': (s.K, s.cols)}"
            ) from error

    def limit_for(self, shape: ConvShape | LenetBatch) -> str:
        """Which limit the shape hits; empty if the variant takes it."""
        return str(self._call("refuses", self.refuses, shape))

    def steps(self, shape: ConvShape | LenetBatch) -> list[Step]:
        """The plan for this shape, checked.

        Raises
        ------
        VariantError
            The plan fails, is no list of steps, or has a grid or block that is not of whole numbers.
        """
        assert self.plan is not None, "find() lets no variant through that has neither plan nor host"
        steps = self._call("plan", lambda s: list(self.plan(s)), shape)  # type: ignore[misc]
        for step in steps:
            if not isinstance(step, Step):
                raise VariantError(
                    f"{self.name}: plan returns {step!r}, which is no step such as Launch(...)"
                )
            if isinstance(step, Launch):
                check_geometry(step, self.name)
        return steps

    def as_convolution(self) -> Variant:
        """The variant itself, if it computes a convolution.

        Raises
        ------
        VariantError
            It is more: with what follows it, or a whole network.
        """
        if self.op != "conv2d":
            raise VariantError(
                f"{self.name} computes {self.op}, where a convolution alone is asked for; "
                "'run.py --resident' takes whole networks, and 'run.py list' shows all"
            )
        return self

    def run_host(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Call ``host``, for a variant that has it."""
        assert self.host is not None, "the caller looks"
        y = self._call("host", self.host, x, w)
        expected = ConvShape.of(x, w).y
        if getattr(y, "shape", None) != expected:
            raise VariantError(
                f"{self.name}: host returns {getattr(y, 'shape', type(y))}; expected {expected}"
            )
        return y

    def _call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of ``variant.py``; what it raises becomes an error that names its line."""
        try:
            return function(*args)
        except MiniDnnError:
            raise
        except (Exception, SystemExit) as error:
            where = _where(error, self.folder / "variant.py")
            raise VariantError(
                f"{self.name}: {what} of {self.folder / 'variant.py'} fails: {where}"
            ) from error


def network_names() -> list[str]:
    """Names of all variants of whole networks in the repository."""
    return sorted(p.parent.relative_to(ROOT).as_posix() for p in ROOT.glob("networks/*/*/variant.py"))


def names() -> list[str]:
    """Names of all convolutions in the repository, in the order of the course."""
    folders = sorted(p.parent for p in ROOT.glob("milestones/*/*/variant.py"))
    final = ["layers/custom"] if (ROOT / "layers/custom/variant.py").is_file() else []  # a course may keep it
    return [f.relative_to(ROOT / "milestones").as_posix() for f in folders] + final


def find(name: str | Path) -> Variant:
    """Load the variant of that name, or the one in the folder that ``name`` is a path to.

    Raises
    ------
    VariantError
        There is none of that name, or its ``variant.py`` is broken; the message names the line.
    """
    name = str(name)
    official = SHORT_NAMES.get(name, name)
    path = Path(name).expanduser()
    explicit = name.startswith((".", "/", "~"))  # ./m1/direct is the user's, not the repository's
    for folder in (path,) if explicit else (ROOT / "milestones" / official, ROOT / official, path):
        if (folder / "variant.py").is_file():
            return _load(folder.resolve())
    if path.name in ("variant.py", "kernel.cu") and (path.parent / "variant.py").is_file():
        return _load(path.parent.resolve())
    if path.is_dir():
        raise VariantError(
            f"the folder '{name}' holds no variant.py; a variant is a folder with variant.py and kernel.cu "
            "(CONTRIBUTING.md shows one)"
        )
    full = names()
    known = [*(short for short, name in SHORT_NAMES.items() if name in full), *full, *network_names()]
    near = difflib.get_close_matches(name, known, 1)
    asked = f"'{name}'" if official == name else f"'{name}', which is '{official}'"
    hint = f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(known)}."
    raise VariantError(f"no variant {asked}{hint} ('run.py list' shows all; a path to a folder works too)")


def _load(folder: Path) -> Variant:
    file = folder / "variant.py"
    module = ModuleType(f"mini_dnn_variant {folder}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:  # compiled here, not imported: an edit within the same second must not meet a stale .pyc
        exec(compile(file.read_text(), str(file), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        raise VariantError(f"{file} cannot be loaded: {_where(error, file)}") from error
    variant = getattr(module, "VARIANT", None)
    if not isinstance(variant, Variant):
        raise VariantError(f"{file} defines no VARIANT; it must end with VARIANT = Variant(...)")
    if (variant.plan is None) == (variant.host is None):
        raise VariantError(f"{file}: VARIANT needs either plan= (kernels) or host= (a NumPy function)")
    for name, allowed in (("precision", PRECISIONS), ("compute_type", COMPUTE_TYPES)):
        given = getattr(variant, name)
        if given not in allowed:
            raise VariantError(f"{file}: {name} {given!r} is not one of {', '.join(map(repr, allowed))}")
    if not isinstance(variant.min_arch, int):
        raise VariantError(f"{file}: min_arch is {variant.min_arch!r}; expected a number: 75 is sm_75")
    variant = replace(variant, name=_official_name(folder), folder=folder)
    if variant.plan is not None and not variant.source.is_file():
        raise VariantError(f"{file} has a plan but there is no {variant.source}; put its kernels there")
    return variant


def _official_name(folder: Path) -> str:
    for base in (ROOT / "milestones", ROOT):
        if folder.is_relative_to(base):
            return folder.relative_to(base).as_posix()
    return str(folder)


def _where(error: BaseException, file: Path) -> str:
    """The error with the line of ``file`` where it happened."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}: {(error.text or '').strip()}"
    lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    at = f"line {lines[-1].lineno} ({lines[-1].line}): " if lines else ""
    return f"{at}{type(error).__name__}: {error}"
