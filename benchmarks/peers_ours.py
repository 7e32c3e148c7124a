"""Our own kernels: convolutions, convolutions with ReLU and pool, and whole networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from peers_common import Case, Prepared
from peers_problems import NETWORK, WORDS, Subject

from mini_dnn.device.base import Device
from mini_dnn.device.sources import source_hash
from mini_dnn.errors import UsageError
from mini_dnn.measuring.bench import code_of
from mini_dnn.running.execute import Execution
from mini_dnn.running.runnable import check_runnable
from mini_dnn.variant import Variant, find
from mini_dnn.variant import names as names_of


def variants(names: Sequence[str]) -> list[Variant]:
    """Return the variants with these names, and all of the whole network.

    Raises
    ------
    UsageError
        One of them runs on the host.
    VariantError
        There is none with such a name.
    """
    found = [find(name) for name in [*names, *names_of(NETWORK)]]
    for variant in found:
        if variant.host is not None:
            raise UsageError(f"--impl {variant.name} runs on the CPU; this run compares what runs on one GPU")
        if variant.op not in (*WORDS, NETWORK):
            raise UsageError(f"--impl {variant.name} computes {variant.op}, which no library computes here")
    return found


def cases(chosen: Sequence[Variant], subjects: Sequence[Subject], device: Device) -> Iterator[Case]:
    """Yield a case for each subject and each variant that solves it."""
    for subject in subjects:
        for variant in chosen:
            if variant.op == subject.operation.name:
                yield _case(variant, subject, device)


def _case(variant: Variant, subject: Subject, device: Device) -> Case:
    return Case(
        kind="ours",
        peer=variant.name,
        what=subject.what,
        precision="fp16" if variant.precision == "fp16_sum" else variant.precision,
        order="NCHW",
        setting=variant.idea,
        bytes=subject.problem.min_bytes,
        prepare=lambda: _prepared(variant, subject, device),
        check=lambda found: subject.check_ours(found, variant.precision),
        facts={
            **subject.facts,
            "variant": variant.name,
            "source_hash": source_hash(variant.source),
            "code_hash": code_of(variant),
        },
    )


@contextmanager
def _prepared(variant: Variant, subject: Subject, device: Device) -> Iterator[Prepared]:
    check_runnable(variant, device)
    planned = variant.planned(subject.problem, device.max_shared_bytes)
    execution = Execution(planned, device.compile(planned.source, planned.defines), device)
    output = execution.buffers[subject.output]

    def result() -> np.ndarray:
        found = np.empty((len(subject.fetched), *output.shape[1:]), output.dtype)
        for at, entry in enumerate(subject.fetched):
            device.copy_out(device.part(output, int(entry), int(entry) + 1), found[at : at + 1])
        return found

    try:
        execution.fill()
        for name, value in subject.arrays.items():
            device.copy_in(execution.buffers[name], value)
        execution.set_up()
        yield Prepared(execution.kernels, result)
    finally:
        execution.free()
