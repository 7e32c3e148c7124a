"""A served network, described by names only, so that other processes can load it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.errors import UsageError
from mini_dnn.measuring.inference import NETWORK, Program
from mini_dnn.measuring.serving import Service
from mini_dnn.variant import Variant, find


@dataclass(frozen=True)
class Served:
    """A network and its input, described by names only, so that another process can load both.

    Parameters
    ----------
    variant
        The folder of the variant.
    send, count
        The form in which entries are sent, and their number.
    data
        The data set of the entries. If empty, entries and weights are random.
    data_dir, weights, network
        See `Program.load`.
    """

    variant: Path
    send: str
    count: int
    data: str = ""
    data_dir: Path | None = None
    weights: Path | None = None
    network: str = NETWORK

    @classmethod
    def of(cls, variant: Variant, send: str, count: int, program: Program | None) -> Served:
        """Describe the first entries of a program's data set and its weights; random without a program."""
        if program is None:
            return cls(variant.folder, send, count)
        data, model = program.data.name, program.model.name
        return cls(variant.folder, send, count, data, program.data_dir, program.weights_file, model)

    def __call__(self) -> Service:
        """Load the network with its entries and weights."""
        variant = find(self.variant)
        if not self.data:
            problem = variant.operation.course[self.send].with_batch(self.count)
            return Service.at_random(variant, self.send, problem)
        program = Program.load(self.data, self.data_dir, self.weights, self.network)
        return program.service(variant, self.send, self.count)


def forms(variant: Variant, sends: Sequence[str], program: Program | None) -> Sequence[str]:
    """Return the forms in which entries are sent to a network: ``sends``, or all that it supports.

    Raises
    ------
    UsageError
        The operation does not have a form of ``sends``.
    """
    known = variant.operation.course
    for send in sends:
        if send not in known:
            raise UsageError(
                f"--send {send}: {variant.op} does not support it; expected one of {', '.join(known)}"
            )
    if sends:
        return sends
    if program and variant.op == NETWORK:
        return program.forms(variant)
    return [name for name, problem in known.items() if not variant.limit_for(problem)]


def all_served(
    variant: Variant, sends: Sequence[str], batches: Sequence[int], program: Program | None
) -> Iterator[Served]:
    """Return a network in all requested forms and batch sizes; by default, all forms at its own batch."""
    of_images = program if variant.op == NETWORK else None
    for send in forms(variant, sends, program):
        for batch in batches or [variant.operation.course[send].batch]:
            yield Served.of(variant, send, batch, of_images)
