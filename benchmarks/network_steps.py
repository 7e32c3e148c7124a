"""Measure where the time of a whole network goes: each kind of launch, repeated in its own graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from whole_networks import Row, opened, replayed, sizes

from mini_dnn.device import Device
from mini_dnn.ops import Arrays
from mini_dnn.ops.problem import Problem
from mini_dnn.variant import Launch, Planned, Variant

IN_A_ROW = 20  # repetitions of a step


def graph_ms(planned: Planned, arrays: Arrays, device: Device) -> float:
    """Return the milliseconds of a plan as a graph: the minimum of three measurements."""
    with opened(planned, arrays, device) as execution:
        execution.kernels()  # the first launch of a kernel loads it
        graph = device.capture(execution.kernels)
        try:
            replayed(graph, device, 3)
            return min(replayed(graph, device, 10) for _ in range(3))
        finally:
            graph.free()


def measure_steps(
    variant: Variant,
    problem: Problem,
    arrays: Arrays,
    device: Device,
    label: Callable[[Launch, Planned], str],
) -> list[Row]:
    """Measure each kind of step, after a complete pass that leaves valid inputs for it."""
    planned = variant.planned(problem, device.max_shared_bytes)
    launches = [step for step in planned.steps if isinstance(step, Launch)]
    counts = Counter(label(step, planned) for step in launches)
    kinds = {label(step, planned): step for step in reversed(launches)}
    whole = graph_ms(planned, arrays, device)
    rows: list[Row] = []
    for name, count in counts.items():
        more = replace(planned, steps=(*planned.steps, *[kinds[name]] * IN_A_ROW))
        us = (graph_ms(more, arrays, device) - whole) * 1e3 / IN_A_ROW
        about_it = {"variant": variant.name, "problem": sizes(problem), "batch": problem.batch}
        rows.append({**about_it, "step": name, "us": us, "count": count})
    total = sum(row["us"] * row["count"] for row in rows)
    print("\n| step, grid | us | times | in all | |\n| --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        share = row["us"] * row["count"]
        print(f"| {row['step']} | {row['us']:.2f} | {row['count']} | {share:.0f} us | {share / total:.1%} |")
    words = f"{total:.1f} us in all steps, {whole * 1e3:.1f} us as they follow each other"
    print(f"{variant.name}, batch {problem.batch}: {words}", flush=True)
    return rows
