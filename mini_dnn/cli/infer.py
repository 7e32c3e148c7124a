"""Verb ``infer``: classify a batch of test images, with the network's heavy layers in a variant's kernels."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

from mini_dnn import datasets, ops
from mini_dnn.cli import infer_pictures
from mini_dnn.cli.common import DIFFERS, EMULATED, add_force, check_output, find_filled, only, write_json
from mini_dnn.cli.infer_gpus import on_gpus, team_of
from mini_dnn.cli.infer_variant import impl_of, variant_of, watched
from mini_dnn.cli.infer_whole import on_one_device
from mini_dnn.cli.watch import add_watch
from mini_dnn.datasets import SEND
from mini_dnn.device import DEVICES, Device, open_device
from mini_dnn.device.gpus import GPUS
from mini_dnn.errors import UsageError
from mini_dnn.measuring.inference import PART_IMAGES, STEPS_OF, Program
from mini_dnn.measuring.layerwise import (
    ALIKE,
    ATTENTION,
    LAYER,
    LINEAR,
    ON_HOST,
    PADDED,
    Attentions,
    Convolutions,
    PaddedConvolutions,
    Products,
    by_layer,
    compare,
)
from mini_dnn.measuring.machine import cpu_name, versions
from mini_dnn.measuring.measure import UNSETTLED, Measured, Setting
from mini_dnn.nn.zoo import MODELS
from mini_dnn.progress import told_of_silence
from mini_dnn.running.compute import best
from mini_dnn.running.runnable import check_runnable
from mini_dnn.running.timing import NO_TIMING, Timing
from mini_dnn.variant import Variant, default_of

BATCH = 10000
# Flags that need test images
OF_TEST_IMAGES = ("linear", "check", "data", "data_dir", "repeat", "send", "watch")
KINDS = {  # kinds of layers that variants run
    LAYER: Convolutions,
    ATTENTION: Attentions,
    PADDED: PaddedConvolutions,
}
TITLES = {LAYER: "Conv2d", LINEAR: "Linear", ATTENTION: "Attention", PADDED: "Conv2d"}

Figures = dict[str, Any]


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "infer",
        help="classify test images (what run.py does without a verb)",
        description="Classify test images with a network whose heavy layers run in a variant, and print the "
        "op and layer times and the accuracy. Exit status: 0 as expected; 1 a result differs from what is "
        "expected; 2 error, such as wrong use.",
    )
    parser.add_argument(
        "--batch", type=int, help=f"number of test images, starting with the first (default {BATCH})"
    )
    parser.add_argument("--network", choices=MODELS, default="lenet", help="default %(default)s")
    parser.add_argument(
        "--impl",
        help="the variant that runs the network's convolutions or attention: a name from 'run.py list', or a "
        f"path (default {default_of(LAYER, MODELS['lenet'].impl)}; for attention the best one for the "
        "device; cpu is NumPy, and the default of resnet18)",
    )
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="default auto: the GPU if there is one"
    )
    parser.add_argument("--data", choices=datasets.ALL, default="auto", help="the data set (default auto)")
    parser.add_argument("--data-dir", type=Path, help="folder with the data set's published files")
    parser.add_argument(
        "--weights", type=Path, help="a file of weights (default: the shipped weights for the data)"
    )
    parser.add_argument("--repeat", type=int, default=10, help="timed runs of each op on a GPU (default 10)")
    parser.add_argument(
        "--check", action="store_true", help="compare each layer that runs in a variant with float64"
    )
    parser.add_argument(
        "--resident",
        metavar="STEP",
        help=f"instead of --impl, run every layer on the device, with {_steps()}, or the path of "
        "a network variant",
    )
    parser.add_argument(
        "--linear",
        metavar="NAME|PATH",
        help="run linear layers in this variant of gemm: a name or a path (default: NumPy)",
    )
    parser.add_argument(
        "--send",
        choices=SEND,
        default=SEND[0],
        help="with --resident: the type of the images that are copied to the device; other types than "
        "float32 (86x86 for LeNet) are converted there (default float32)",
    )
    parser.add_argument("--gpus", metavar="all|N|LIST", help=f"with --resident: {GPUS}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    add_force(parser)
    add_watch(parser, watched)
    infer_pictures.add_flags(parser, OF_TEST_IMAGES)
    parser.set_defaults(run=run)


def _steps() -> str:
    """The short names of the networks' variants, as text."""
    return "; ".join(f"{', '.join(steps)} of {network}" for network, steps in STEPS_OF.items())


def run(args: argparse.Namespace) -> int:
    """Classify and report. Return 1 if the accuracy differs from the expected one, else 0."""
    if infer_pictures.wanted(args):
        return infer_pictures.run(args)
    start = time.perf_counter()
    args.batch = BATCH if args.batch is None else args.batch
    model = MODELS[args.network]
    variant = variant_of(args)
    linear = only([find_filled(args.linear)], LINEAR, "--linear")[0] if args.linear else None
    _check_flags(args, variant, linear)
    with ExitStack() as stack:
        stack.enter_context(told_of_silence())
        device, team = None, None
        if args.gpus:
            pass  # each process opens its own
        elif variant is None or variant.host is None or linear:
            device = open_device(args.device)
            stack.callback(device.close)
            if linear:
                check_runnable(linear, device)
        program = Program.load(args.data, args.data_dir, args.weights, model.name)
        program.check_batch(args.batch)
        if variant is None:
            assert device is not None, "opened where no variant is named"
            variant = best(ops.find(model.layer), program.attention(args.batch), device)
        if args.gpus:
            team = stack.enter_context(team_of(variant, program, args))
        device_text = team.description if team else _device_text(device)
        _print_head(variant, linear, device_text, program, args.batch)
        timing = Timing(repeats=args.repeat, max_repeats=args.repeat) if device else NO_TIMING
        setting = Setting(device, timing)
        if team:
            found, layers = on_gpus(variant, program, args, team)
        elif args.resident:
            found, layers = on_one_device(variant, program, args, setting)
        else:
            found, layers = _layer_by_layer(variant, linear, program, args, setting)
    expected = program.expected_accuracy(args.batch)
    agrees = expected is None or _is_close(found, expected, args.batch)
    print(f"\nTest Accuracy: {found:.4f} ({_verdict(expected, agrees, program)})")
    total_s = time.perf_counter() - start
    print(f"total {total_s:.1f} s")
    figures = {
        "network": model.name,
        "impl": args.resident or impl_of(args) or variant.name,
        "linear": args.linear,
        "device": team.kind if team else device.name if device else "host",
        "device_name": device_text,
        "data": program.data.name,
        "batch": args.batch,
        "accuracy": found,
        "expected_accuracy": expected,
        "layers": layers,
        "total_s": total_s,
        "versions": versions() | getattr(device, "versions", {}),
    }
    write_json("--json", args.json, figures)
    return 0 if agrees else DIFFERS


