"""The results of a check: one for each problem, and the findings of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mini_dnn.checking.causes import mistakes
from mini_dnn.device.finding import Finding, Party, Place
from mini_dnn.variant import Variant

TELLING = 2  # this many problems of a kind, and of others: it is no coincidence that only one kind fails
LEAST = 3  # of the problems chosen here, this many must run for a verdict

Traits = Mapping[str, Callable[[Any], bool]]


@dataclass(frozen=True)
class Result:
    """The result of one problem.

    It is clean if there is neither a finding nor a reason why it did not run.
    """

    problem: Any
    finding: Finding | None = None
    refused: str = ""
    # Further findings: a GPU continues after the first, and other orders show other mistakes
    more: tuple[Finding, ...] = ()
    sampled: bool = False  # only some of the blocks ran
    solver: str = ""  # another variant, which the plan calls for the whole problem

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings."""
        return (self.finding, *self.more) if self.finding else ()


@dataclass(frozen=True)
class Report:
    """The results of a check."""

    variant: str
    op: str
    seed: int
    results: tuple[Result, ...]
    device: str  # its description
    arch: int  # compute capability times ten
    least: int = 1  # problems that must run for a verdict
    traits: Traits = field(default_factory=dict)  # see `Operation`
    note: str = ""  # what a checker could not see

    @property
    def ran(self) -> list[Result]:
        """The problems that were run."""
        return [result for result in self.results if not result.refused]

    @property
    def enough(self) -> bool:
        """Whether the variant's own kernels ran at enough problems for a verdict."""
        own = [result for result in self.ran if not result.solver]
        whole = [result for result in own if not result.sampled]
        return len(whole if self.least > 1 else own) >= self.least

    @property
    def clean(self) -> bool:
        """Whether enough problems were run and nothing was found."""
        return self.enough and not self.findings

    @property
    def findings(self) -> dict[Finding, list[Any]]:
        """Each mistake once, by its cause, with the problems at which it was found."""
        found = [(result.problem, finding) for result in self.results for finding in result.findings]
        problems = [result.problem for result in self.results]
        told = sorted(mistakes(found), key=lambda one: min(map(problems.index, one.met)))
        return {self._noted(one.told(), one.met): one.met for one in told}

    def _noted(self, finding: Finding, problems: list[Any]) -> Finding:
        """Add a note if exactly the problems of one kind have the finding, and all of that kind fail.

        If other problems fail as well, the note is only added if all problems of the kind have this finding.
        """
        for words, holds in self.traits.items():
            kind = [result for result in self.ran if holds(result.problem)]
            others = [result for result in self.ran if not holds(result.problem)]
            every = all(result.problem in problems for result in kind)
            only = all(result.finding for result in kind) and not any(result.finding for result in others)
            alone = all(map(holds, problems)) and (every or only)
            if alone and min(len(kind), len(others)) >= TELLING:
                note = (
                    f"it occurs only at problems with {words}, and all of these fail; if the variant is not "
                    "meant for them, refuse them with refuses="
                )
                return replace(finding, notes=(*finding.notes, note))
        return finding

    def as_dict(self) -> dict[str, Any]:
        """The verdict as values for JSON. Programs may rely on these fields, but others may be added.

        ``variant``, ``op``, ``device``, ``arch``, ``seed``; ``ran``, the number of problems that ran;
        ``enough``, whether they suffice for a verdict; ``clean``, whether they do and nothing was found;
        ``note``, what a checker could not see and what was done instead, or empty.

        ``shapes`` has an entry for each problem: its fields, such as ``N C H W M R S``; ``clean``;
        ``refused``, the limit that prevented a run, or empty; ``sampled``, whether only some blocks ran
        because the problem is too large; ``solver``, another variant that the plan calls for this problem,
        or empty; and ``kinds`` of its findings.

        ``findings`` has each mistake once: ``kind`` (out-of-bounds, race, divergence, uninitialised,
        misaligned, undefined, fault, launch, unwritten, wrong ...); ``what``, ``cure`` and ``notes``, in
        words; ``effects``, the other symptoms, with ``kind``, ``what``, ``array`` and ``place``; ``kernel``;
        ``array`` with its index; ``shapes`` at which it was found; ``own`` and ``other``, the two sides, or
        null. A side has ``place`` with ``file``, ``line`` and ``code``, or null; ``block`` and ``thread``
        (empty if unknown); and ``does`` (reads, writes, updates).
        """
        return {
            "variant": self.variant,
            "op": self.op,
            "device": self.device,
            "arch": self.arch,
            "seed": self.seed,
            "ran": len(self.ran),
            "enough": self.enough,
            "clean": self.clean,
            "note": self.note,
            "shapes": [
                {
                    **r.problem.fields,
                    "clean": r.finding is None and not r.refused,
                    "refused": r.refused,
                    "sampled": r.sampled,
                    "solver": r.solver,
                    "kinds": [f.kind for f in r.findings],
                }
                for r in self.results
            ],
            "findings": [
                {
                    "kind": f.kind,
                    "what": f.what,
                    "kernel": f.kernel,
                    "array": f.array,
                    "own": _party(f.own),
                    "other": _party(f.other),
                    "cure": f.cure,
                    "notes": f.notes,
                    "effects": [
                        {"kind": e.kind, "what": e.what, "array": e.array, "place": _place(e.place)}
                        for e in f.effects
                    ],
                    "shapes": [problem.fields for problem in problems],
                }
                for f, problems in self.findings.items()
            ],
        }


def refusal(variant: Variant, problem: Any) -> str:
    """The limit that a problem exceeds, and what to check instead of a batch that is only too large."""
    limit = variant.limit_for(problem)
    if limit and problem.batch > 1 and not variant.limit_for(problem.with_batch(1)):
        return f"{limit}; 'run' splits such a batch: check a smaller one, or blocks of a part with --large"
    return limit


def with_solvers(variant: Variant, results: Iterable[Result]) -> list[Result]:
    """The results, with the name of the variant whose kernels solved a problem, if it is another one."""
    solvers = [(result, variant.solver(result.problem).name) for result in results]
    return [result if name == variant.name else replace(result, solver=name) for result, name in solvers]


def own_problems(variant: Variant, results: Sequence[Result]) -> list[Any]:
    """Further problems for a variant that calls another one for some of those that were run."""
    if not any(result.solver for result in results):
        return []
    taken = [problem for problem in variant.operation.particular if not variant.limit_for(problem)]
    return [problem for problem in taken if variant.solver(problem) is variant]


def _party(party: Party | None) -> dict[str, Any] | None:
    if party is None:
        return None
    return {"place": _place(party.place), "block": party.block, "thread": party.thread, "does": party.does}


def _place(place: Place | None) -> dict[str, Any] | None:
    return vars(place) if place else None
