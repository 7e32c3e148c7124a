"""What is served, by names alone: for other processes, which load it themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.measuring.inference import NETWORK, Program
from mini_dnn.measuring.serving import Service
from mini_dnn.variant import Variant, find


@dataclass(frozen=True)
class Served:
    """A network and what it is given, by names alone, so that another process can load both.

    Parameters
    ----------
    variant
        Its folder.
    send, count
        In what form entries are sent, and how many there are.
    data
        The data set that they are the first ones of; drawn at random, with random weights, if empty.
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
        """The first entries of a program's data set, with its weights; drawn at random without a program."""
        if program is None:
            return cls(variant.folder, send, count)
        data, model = program.data.name, program.model.name
        return cls(variant.folder, send, count, data, program.data_dir, program.weights_file, model)

    def __call__(self) -> Service:
        """The network, with the entries and the weights."""
        variant = find(self.variant)
        if not self.data:
            problem = variant.operation.course[self.send].with_batch(self.count)
            return Service.at_random(variant, self.send, problem)
        program = Program.load(self.data, self.data_dir, self.weights, self.network)
        return program.service(variant, self.send, self.count)


def all_forms(variant: Variant, program: Program | None) -> list[str]:
    """The forms in which a network can be sent entries: of images, where there is a program of them."""
    if program and variant.op == NETWORK:
        return program.forms(variant)
    return [name for name, problem in variant.operation.course.items() if not variant.limit_for(problem)]


def all_served(
    variant: Variant, sends: Sequence[str], batches: Sequence[int], program: Program | None
) -> Iterator[Served]:
    """A network in all forms and batches that are asked for; where none are, all forms and its own batch."""
    of_images = program if variant.op == NETWORK else None
    for send in sends or all_forms(variant, program):
        for batch in batches or [variant.operation.course[send].batch]:
            yield Served.of(variant, send, batch, of_images)
