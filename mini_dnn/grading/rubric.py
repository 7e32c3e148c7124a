"""Rubrics: what is asked of a submission, as a TOML file.

The file, with everything that it may hold::

    name = "example"                # of the rubric, for people
    precision = "fp32"              # least exact arithmetic allowed: fp32, tf32, fp16 or fp16_sum
    single = "layers/custom"        # which variant a submission is that is one variant's folder
    ranking = "layers/custom"       # whose op time the leaderboard shows

    [limits]                        # of each process of a submission
    seconds = 120                   # by the wall clock, for one plan or one convolution
    compile_seconds = 180           # for one compile
    memory_mb = 8192
    output_kb = 256                 # of what it prints
    files_mb = 256                  # of what it writes

    [correct]                       # students see shapes, seed and values
    shapes = [[2, 3, 19, 37, 17, 3, 5]]   # N, C, H, W, M, R, S
    seed = 1

    [hidden]                        # students see that one failed, not which
    shapes = [[1, 2, 9, 8, 3, 2, 5]]
    seeds = [711, 712]              # each shape is tried with each of them

    [accuracy]
    batch = 100                     # images of the network's test set
    tolerance = 0.001               # how far it may lie from the accuracy that NumPy gives

    [checked]                       # the checked emulator: races, bounds, barriers, uninitialised reads
    shapes = [[2, 2, 9, 21, 3, 2, 5]]

    [performance]                   # op times of the network's two convolutions, summed
    batch = 10000
    full = 60.0                     # ms that earn all points; linear between the two
    none = 100.0                    # ms that earn none
    reference = "m2/unroll_gemm"    # if given, full and none are multiples of its time on the same GPU
    warm_up = 5
    repeats = 10                    # of which the median counts

    [[variant]]                     # one or more
    name = "layers/custom"          # its folder: layers/custom, or one under milestones/ such as m1/direct
    required = true                 # points of one that is not required are extra: not in the maximum
    precision = "fp16"              # instead of the rubric's
    host = false                    # whether a NumPy function on the host is an answer, and not only a kernel
    points = { correct = 4, hidden = 3, accuracy = 1, checked = 1, performance = 6 }

``name``, ``[correct]`` and a ``[[variant]]`` are needed. A check is made for each variant to which it is
worth points; ``correct`` always is. A variant that fails ``correct`` earns nothing: what computes something
else is no convolution. Late days are for the system that collects the submissions.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from mini_dnn.errors import MiniDnnError, ShapeError, UsageError
from mini_dnn.grading.tables import Table
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.variant import PRECISIONS, find

PRESETS = Path(__file__).parent / "rubrics"
CHECKS = ("correct", "hidden", "accuracy", "checked", "performance")
VARIANT_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")


@dataclass(frozen=True)
class Limits:
    """What one process of a submission may use."""

    seconds: float = 120.0
    compile_seconds: float = 180.0
    memory_mb: int = 8192
    output_kb: int = 256
    files_mb: int = 256


@dataclass(frozen=True)
class Shapes:
    """Convolutions to try, each with each seed."""

    shapes: tuple[ConvShape, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Accuracy:
    """The network's accuracy on its first ``batch`` test images, compared with NumPy's."""

    batch: int
    tolerance: float = 0.001


@dataclass(frozen=True)
class Performance:
    """Points for the op-time sum of the network's convolutions.

    Parameters
    ----------
    full, none
        Time that earns all, and none: milliseconds, or multiples of the reference's time.
    reference
        A variant of this repository, measured on the same GPU in the same run; None: absolute times.
    """

    batch: int
    full: float
    none: float
    reference: str | None = None
    warm_up: int = 5
    repeats: int = 10

    def fraction(self, op_ms: float, reference_ms: float | None = None) -> float:
        """Part of the points that a time earns: 0 to 1."""
        scale = 1.0 if self.reference is None else reference_ms
        assert scale is not None, "the reference is measured first"
        return min(1.0, max(0.0, (self.none - op_ms / scale) / (self.none - self.full)))


@dataclass(frozen=True)
class VariantRubric:
    """What is asked of one variant."""

    name: str
    precision: str
    required: bool = True
    host: bool = False
    points: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Rubric:
    """What is asked of a submission: see the module's docstring."""

    name: str
    variants: tuple[VariantRubric, ...]
    correct: Shapes
    single: str
    ranking: str
    limits: Limits = Limits()
    hidden: Shapes | None = None
    accuracy: Accuracy | None = None
    checked: Shapes | None = None
    performance: Performance | None = None
    digest: str = ""  # of the file

    def variant(self, name: str) -> VariantRubric:
        """What is asked of the variant of that name."""
        return next(v for v in self.variants if v.name == name)


