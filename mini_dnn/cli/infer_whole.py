"""``infer --resident``: a network with all of its layers on one device."""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from typing import Any

from mini_dnn.cli.common import EMULATED
from mini_dnn.measuring.inference import PART_IMAGES, Program
from mini_dnn.measuring.measure import UNSETTLED, Setting
from mini_dnn.measuring.whole import classify
from mini_dnn.variant import Variant

CHECKED = 200  # images whose probabilities are compared with float64

Figures = dict[str, Any]


def on_one_device(
    variant: Variant, program: Program, args: argparse.Namespace, setting: Setting
) -> tuple[float, list[Figures]]:
    """Return the accuracy and figures of the network with every layer on the device."""
    setting = replace(setting, entries=CHECKED if args.check else 0)
    program.check_memory(args.batch, PART_IMAGES, args.check)
    whole = classify(variant, program, args.batch, args.send, setting)
    assert setting.device is not None, "a network variant has kernels"
    has_clock = setting.device.has_clock
    op_ms = statistics.median(whole.timed.samples_ms) if whole.timed.samples_ms else None
    title = program.model.title
    print(f"\n{title[0].upper()}{title[1:]}  {whole.problem}")
    rate = f": {args.batch / whole.layer_ms * 1e3:,.0f} images/s" if has_clock else ""
    print(f"Layer Time: {whole.layer_ms:.3f} ms, with copies{rate}")
    lacking = f"n/a (the device's memory holds {whole.held:,} images at a time)" if has_clock else EMULATED
    print(f"Op Time: {lacking if op_ms is None else f'{op_ms:.3f} ms'}")
    if not whole.timed.settled:
        print(UNSETTLED)
    if whole.max_error is not None:
        (output,) = whole.problem.named("out")
        what = "score" if output == "scores" else "probability"
        print(f"agrees with float64: max error {whole.max_error:.2e} of a {what}")
    figures = {
        "name": program.model.name,
        "shape": str(whole.problem),
        "op_ms": op_ms,
        "settled": whole.timed.settled,
        "layer_ms": whole.layer_ms,
        "compile_ms": None,
        "state": whole.state,
    }
    return program.share_right(whole.probabilities.argmax(axis=1)), [figures]
