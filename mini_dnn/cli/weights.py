"""Verb ``weights``: convert or download weights, and show what a file says about itself."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from mini_dnn.cli.common import check_output
from mini_dnn.errors import UsageError
from mini_dnn.nn import state_dicts, stores
from mini_dnn.nn.files import describe
from mini_dnn.nn.models.resnet import ResNetSizes
from mini_dnn.nn.state_dicts import StateDict
from mini_dnn.nn.weights import WeightsInfo, is_ours, save
from mini_dnn.nn.zoo import MODELS
from mini_dnn.paths import ROOT

NETWORKS = ("resnet18", "resnet34")
UNKNOWN = "unknown"
DOWNLOADS = Path("downloads")  # folder in data/ for files as published
ACTIONS = {"convert": ("IN", "OUT"), "fetch": ("[OUT]",), "show": ("FILE",)}


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "weights",
        help="convert weights of torchvision or timm, download weights, or show the attributes of a file",
        description="'convert IN OUT' makes a file of weights from a state dict of torchvision or "
        "timm in safetensors, NPZ or HDF5. 'fetch [OUT]' downloads published weights and converts "
        "them. 'show FILE' prints the attributes of a file. OUT ends in .h5, .npz or .safetensors.",
    )
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--network", choices=NETWORKS, default=NETWORKS[0], help="default %(default)s")
    parser.add_argument(
        "--image", type=int, metavar="PIXELS", help="side of the images (default 224; 28 for a stem of 3×3)"
    )
    parser.add_argument(
        "--description",
        type=Path,
        metavar="FILE",
        help="JSON file with the sizes (default: inferred from the arrays)",
    )
    parser.add_argument(
        "--data", help="the data that it was trained on (default imagenet if there are 1,000 classes)"
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the requested action and return 0.

    Raises
    ------
    UsageError, WeightsError
        Flags are wrong, or files cannot be used or written.
    """
    most, least = len(ACTIONS[args.action]), sum(not word.startswith("[") for word in ACTIONS[args.action])
    if not least <= len(args.files) <= most:
        raise UsageError(
            f"'run.py weights {args.action}' expects {' '.join(ACTIONS[args.action])}; found "
            f"{len(args.files)} files"
        )
    if args.image is not None and args.image < 1:
        raise UsageError(f"--image {args.image}: expected 1 or more pixels")
    if args.action != "convert":
        _refuse_flags(args, f"it is for 'convert', and not for '{args.action}'")
    if args.action == "show":
        for key, value in describe(args.files[0]).items():
            print(f"{key:15} {value}")
    elif args.action == "convert":
        source, out = args.files
        _check_out(out, args.force, source)
        if is_ours(source):
            _refuse_flags(args, f"{source} says this itself")
            if "description" not in describe(source):
                raise UsageError(
                    f"{source} is not the file of a residual network, and only those can be converted; "
                    "other networks are read from the files that 'run.py train' writes"
                )
            network, info = MODELS[NETWORKS[0]].read(source)
            save(out, network, info)
            print(f"weights   {out}")
            return 0
        sizes = ResNetSizes.from_file(args.description) if args.description else None
        if sizes and args.image not in (None, sizes.image):
            raise UsageError(f"--image {args.image}: {args.description} states {sizes.image}; remove --image")
        state = state_dicts.read(source, args.network, args.image, sizes)
        command = f"convert {shlex.quote(str(source))} {shlex.quote(str(out))}"
        _write(state, out, args, command, args.data or _dataset(state), "unknown")
    else:
        out = args.files[0] if args.files else MODELS[NETWORKS[0]].weights("imagenet")
        _check_out(out, args.force)
        state, published = state_dicts.fetch(args.network, ROOT / "data" / DOWNLOADS / args.network)
        command = f"fetch {shlex.quote(str(out))}"
        _write(state, out, args, command, published.dataset, published.preprocessing)
    return 0


def _refuse_flags(args: argparse.Namespace, why: str) -> None:
    """Raise an error for flags that describe a state dict, where they would have no effect."""
    for flag in ("image", "description", "data"):
        if getattr(args, flag) is not None:
            raise UsageError(f"--{flag} has no effect here: {why}; remove it")


def _dataset(state: StateDict) -> str:
    return "imagenet" if state.sizes.classes == 1000 else UNKNOWN


def _check_out(out: Path, force: bool, source: Path | None = None) -> None:
    """Raise an error before the work if the file cannot be written."""
    if not stores.kind_of(out):
        raise UsageError(f"{out}: expected a file name that ends in {', '.join(stores.KINDS)}")
    check_output("OUT", out, force=True)  # the check below is stricter
    if source and out.exists() and source.exists() and out.samefile(source):
        raise UsageError(f"{out} is the input file; name another file for the result")
    if out.exists() and not force:
        raise UsageError(f"{out} already exists; name another file, or use --force to replace it")


def _write(
    state: StateDict, out: Path, args: argparse.Namespace, command: str, dataset: str, preprocessing: str
) -> None:
    flags = {"network": args.network, "image": args.image, "description": args.description, "data": args.data}
    given = [f"--{flag} {shlex.quote(str(one))}" for flag, one in flags.items() if one is not None]
    command = f"python run.py weights {command} {' '.join(given)}"
    description = state.sizes.to_json()
    save(out, state.network(), WeightsInfo(dataset, {}, 0, command, preprocessing, description=description))
    sizes = state.sizes
    widths = ", ".join(map(str, sizes.widths))
    print(
        f"network   {sizes.title}: {sizes.channels} channels, images of {sizes.image}×{sizes.image}, stages "
        f"of {widths}, {sizes.classes:,} classes"
    )
    print(f"weights   {out}")
