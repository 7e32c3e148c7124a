"""The results of a check: one for each problem, and the findings of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mini_dnn.checking.causes import mistakes
from mini_dnn.device.finding import Finding, Party, Place
from mini_dnn.variant import Variant

TELLING = (
    2  # problems of a kind, and of all others, from which on it is no coincidence that only one kind fails
)
LEAST = 3  # problems that have to run, of those that are chosen here, for a verdict

Traits = Mapping[str, Callable[[Any], bool]]


@dataclass(frozen=True)
class Result:
    """One problem: clean if there is neither a finding nor a reason why it was not run."""

    problem: Any
    finding: Finding | None = None
    refused: str = ""
    more: tuple[Finding, ...] = ()  # a GPU goes on after the first; other orders show other mistakes
    sampled: bool = False  # some blocks were run, and not all
    solver: str = ""  # another variant, which the plan calls for the whole problem

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them."""
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
    least: int = 1  # problems that have to run for a verdict
    traits: Traits = field(default_factory=dict)  # see `Operation`
    note: str = ""  # what a checker could not see

    @property
    def ran(self) -> list[Result]:
        """The problems that were run."""
        return [result for result in self.results if not result.refused]

    @property
    def enough(self) -> bool:
        """Whether the variant's own kernels ran at enough problems to say that nothing is wrong."""
        own = [result for result in self.ran if not result.solver]
        whole = [result for result in own if not result.sampled]
        return len(whole if self.least > 1 else own) >= self.least

    @property
    def clean(self) -> bool:
        """Whether enough was run, and nothing was found."""
        return self.enough and not self.findings

    @property
    def findings(self) -> dict[Finding, list[Any]]:
        """Each mistake once, by its cause, with the problems at which it was found."""
        found = [(result.problem, finding) for result in self.results for finding in result.findings]
        problems = [result.problem for result in self.results]
        told = sorted(mistakes(found), key=lambda one: problems.index(one.met[0]))
        return {self._noted(one.told(), one.met): one.met for one in told}

    def _noted(self, finding: Finding, problems: list[Any]) -> Finding:
        """With a note where problems of one kind have it, no others, and all of that kind fail.

        Where other problems fail, too, that is said only if all of the kind have this finding.
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
        """The verdict for a file of JSON; programs may rely on these fields, and others may be added.

        ``variant``, ``op``, ``device``, ``arch``, ``seed``; ``ran``, the number of problems that ran;
        ``enough``: whether they suffice for a verdict; and ``clean``: whether they do, and nothing was found.
        ``note``: what a checker could not see, and what was done instead; or empty.
        ``shapes``, one for each problem: its fields, such as ``N C H W M R S``; ``clean``; ``refused``, the
        limit that kept the variant from being run at it, or empty; ``sampled``: it is too large, and some of
        its blocks were run; ``solver``: another variant that the plan calls for this problem, or empty;
        ``kinds`` of its findings.
        ``findings``, each mistake once: ``kind`` (out-of-bounds, race, divergence, uninitialised,
        misaligned, fault, launch, unwritten, wrong ...); ``what``, ``cure`` and ``notes`` in words;
        ``effects``, what else the mistake showed as: ``kind``, ``what``, ``array`` and ``place`` of each;
        ``kernel``; ``array`` with its index; ``shapes`` at which it was met; ``own`` and ``other``, the
        two sides, or null: ``place`` with ``file``, ``line`` and ``code``, or null; ``block`` and ``thread``
        (empty where unknown); ``does`` (reads, writes, updates).
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
    return {
        "place": _place(party.place),
        "block": party.block,
        "thread": party.thread,
        "does": party.does,
    }


def _place(place: Place | None) -> dict[str, Any] | None:
    return vars(place) if place else None
