"""Verb ``infer``: classify a batch of test images, with the convolutions in a variant's kernels."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn import datasets
from mini_dnn.cli.common import DIFFERS, check_output
from mini_dnn.cli.infer_resident import classify_resident
from mini_dnn.datasets import SEND, ImageSet
from mini_dnn.device import DEVICES, Device, open_device
from mini_dnn.errors import MiniDnnError, UsageError
from mini_dnn.measuring.inference import ConvLayer, Convolutions, accuracy
from mini_dnn.measuring.machine import cpu_name, versions
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import LayerTime
from mini_dnn.nn.weights import WeightsInfo, load
from mini_dnn.running.resident import STEPS, find_step
from mini_dnn.running.timing import NO_TIMING, Timing
from mini_dnn.variant import Variant, find

ACCURACY_TOLERANCE = 0.001  # operands in FP16 may turn an image whose two best classes are close


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser("infer", help="classify test images (what run.py does without a verb)")
    parser.add_argument("--batch", type=int, default=10000, help="images, from the first on (default 10000)")
    parser.add_argument(
        "--impl", default="m3", help="the variant: a name of 'run.py list', or a path (default m3)"
    )
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="default auto: the GPU if there is one"
    )
    parser.add_argument("--data", choices=datasets.NAMES, default="auto", help="the data set (default auto)")
    parser.add_argument("--data-dir", type=Path, help="folder with the four files of Fashion-MNIST")
    parser.add_argument(
        "--weights", type=Path, help="an HDF5 file (default: the shipped weights for the data)"
    )
    parser.add_argument("--repeat", type=int, default=10, help="timed repeats of an op on a GPU (default 10)")
    parser.add_argument("--check", action="store_true", help="compare each convolution with float64")
    parser.add_argument(
        "--resident",
        metavar="STEP",
        help=f"run every layer on the device, by {', '.join(STEPS)} or the path of a network variant; "
        "--impl is not used",
    )
    parser.add_argument(
        "--send",
        choices=SEND,
        default=SEND[0],
        help="with --resident: what an image is on its way to the device; what is not float32 of 86x86 is "
        "made so there (default float32)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Classify and report; 0 if the accuracy is the expected one or none is known, 1 if it differs."""
    start = time.perf_counter()
    variant = find_step(args.resident) if args.resident else find(args.impl).as_convolution()
    _check_flags(args, variant)
    with ExitStack() as stack:
        device = None
        if variant.host is None:
            device = open_device(args.device)
            stack.callback(device.close)
        data = datasets.load(args.data, "test", args.data_dir)
        if args.batch > len(data.labels):
            raise UsageError(f"--batch {args.batch}: {data.name} has {len(data.labels)} test images at most")
        network = lenet.build(np.random.default_rng(0))
        weights = args.weights or lenet.default_weights(data.name)
        info = load(weights, network)
        _print_head(variant, device, data, weights, args.batch)
        timing = Timing(repeats=args.repeat, max_repeats=args.repeat) if device else NO_TIMING
        if args.resident:
            assert device is not None, "a network variant has kernels"
            found, layers = classify_resident(
                variant, device, network, data, args.batch, timing, args.send, args.data_dir, args.check
            )
        else:
            convolutions = Convolutions(variant, device, timing, args.batch if args.check else 0)
            found = accuracy(network, convolutions, data, args.batch, _Report(convolutions))
            layers = [_layer_figures(layer) for layer in convolutions.layers.values()]
    expected = _expected_accuracy(info, data, args.batch)
    agrees = expected is None or abs(found - expected) <= ACCURACY_TOLERANCE
    print(f"\nTest Accuracy: {found:.4f} ({_verdict(expected, agrees, info, data)})")
    total_s = time.perf_counter() - start
    print(f"total {total_s:.1f} s")
    if args.json:
        impl = args.resident or args.impl
        _write_json(args.json, _figures(impl, device, layers, data, args.batch, found, expected, total_s))
    return 0 if agrees else DIFFERS


def _check_flags(args: argparse.Namespace, variant: Variant) -> None:
    if args.batch < 1:
        raise UsageError(f"--batch {args.batch}: a batch has one image or more")
    if args.repeat < 1:
        raise UsageError(f"--repeat {args.repeat}: an op time needs one repeat or more")
    if variant.host is not None and args.device != "auto":
        raise UsageError(f"{variant.name} is NumPy and runs on the host; leave --device {args.device} out")
    if args.send != "float32" and not args.resident:
        raise UsageError(f"--send {args.send} goes with --resident: a convolution takes float32 images")
    check_output("--json", args.json)


def _device_text(device: Device | None) -> str:
    return device.description if device else f"the host: {cpu_name()}, NumPy"


def _print_head(variant: Variant, device: Device | None, data: ImageSet, weights: Path, batch: int) -> None:
    print(f"variant   {variant.name}: {variant.idea}")
    print(f"device    {_device_text(device)}")
    print(f"data      {data.name}, {batch:,} of {len(data.labels):,} test images, {data.origin}")
    if data.note:
        print(f"          NOTE: {data.note}")
    print(f"weights   {weights}", flush=True)


class _Report:
    """Prints each convolution's times as soon as it is done."""

    def __init__(self, convolutions: Convolutions) -> None:
        self._convolutions = convolutions

    def __call__(self, time: LayerTime) -> None:
        layer = self._convolutions.layers.get(time.name)
        if layer is None:
            return
        print(f"\nConv2d {layer.name}  {layer.shape}")
        print(f"Layer Time: {layer.result.layer_ms:.3f} ms")
        if layer.result.op_ms is None:
            print("Op Time: none (emulated: what a CPU takes says nothing about a GPU)")
        else:
            print(f"Op Time: {layer.result.op_ms:.3f} ms")
        if layer.comparison:
            print(f"agrees with float64: {layer.comparison}")
        sys.stdout.flush()


def _expected_accuracy(info: WeightsInfo, data: ImageSet, batch: int) -> float | None:
    return info.accuracies.get(batch) if info.dataset == data.name else None


def _verdict(expected: float | None, agrees: bool, info: WeightsInfo, data: ImageSet) -> str:
    if info.dataset != data.name:
        return f"the weights were trained on {info.dataset}, so there is nothing to compare with"
    if expected is None:
        known = ", ".join(f"{n:,}" for n in sorted(info.accuracies))
        return f"the weights state it for a batch of {known} only"
    if agrees:
        return f"agrees with {expected:.4f}, stored with the weights"
    return f"DIFFERS from {expected:.4f}, stored with the weights: --check finds the layer"


def _layer_figures(layer: ConvLayer) -> dict[str, Any]:
    result = layer.result
    return {
        "name": layer.name,
        "shape": str(layer.shape),
        "op_ms": result.op_ms,
        "layer_ms": result.layer_ms,
        "compile_ms": result.compile_ms,
    }


def _figures(
    impl: str,
    device: Device | None,
    layers: list[dict[str, Any]],
    data: ImageSet,
    batch: int,
    found: float,
    expected: float | None,
    total_s: float,
) -> dict[str, Any]:
    return {
        "impl": impl,
        "device": device.name if device else "host",
        "device_name": _device_text(device),
        "data": data.name,
        "batch": batch,
        "accuracy": found,
        "expected_accuracy": expected,
        "layers": layers,
        "total_s": total_s,
        "versions": versions() | getattr(device, "versions", {}),
    }


def _write_json(path: Path, figures: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(figures, indent=2) + "\n")
    except OSError as error:
        raise MiniDnnError(f"--json {path} cannot be written: {error}") from error