def _check_flags(args: argparse.Namespace, variant: Variant | None, linear: Variant | None) -> None:
    if args.batch < 1:
        raise UsageError(f"--batch {args.batch}: expected 1 or more images")
    if args.repeat < 1:
        raise UsageError(f"--repeat {args.repeat}: expected 1 or more repeats")
    if args.impl and args.resident:
        raise UsageError(
            f"--resident {args.resident} runs every layer in one variant, and --impl {args.impl} names a "
            "variant for some layers; use only one of them"
        )
    if args.gpus and not args.resident:
        raise UsageError(f"--gpus {args.gpus} needs --resident, which runs every layer on the GPUs")
    if linear and args.resident:
        raise UsageError("--linear needs --impl, because --resident runs every layer in one variant")
    if variant is not None and variant.host is not None and not linear and args.device != "auto":
        raise UsageError(f"{variant.name} is NumPy and runs on the host; remove --device {args.device}")
    if args.send != "float32" and not args.resident:
        raise UsageError(f"--send {args.send} needs --resident, because a convolution needs float32 images")
    check_output("--json", args.json, args.force)


def _device_text(device: Device | None) -> str:
    return device.description if device else f"the host: {cpu_name()}, NumPy"


def _print_head(variant: Variant, linear: Variant | None, device: str, program: Program, batch: int) -> None:
    data = program.data
    print(f"variant   {variant.name}: {variant.idea}")
    if linear:
        print(f"linear    {linear.name}: {linear.idea}")
    print(f"device    {device}")
    print(f"data      {data.name}, {batch:,} of {len(data.labels):,} test images, {data.origin}")
    if data.note:
        print(f"          NOTE: {data.note}")
    print(f"weights   {program.weights_file}", flush=True)


def _layer_by_layer(
    variant: Variant, linear: Variant | None, program: Program, args: argparse.Namespace, setting: Setting
) -> tuple[float, list[Figures]]:
    """Return the accuracy and figures of the network with its heavy layers in a variant."""
    setting = replace(setting, entries=None if args.check else 0)
    part = None if setting.device and setting.device.has_clock else PART_IMAGES
    program.check_memory(args.batch, part, args.check)
    show = _print_layer if part is None or args.batch <= part else lambda layer: None
    alone = program.model.layer in ON_HOST and args.check
    expected = program.probabilities(args.batch, part=part) if alone else None
    elsewhere = [KINDS[program.model.layer](variant, setting, show)]
    elsewhere += [Products(linear, setting, show)] if linear else []
    probabilities = program.probabilities(args.batch, *elsewhere, part=part)
    layers = by_layer([layer for some in elsewhere for layer in some.layers])
    for layer in layers if show is not _print_layer else ():
        _print_layer(layer)
    if expected is not None:
        print(f"\n{compare(probabilities, expected, layers)}")
    return program.share_right(probabilities.argmax(axis=1)), [_layer_figures(layer) for layer in layers]


def _print_layer(layer: Measured) -> None:
    result = layer.result
    print(f"\n{TITLES[layer.variant.op]} {layer.name}  {layer.problem}")
    print(f"Layer Time: {result.layer_ms:.3f} ms")
    print(f"Op Time: {EMULATED if result.op_ms is None else f'{result.op_ms:.3f} ms'}")
    if not result.timed.settled:
        print(UNSETTLED)
    if layer.comparison:
        print(f"agrees with float64: {layer.comparison}")
    sys.stdout.flush()


def _layer_figures(layer: Measured) -> Figures:
    result = layer.result
    return {
        "name": layer.name,
        "shape": str(layer.problem),
        "op_ms": result.op_ms,
        "settled": result.timed.settled,
        "layer_ms": result.layer_ms,
        "compile_ms": result.compile_ms,
        "state": layer.state,
    }


def _is_close(found: float, expected: float, batch: int) -> bool:
    """Whether two accuracies agree. FP16 operands may change the class of one of `ALIKE` images."""
    return round(abs(found - expected) * batch) <= ceil(batch / ALIKE)


def _verdict(expected: float | None, agrees: bool, program: Program) -> str:
    info = program.info
    if info.dataset != program.data.name:
        return f"not compared: the weights were trained on {info.dataset}"
    if expected is None:
        known = ", ".join(f"{n:,}" for n in sorted(info.accuracies))
        return f"not compared: the weights store an accuracy only for batches of {known}"
    if agrees:
        return f"agrees with {expected:.4f}, stored with the weights"
    return f"DIFFERS from {expected:.4f}, stored with the weights: --check finds the layer"
