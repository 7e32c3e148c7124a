"""``infer``: the variant that its flags name."""

from __future__ import annotations

import argparse

from mini_dnn import ops
from mini_dnn.cli.common import find_filled, only
from mini_dnn.errors import UsageError
from mini_dnn.measuring.inference import find_step, network_of, step_name
from mini_dnn.measuring.layerwise import ON_HOST
from mini_dnn.nn.zoo import MODELS, Model
from mini_dnn.variant import Variant, default_of, has_variants


def impl_of(args: argparse.Namespace) -> str:
    """Return the name that ``--impl`` gives or defaults to; empty if the device decides."""
    model = MODELS[args.network]
    given: str = args.impl or default_of(model.layer, model.impl)
    return given or ("" if has_variants(ops.find(model.layer)) else "cpu")


def variant_of(args: argparse.Namespace) -> Variant | None:
    """Return the variant that runs the network, or its heavy layers; None if the device decides."""
    model = MODELS[args.network]
    return find_step(args.resident, model.name) if args.resident else _variant(model, impl_of(args))


def watched(args: argparse.Namespace) -> str | None:
    """Return the name of the variant whose files ``--watch`` watches, if it has a folder and is known."""
    model = MODELS[args.network]
    if args.resident:
        return step_name(args.resident, model.name)
    name = impl_of(args)
    return None if name == "cpu" and model.layer in ON_HOST else name


def _variant(model: Model, name: str) -> Variant | None:
    """Return the variant with this name, which runs the network's layers; None without a name."""
    if not name:
        return None
    if name == "cpu" and model.layer in ON_HOST:
        return ON_HOST[model.layer]
    variant = find_filled(name)
    if other := network_of(variant):
        more = f" and --network {other}" if other != model.name else ""
        raise UsageError(f"--impl {name}: it computes a whole network; use --resident {name}{more}")
    others = [other.name for other in MODELS.values() if variant.op == other.layer != model.layer]
    if others:
        raise UsageError(
            f"--impl {name}: it computes {variant.op}, but the layers of {model.title} are "
            f"{model.layer}; choose a variant from 'run.py list {model.layer}', or add --network {others[0]}"
        )
    return only([variant], model.layer, "--impl")[0]
