"""Assignment sheets in Markdown: the tasks of a milestone, from its variants, its lesson and a rubric."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from mini_dnn import ops
from mini_dnn.errors import UsageError, meant
from mini_dnn.grading.asked import Rubric, VariantRubric
from mini_dnn.handout.pages import LINK
from mini_dnn.ops import Operation
from mini_dnn.paths import ROOT
from mini_dnn.report.tables import number
from mini_dnn.variant import Variant, climbed, find, names
from mini_dnn.variant.folders import HOMES, MINE
from mini_dnn.variant.scaffold import is_own

QUESTIONS = re.compile(r"^## Questions[^\n]*\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)  # of a lesson
CHECKS = {  # descriptions for students
    "correct": "Every element agrees with float64, at the shapes below.",
    "hidden": "The same, at shapes and with inputs that are not published.",
    "accuracy": "The network has the same accuracy with your kernels as with NumPy.",
    "checked": "`run.py check` finds nothing: no race, no access out of bounds, no unwritten element.",
    "performance": "The sum of the op times of the problems below.",
}


def groups() -> list[str]:
    """The possible subjects of a sheet: milestones, and ladders of operations."""
    return list(dict.fromkeys(name.partition("/")[0] for name in names() if _home(name.partition("/")[0])))


def sheet(group: str, rubric: Rubric | None = None, kept: Collection[str] | None = None) -> str:
    """Return the assignment sheet of a milestone or of an operation's ladder.

    Parameters
    ----------
    group
        A name such as ``m2`` or ``softmax``.
    rubric
        The rubric for grading. What it hides is not mentioned.
    kept
        The variants that students have; None for all.

    Raises
    ------
    UsageError
        There is no such group, or the rubric requires none of its variants.
    """
    if group not in groups():
        hint = meant(group, groups())
        raise UsageError(
            f"no assignment '{group}'{hint}; expected one of {', '.join(groups())}. A ladder needs a lesson, "
            "README.md in its folder"
        )
    asked = _asked(group, rubric)
    variants = [(_described(one, rubric), one) for one in asked]
    if not variants:
        raise UsageError(f"the rubric {rubric.name if rubric else ''} asks for no variant of {group}")
    operation = variants[0][0].operation
    lesson = _home(group)
    text = (lesson / "README.md").read_text() if lesson else ""
    parts = [
        f"# {_title(text, group)}",
        "",
        *_what(operation),
        *_variants(variants, kept or ()),
        *_commands([variant for variant, _ in variants], names() if kept is None else kept, kept or ()),
        *(_grading(asked, rubric) if rubric else ()),
        *_questions(text),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _home(group: str) -> Path | None:
    """The folder with a group's lesson."""
    found = (ROOT / home / group for home in HOMES)
    return next((folder for folder in found if (folder / "README.md").is_file()), None)


def _asked(group: str, rubric: Rubric | None) -> Sequence[VariantRubric]:
    """The requested variants of a group. The final variant belongs to the last milestone."""
    if rubric is None:
        own = {name: find(name) for name in names() if name.startswith(f"{group}/")}
        order = climbed({name: variant.parent for name, variant in own.items()})
        return [VariantRubric(name, own[name].precision, host=own[name].host is not None) for name in order]
    last = max((one for one in groups() if re.fullmatch(r"m\d", one)), default="")
    finals = [one for one in rubric.variants if "/" in one.name and not _home(one.name.partition("/")[0])]
    own_ones = [one for one in rubric.variants if one.name.startswith(f"{group}/")]
    return [*own_ones, *(finals if group == last else [])]


def _described(one: VariantRubric, rubric: Rubric | None) -> Variant:
    """The variant that a rubric asks for; this checkout does not have one that is the student's own."""
    if one.name in names() or rubric is None:
        return find(one.name)
    return Variant(op=rubric.op, idea="your own", precision=one.precision, name=one.name)


def _title(lesson: str, group: str) -> str:
    match = re.match(r"# (.+)", lesson)
    return match[1] if match else group


def _what(operation: Operation) -> Iterator[str]:
    yield from ("## What is computed", "", f"{operation.about[0].upper()}{operation.about[1:]}.", "")
    yield from ("| problem | sizes | GFLOP | minimum MB |", "| --- | --- | ---: | ---: |")
    for name, problem in operation.course.items():
        moved = sum(array.nbytes for array in problem.arrays.values())
        yield f"| `{name}` | {problem} | {number(problem.flops / 1e9)} | {moved / 1e6:,.0f} |"
    yield from (
        "",
        "*Minimum MB* counts each array once. Which of the two takes longer on your GPU, the arithmetic or "
        "the bytes?",
        "",
    )