def presets() -> list[str]:
    """Names of the rubrics that come with mini_dnn."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load(name: str | Path) -> Rubric:
    """Read a rubric: a file, or the name of a preset.

    Raises
    ------
    UsageError
        There is none, or it is no rubric: the message names the table and key, and what is expected.
    """
    path = Path(name)
    if path.suffix != ".toml" and str(name) in presets():
        path = PRESETS / f"{name}.toml"
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"no rubric '{name}' ({error.strerror}): expected a TOML file, or one of {', '.join(presets())}"
        ) from error
    try:
        return _rubric(Table(tomllib.loads(text.decode())), hashlib.sha256(text).hexdigest())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"rubric {path} is no TOML: {error}") from error
    except MiniDnnError as error:
        raise UsageError(f"rubric {path}: {error}") from error


def _rubric(top: Table, digest: str) -> Rubric:
    precision = top.choice("precision", PRECISIONS, "fp32")
    variants = tuple(_variant(table, precision) for table in top.tables("variant"))
    names = [variant.name for variant in variants]
    if len(set(names)) < len(names):
        raise UsageError(f"each [[variant]] needs a name of its own; found {', '.join(names)}")
    rubric = Rubric(
        name=top.text("name"),
        variants=variants,
        correct=_shapes(top.table("correct")),
        single=top.choice("single", names, names[0]),
        ranking=top.choice("ranking", names, names[-1]),
        limits=_limits(top.table("limits", {})),
        hidden=_shapes(top.table("hidden")) if "hidden" in top else None,
        accuracy=_accuracy(top.table("accuracy")) if "accuracy" in top else None,
        checked=_shapes(top.table("checked")) if "checked" in top else None,
        performance=_performance(top.table("performance")) if "performance" in top else None,
        digest=digest,
    )
    top.finish()
    for variant in variants:
        for check in variant.points:
            if getattr(rubric, check) is None:
                raise UsageError(
                    f"{variant.name} has points for '{check}', and there is no table [{check}]; "
                    "add it, or take the points out"
                )
    return rubric


def _shapes(table: Table) -> Shapes:
    rows = table.rows("shapes")
    for row in rows:
        if len(row) != len(fields(ConvShape)):
            raise UsageError(
                f"'{table.name}.shapes' has {row}; expected seven whole numbers each: N, C, H, W, M, R, S"
            )
    try:
        shapes = tuple(ConvShape(*row) for row in rows)
    except ShapeError as error:
        raise UsageError(f"'{table.name}.shapes': {error}") from error
    if "seed" in table and "seeds" in table:
        raise UsageError(f"'{table.name}' has both 'seed' and 'seeds'; expected one of them")
    seeds = tuple(table.integers("seeds")) if "seeds" in table else (table.integer("seed", 0, least=0),)
    table.finish()
    return Shapes(shapes, seeds)


def _limits(table: Table) -> Limits:
    limits = Limits(
        seconds=table.number("seconds", Limits.seconds),
        compile_seconds=table.number("compile_seconds", Limits.compile_seconds),
        memory_mb=table.integer("memory_mb", Limits.memory_mb),
        output_kb=table.integer("output_kb", Limits.output_kb),
        files_mb=table.integer("files_mb", Limits.files_mb),
    )
    table.finish()
    return limits


def _accuracy(table: Table) -> Accuracy:
    accuracy = Accuracy(table.integer("batch"), table.number("tolerance", Accuracy.tolerance))
    table.finish()
    return accuracy


def _performance(table: Table) -> Performance:
    performance = Performance(
        batch=table.integer("batch"),
        full=table.number("full"),
        none=table.number("none"),
        reference=table.text("reference", "") or None,
        warm_up=table.integer("warm_up", Performance.warm_up, least=0),
        repeats=table.integer("repeats", Performance.repeats),
    )
    table.finish()
    if performance.full >= performance.none:
        raise UsageError(
            f"performance: full = {performance.full:g} earns all points and none = {performance.none:g} "
            "earns none, so full must be the smaller time"
        )
    if performance.reference:
        find(performance.reference).as_convolution()  # an error now, and not in the middle of the night
    return performance


def _variant(table: Table, precision: str) -> VariantRubric:
    given = table.table("points", {})
    points = {check: given.number(check, 0.0, least=0.0) for check in CHECKS}
    given.finish()
    variant = VariantRubric(
        name=table.text("name"),
        precision=table.choice("precision", PRECISIONS, precision),
        required=table.flag("required", True),
        host=table.flag("host", False),
        points={check: worth for check, worth in points.items() if worth},
    )
    if not VARIANT_NAME.fullmatch(variant.name):
        raise UsageError(
            f"variant.name is '{variant.name}'; expected layers/custom, or a folder under milestones/ "
            "such as m1/direct"
        )
    table.finish()
    return variant
