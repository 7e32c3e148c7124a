"""Rubrics: what a course requires of a submission, as a TOML file.

A file with every possible entry::

    name = "example"                # the name of the rubric
    precision = "fp32"              # the least exact arithmetic allowed: fp32, tf32, fp16 or fp16_sum
    single = "layers/custom"        # if a submission is the folder of one variant, it counts as this one
    ranking = "layers/custom"       # the variant whose op time the leaderboard shows

    [limits]                        # for each process of a submission
    seconds = 120                   # wall-clock time for one plan or one problem
    compile_seconds = 180           # wall-clock time for one compilation
    memory_mb = 8192
    output_kb = 256                 # printed output
    files_mb = 256                  # written files

    [correct]                       # students see shapes, seed and values
    shapes = [[2, 3, 19, 37, 17, 5, 5]]   # problems as for --shapes: N, C, H, W, M, R, S
    seed = 1
    per_shape = false               # whether correct results for some shapes earn part of the points

    [hidden]                        # students see that a shape failed, but not which
    shapes = [[1, 2, 9, 8, 3, 2, 5]]
    seeds = [711, 712]              # each shape is tried with each seed
    per_shape = false

    [accuracy]                      # of the course's network, so only for the default operation
    batch = 100                     # images from the network's test set
    tolerance = 0.001               # the largest difference from the accuracy of NumPy

    [checked]                       # the checked emulator: races, bounds, barriers, uninitialised reads
    shapes = [[2, 2, 9, 21, 3, 2, 5]]
    hidden = [[1, 3, 8, 13, 4, 3, 2]]     # further shapes; students see only that one failed
    seed = 0                        # the default of all three tables; or seeds, as in [hidden]

    [performance]                   # the sum of the op times of the operation's course problems
    at = ["..."]                    # only these problems, by name; without it, all of them
    batch = 10000                   # the batch size; without it, that of each problem
    full = 60.0                     # ms that earn all points; in between, points are linear
    none = 100.0                    # ms that earn none
    reference = "m2/unroll_gemm"    # with it, full and none are multiples of its time on the same GPU
    warm_up = 5
    repeats = 10                    # the median of these counts

    [log]                           # the work log written by --log, at the top level of the submission
    file = "log.jsonl"
    required = true                 # if false, its points are extra
    points = 2                      # for an entry for each submitted variant

    [[variant]]                     # one or more
    name = "layers/custom"          # its folder: layers/custom, or one in milestones/ such as m1/direct
    required = true                 # if false, its points are extra: not part of the maximum
    precision = "fp16"              # replaces the rubric's precision
    host = false                    # whether a NumPy function on the host is accepted instead of a kernel
    points = { correct = 4, hidden = 3, accuracy = 1, checked = 1, performance = 6 }

``name``, ``[correct]`` and a ``[[variant]]`` are required. ``op = "softmax"`` next to ``name`` selects an
operation other than the default one. Shapes are then sizes of its problems (``run.py list`` shows them), and
variants have names such as ``softmax/mine``, a folder in ``ladders/``. The check ``correct`` always runs; the
others run if they are worth points. A variant that fails ``correct`` earns nothing, because it computes
something else. With ``per_shape`` it still earns its part of the points for ``correct``. A shape that the
variant refuses counts as wrong. Late days are up to the system that collects the submissions.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

from mini_dnn import ops
from mini_dnn.errors import MiniDnnError, ShapeError, UsageError, meant, meant_file, reason
from mini_dnn.grading.asked import Accuracy, Log, Performance, Rubric, Trials, VariantRubric
from mini_dnn.grading.confined.process import Limits
from mini_dnn.ops import Operation
from mini_dnn.ops.compare import PRECISIONS
from mini_dnn.paths import read_regular
from mini_dnn.variant import find
from mini_dnn.work.tables import MOST_BYTES, TomlTable

PRESETS = Path(__file__).parent / "rubrics"
CHECKS = ("correct", "hidden", "accuracy", "checked", "performance")
FILE_NAME = re.compile(r"\w[\w.-]*")
VARIANT_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*){1,2}")


def presets() -> list[str]:
    """Return the names of the rubrics that come with mini_dnn."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load(name: str | Path) -> Rubric:
    """Read a rubric from a file, or a preset by its name.

    Raises
    ------
    UsageError
        The rubric does not exist or is invalid. The message names the table and key, and what is expected.
    """
    path = Path(name)
    if path.suffix != ".toml" and str(name) in presets():
        path = PRESETS / f"{name}.toml"
    try:
        text = read_regular(path, MOST_BYTES)
    except OSError as error:
        hint = meant(str(name), presets()) or meant_file(path)
        known = ", ".join(presets())
        raise UsageError(
            f"no rubric '{name}' ({reason(error)}){hint}; expected a TOML file, or one of {known}"
        ) from error
    try:
        return parse(text.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"rubric {path} is not valid TOML: {error}") from error
    except MiniDnnError as error:
        raise UsageError(f"rubric {path}: {error}") from error


