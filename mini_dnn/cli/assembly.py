"""Present the output of nvcc for a variant's kernels: for ``show --ptx``, ``show --sass`` and ``diff``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from mini_dnn.checking.launches import shared_limit
from mini_dnn.device.assembly import Compiled, assemble
from mini_dnn.device.nvcc import nvcc_arch
from mini_dnn.errors import UsageError
from mini_dnn.variant import Variant
from mini_dnn.variant.joined import prefixes

MOST_KINDS = 12  # kinds of instructions that a summary lists by name


def assembled(variant: Variant, problem: Any, arch: int, language: str) -> list[Compiled]:
    """Compile the kernels of a variant, and of the variants that it calls, for a problem.

    Raises
    ------
    UsageError
        The variant has no kernels.
    """
    if variant.plan is None:
        raise UsageError(f"{variant.name} runs on the host and has no machine code; use a variant such as m1")
    planned = variant.solver(problem).planned(problem, shared_limit(arch))
    found = assemble(planned.source, planned.defines, arch, language)
    for code, word in prefixes(planned).items():
        called = assemble(code.source, dict(code.defines), arch, language)
        found += [replace(kernel, name=f"{word}_{kernel.name}") for kernel in called]
    return found


def listing(kernels: Sequence[Compiled], variant: Variant, title: str, arch: int) -> str:
    """All instructions, below the source lines that they come from."""
    lines = [f"{variant.name} for {title}, by nvcc for {nvcc_arch(arch)}"]
    for kernel in kernels:
        lines += [
            "",
            f"{kernel.name}: {kernel.resources}",
            f"  {_summary(kernel)}",
            "",
            *_code(kernel, variant),
        ]
    return "\n".join(lines) + "\n"


def counts(old: Sequence[Compiled], new: Sequence[Compiled]) -> list[tuple[str, int, int]]:
    """Compare two variants: rows with the name of a count, and its value in all kernels of each variant.

    Registers and shared memory are those of the kernel that uses the most.
    """
    before, after = (_total(one) for one in (old, new))
    kinds = sorted({*before, *after}, key=lambda kind: (-max(before[kind], after[kind]), kind))
    rows = [("instructions", before.total(), after.total())]
    return [*_resources(old, new), *rows, *((kind, before[kind], after[kind]) for kind in kinds)]


def _resources(old: Sequence[Compiled], new: Sequence[Compiled]) -> Iterator[tuple[str, int, int]]:
    before, after = ([kernel.resources for kernel in one] for one in (old, new))
    yield "registers", max(r.registers for r in before), max(r.registers for r in after)
    yield "spilled bytes", sum(r.spilled_bytes for r in before), sum(r.spilled_bytes for r in after)
    yield "shared bytes", max(r.shared_bytes for r in before), max(r.shared_bytes for r in after)


def _total(kernels: Sequence[Compiled]) -> Counter[str]:
    total: Counter[str] = Counter()
    for kernel in kernels:
        total.update(kernel.counts)
    return total


def _summary(kernel: Compiled) -> str:
    kinds = list(kernel.counts.items())
    named = ", ".join(f"{count} {kind}" for kind, count in kinds[:MOST_KINDS])
    more = f", {sum(count for _, count in kinds[MOST_KINDS:])} others" if len(kinds) > MOST_KINDS else ""
    return f"{sum(kernel.counts.values())} instructions: {named}{more}"


def _code(kernel: Compiled, variant: Variant) -> Iterator[str]:
    place = ("", 0)
    for instruction in kernel.code:
        here = (instruction.file, instruction.line)
        if instruction.opcode and here != place:
            place = here
            yield _source(*place, variant)
        indent = "      " if instruction.opcode else "    "
        yield f"{indent}{instruction.text}"


def _source(file: str, line: int, variant: Variant) -> str:
    """A source line with its place, or only the place if the file cannot be read."""
    path = Path(file)
    inside = path.is_relative_to(variant.folder)
    name = path.relative_to(variant.folder).as_posix() if inside else path.name
    lines = _lines(path)
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f"{name}:{line} | {text}" if file else "(no line)"


@cache
def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.is_file() else []