def _variants(variants: Sequence[tuple[Variant, VariantRubric]], given: Collection[str]) -> Iterator[str]:
    yield from ("## What to write", "")
    yield (
        "A variant is a folder: `kernel.cu` contains the kernels, and `variant.py` describes the launches."
    )
    yield from ("", "| folder | idea | parent | precision | |", "| --- | --- | --- | --- | --- |")
    for variant, one in variants:
        need = "given" if variant.name in given else "required" if one.required else "optional"
        cells = (f"`{variant.name}`", variant.idea.replace("|", "¦"), _code(variant.parent), one.precision)
        yield f"| {' | '.join(cells)} | {need} |"
    yield ""


def _commands(variants: Sequence[Variant], kept: Collection[str], given: Collection[str]) -> Iterator[str]:
    yield from ("## How to work", "", "```sh")
    starts = [(variant, _start(variant, kept)) for variant in variants]
    able = [one for one in starts if one[0].plan and not one[0].needs_gpu and one[0].name != one[1]]
    variant, parent = next((one for one in able if one[0].name not in kept), (able or starts)[0])
    own = _place(variant.name)
    name = own if variant.name in given else variant.name  # `new` refuses the names of existing variants
    commands = {f"python run.py new {name} --from {parent}": f"creates {own}, a copy of {parent}"}
    if variant.op == ops.DEFAULT:  # the emulator takes too long for the problems of most others
        emulated = f"--impl {own} --batch 100 --device emulator --check"
        commands[f"python run.py {emulated}"] = "the network, compared with float64"
    commands |= {
        f"python run.py check {own}": "wrong results, races, bounds, barriers: line, thread, element",
        f"python run.py diff {own}": "shows your changes",
        f"python run.py bench --impl {own} --out results.json": "on a GPU",
        f"python run.py profile --tool ncu --impl {own}": "on a GPU: what limits it",
    }
    width = max(map(len, commands))
    yield from (f"{command:<{width}}  # {note}" for command, note in commands.items())
    yield from ("```", "")


def _place(name: str) -> str:
    """The folder that ``run.py new`` makes for a name."""
    return f"{MINE}/{name}" if is_own(name) else name


def _start(variant: Variant, kept: Collection[str]) -> str:
    """The nearest ancestor with kernels that students have, or else the first such variant."""
    above = variant.parent
    while above:
        found = find(above)
        if found.plan and above in kept:
            return above
        above = found.parent
    alike = [name for name in kept if find(name).plan and not find(name).needs_gpu]
    same = [name for name in alike if find(name).op == variant.op]
    return [*same, *alike, variant.name][0]


def _grading(asked: Sequence[VariantRubric], rubric: Rubric) -> Iterator[str]:
    checks = [name for name in CHECKS if any(one.points.get(name) for one in asked)]
    yield from ("## How it is graded", "")
    yield f"| variant | {' | '.join(checks)} | sum |"
    yield f"| --- |{' ---: |' * (len(checks) + 1)}"
    for one in asked:
        cells = [f"{one.points[name]:g}" if one.points.get(name) else "–" for name in checks]
        extra = "" if one.required else " (extra)"
        yield f"| `{one.name}`{extra} | {' | '.join(cells)} | {sum(one.points.values()):g} |"
    yield ""
    yield from (f"- **{name}**: {CHECKS[name]}" for name in checks)
    if "performance" in checks and rubric.performance:
        yield f"- **Points for performance**: {_performance(rubric)}"
    if rubric.log:
        worth = f"{rubric.log.points:g}{'' if rubric.log.required else ' extra'} points"
        yield (
            f"- **Work log** ({worth}): hand in `{rubric.log.file}`, which `--log` writes, with an entry for "
            "each variant."
        )
    yield f"- **Limits**: {rubric.limits.seconds:g} s and {rubric.limits.memory_mb:,} MB for each check."
    yield "- A variant that fails `correct` or a hidden test gets no points for performance."
    folders = dict.fromkeys(f"{_place(one.name).partition('/')[0]}/" for one in asked)
    yield f"- Hand in {' and '.join(f'`{folder}`' for folder in folders)}, with your variants."
    if f"{MINE}/" in folders:
        yield f"- Git ignores `{MINE}/`. To hand it in with git, use `git add -f {MINE}`."
    yield ""
    shapes = ", ".join(f"`{problem.text}`" for problem in rubric.correct.problems)
    yield from (f"Published shapes, for `--shapes`: {shapes}.", "")


def _performance(rubric: Rubric) -> str:
    timed = rubric.performance
    assert timed is not None, "asked for"
    at = f" at batch {timed.batch:,}" if timed.batch else ""
    unit = f" times the time of `{timed.reference}`" if timed.reference else " ms"
    return (
        f"all at {timed.full:g}{unit} or less, none at {timed.none:g}{unit} or more, linear in between. "
        f"The timed problems are {', '.join(timed.problems)}{at}; a time is the median of {timed.repeats} "
        f"runs after {timed.warm_up} warm-up runs."
    )


def _questions(lesson: str) -> Iterator[str]:
    if match := QUESTIONS.search(lesson):
        yield from ("## Questions for your report", "")
        yield LINK.sub(lambda link: link["text"], match[1]).strip()
        yield ""


def _code(name: str | None) -> str:
    return f"`{name}`" if name else "–"