def parse(text: str) -> Rubric:
    """Parse the text of a rubric. Errors are those of `tomllib` and of `TomlTable`."""
    top = TomlTable(tomllib.loads(text))
    operation = ops.find(top.choice("op", ops.names(), ops.DEFAULT))
    precision = top.choice("precision", PRECISIONS, "fp32")
    variants = tuple(_variant(table, precision) for table in top.tables("variant"))
    names = [variant.name for variant in variants]
    if len(set(names)) < len(names):
        raise UsageError(f"each [[variant]] needs a distinct name; found {', '.join(names)}")
    rubric = Rubric(
        name=top.text("name"),
        variants=variants,
        correct=_trials(top.table("correct"), operation),
        single=top.choice("single", names, names[0]),
        ranking=top.choice("ranking", names, names[-1]),
        limits=_limits(top.table("limits", {})),
        hidden=_trials(top.table("hidden"), operation) if "hidden" in top else None,
        accuracy=_accuracy(top.table("accuracy"), operation) if "accuracy" in top else None,
        checked=_trials(top.table("checked"), operation, more="hidden") if "checked" in top else None,
        hidden_checked=_trials(top.table("checked"), operation, "hidden", more="shapes")
        if "hidden" in top.table("checked", {})
        else None,
        performance=_performance(top.table("performance"), operation) if "performance" in top else None,
        log=_log(top.table("log")) if "log" in top else None,
        op=operation.name,
        text=text,
        digest=hashlib.sha256(text.encode()).hexdigest(),
    )
    top.finish()
    for variant in variants:
        for check in variant.points:
            if getattr(rubric, check) is None:
                raise UsageError(
                    f"{variant.name} has points for '{check}', but there is no table [{check}]; "
                    "add it, or remove the points"
                )
    return rubric


def _trials(table: TomlTable, operation: Operation, key: str = "shapes", more: str = "") -> Trials:
    """Parse the problems of a key. ``more`` is another key of the same table that is read elsewhere."""
    problems = []
    for row in table.rows(key, f"lists of {operation.usage}, such as [[1, 2], [3, 4]]"):
        try:
            problems.append(operation.decode(row))
        except ShapeError as error:
            raise UsageError(f"'{table.name}.{key}' has {row}: {error}") from error
    if "seed" in table and "seeds" in table:
        raise UsageError(f"'{table.name}' has both 'seed' and 'seeds'; expected one of them")
    seeds = tuple(table.integers("seeds")) if "seeds" in table else (table.integer("seed", 0, least=0),)
    if more:
        table.get(more, None)
    per_shape = not more and table.flag("per_shape", False)
    table.finish()
    return Trials(tuple(problems), seeds, per_shape)


def _limits(table: TomlTable) -> Limits:
    limits = Limits(
        seconds=table.number("seconds", Limits.seconds),
        compile_seconds=table.number("compile_seconds", Limits.compile_seconds),
        memory_mb=table.integer("memory_mb", Limits.memory_mb),
        output_kb=table.integer("output_kb", Limits.output_kb),
        files_mb=table.integer("files_mb", Limits.files_mb),
    )
    table.finish()
    return limits


def _accuracy(table: TomlTable, operation: Operation) -> Accuracy:
    if operation.name != ops.DEFAULT:
        raise UsageError(
            f"[accuracy] needs a network whose layers compute {ops.DEFAULT}, but the rubric is for "
            f"{operation.name}; remove the table"
        )
    accuracy = Accuracy(table.integer("batch"), table.number("tolerance", Accuracy.tolerance))
    table.finish()
    return accuracy


def _performance(table: TomlTable, operation: Operation) -> Performance:
    batch = table.integer("batch") if "batch" in table else None
    known = operation.course
    names = table.choices("at", known) if "at" in table else list(known)
    performance = Performance(
        problems={name: known[name].with_batch(batch or known[name].batch) for name in names},
        batch=batch,
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
        _check_reference(performance.reference, performance, operation)
    return performance


def _log(table: TomlTable) -> Log:
    log = Log(
        file=table.text("file", "log.jsonl"),
        required=table.flag("required", True),
        points=table.number("points", 0.0, least=0.0),
    )
    table.finish()
    if not FILE_NAME.fullmatch(log.file):
        raise UsageError(
            f"log.file is '{log.file}'; expected a file's name without folders, such as log.jsonl"
        )
    return log


def _check_reference(name: str, asked: Performance, operation: Operation) -> None:
    """Check now that a reference can be timed, instead of failing in the middle of a long run."""
    reference = find(name)
    if reference.op != operation.name:
        raise UsageError(
            f"performance.reference {name} computes {reference.op}, but the rubric is for {operation.name}"
        )
    limits = [reference.limit_for(problem) for problem in asked.problems.values()]
    if reference.host is not None or any(limits):
        why = "is a NumPy function" if reference.host is not None else f"refuses that: {max(limits)}"
        raise UsageError(f"performance.reference {name} {why}; name a variant whose kernels can be timed")


def _variant(table: TomlTable, precision: str) -> VariantRubric:
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
            f"variant.name is '{variant.name}'; expected layers/custom, or a folder under milestones/ such "
            "as m1/direct, or one under ladders/ such as softmax/mine, or networks/NETWORK/NAME"
        )
    table.finish()
    return variant
