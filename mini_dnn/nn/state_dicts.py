"""Weights of residual networks from other sources: state dicts of torchvision and timm, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mini_dnn.datasets.download import download
from mini_dnn.errors import DataError, ShapeError, WeightsError, meant_file
from mini_dnn.nn import stores
from mini_dnn.nn.models import resnet
from mini_dnn.nn.models.resnet import ResNetSizes
from mini_dnn.nn.models.resnet_arrays import sizes_of
from mini_dnn.nn.network import Network
from mini_dnn.nn.stores import Described

# Prefixes that training programs add to all names
WRAPPERS = ("module.", "model.", "state_dict.", "_orig_mod.")
COUNTER = ".num_batches_tracked"  # the number of batches that a norm has processed, which is not used
MOST_NAMED = 6  # names in a message
MOST_BYTES = 4 << 30  # of a file: far more than any such network has
FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Published:
    """Weights that others publish.

    Parameters
    ----------
    folder, name
        The name of the file, and its folder: a URL that ends in "/".
    sha256
        The hash of its content.
    page
        A web page about the weights.
    dataset
        The data set that they were trained on.
    preprocessing
        The preprocessing of pictures, in words.
    """

    folder: str
    name: str
    sha256: str
    page: str
    dataset: str = "imagenet"
    preprocessing: str = (
        "shorter side 256 (bilinear, antialiased), the middle 224×224, uint8 / 255, "
        "less (0.485, 0.456, 0.406), over (0.229, 0.224, 0.225)"
    )


PUBLISHED: Mapping[str, Published] = {
    "resnet18": Published(  # torchvision's IMAGENET1K_V1, BSD-3-Clause, as timm publishes it
        "https://huggingface.co/timm/resnet18.tv_in1k/resolve/bbd144b3e5565108aad885f145491d11bc6ce807/",
        "model.safetensors",
        "694f673df6520a3158624e8a89af086f59923ee4cd7436fe5bc3bc71d295ad81",
        "https://huggingface.co/timm/resnet18.tv_in1k",
    )
}


@dataclass(frozen=True)
class StateDict:
    """A residual network's arrays, with torchvision's names, and its sizes."""

    sizes: ResNetSizes
    arrays: Mapping[str, np.ndarray]

    def network(self) -> Network:
        """The network with these arrays."""
        network = resnet.build(self.sizes, np.random.default_rng(0))
        for name, parameter in network.parameters().items():
            parameter.value[...] = self.arrays[name]
        return network


def read(path: Path, network: str, image: int | None = None, sizes: ResNetSizes | None = None) -> StateDict:
    """Read the state dict of a network that `mini_dnn.nn.models.resnet` can build.

    Parameters
    ----------
    path
        A file of safetensors, NPZ or HDF5.
    network
        ``"resnet18"`` or ``"resnet34"``.
    image
        The rows and columns of its images; see `mini_dnn.nn.models.resnet_arrays.sizes_of`.
    sizes
        The network's sizes if they are known. Otherwise, they follow from the arrays.

    Raises
    ------
    WeightsError
        The file is missing, damaged, pickled or for another network. The message names arrays that are
        missing, superfluous or of another shape, or that contain NaN or infinities.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise _error(path, f"it has {path.stat().st_size:,} bytes; the limit is {MOST_BYTES:,}")
        with stores.opened(path) as store:
            given = store.arrays()
            names = _names(given)
            found = {ours: given[theirs] for ours, theirs in names.items()}
            sizes = sizes or _sizes(path, network, found, image)
            _check(path, sizes.shapes, found)
            arrays = {name: store.read(names[name]).astype(FLOAT32) for name in sizes.shapes}
    except FileNotFoundError:
        raise _error(path, f"there is no such file{meant_file(path)}") from None
    except stores.PickledError as error:
        raise WeightsError(f"cannot convert {path}: {error}Next: convert that file") from None
    except stores.DAMAGED as error:
        kind = stores.kind_of(path) or "safetensors, NPZ or HDF5"
        raise _error(
            path, f"it is not a valid {kind} file; it may be truncated or damaged ({error})"
        ) from error
    _check_numbers(path, arrays)
    return StateDict(sizes, arrays)


def fetch(network: str, folder: Path) -> tuple[StateDict, Published]:
    """Download published weights, verify them, and read them.

    Parameters
    ----------
    folder
        The folder that keeps the file.

    Raises
    ------
    WeightsError
        No weights are known for that network, or they cannot be downloaded. The message says what to do.
    """
    if network not in PUBLISHED:
        raise WeightsError(
            f"no address of weights of {network} is known, only of {', '.join(PUBLISHED)}. Next: "
            "download a state dict of torchvision or timm as safetensors, and convert it: "
            "'run.py weights convert'"
        )
    published = PUBLISHED[network]
    try:
        wanted = {published.name: f"sha256:{published.sha256}"}
        with download(wanted, [published.folder], folder) as (place, _):
            return read(place / published.name, network), published
    except DataError as error:
        raise WeightsError(
            f"the weights of {network} cannot be downloaded: {error}. Next: on a machine with a network, get "
            f"{published.folder}{published.name} (SHA-256 {published.sha256}; {published.page}), copy it "
            f"here, and run 'run.py weights convert {published.name} {network}-{published.dataset}.h5'"
        ) from error


def _names(found: Mapping[str, Described]) -> dict[str, str]:
    """Map torchvision's names to those in the file: without prefixes of all names, and without counters."""
    prefix = ""
    while found and (more := next((w for w in WRAPPERS if all(n.startswith(prefix + w) for n in found)), "")):
        prefix += more
    return {name.removeprefix(prefix): name for name in found if not name.endswith(COUNTER)}


def _sizes(path: Path, network: str, found: Mapping[str, Described], image: int | None) -> ResNetSizes:
    try:
        sizes = sizes_of({name: shape for name, (shape, _) in found.items()}, image)
    except ShapeError as error:
        raise _error(path, f"{error}; found: {_some(list(found))}") from None
    wanted = resnet.PRESETS[network].blocks
    if sizes.blocks != wanted:
        fits = [name for name in ("resnet18", "resnet34") if resnet.PRESETS[name].blocks == sizes.blocks]
        stages = " + ".join(map(str, sizes.blocks))
        raise _error(
            path,
            f"it is for another network: it has {stages} blocks in its stages, and {network} has "
            f"{' + '.join(map(str, wanted))}{f'; it fits --network {fits[0]}' if fits else ''}",
        )
    return sizes


def _check(path: Path, wanted: Mapping[str, tuple[int, ...]], found: Mapping[str, Described]) -> None:
    """Compare names, shapes and types, and report everything that is wrong at once."""
    problems = []
    if missing := [name for name in wanted if name not in found]:
        problems.append(f"missing: {_some(missing)}")
    if surplus := [name for name in found if name not in wanted]:
        problems.append(f"not of this network: {_some(surplus)}")
    shapes = [
        f"'{name}' is {found[name][0]}, and {shape} is expected"
        for name, shape in wanted.items()
        if name in found and found[name][0] != shape
    ]
    if shapes:
        problems.append("; ".join(shapes[:MOST_NAMED]) + _more(len(shapes)))
    types = [
        f"'{name}' is {found[name][1]}, which float32 does not hold exactly"
        for name in wanted
        if name in found and not stores.exact(found[name][1], FLOAT32)
    ]
    if types:
        problems.append("; ".join(types[:MOST_NAMED]) + _more(len(types)))
    if problems:
        raise _error(path, ". ".join(problems))


def _check_numbers(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            count = np.count_nonzero(~np.isfinite(array))
            raise _error(path, f"'{name}' has NaN or infinite values: {count:,} of {array.size:,}")
        if name.endswith("running_var") and (array < 0).any():
            raise _error(path, f"'{name}' has a negative variance")


def _some(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names[:MOST_NAMED]) + _more(len(names))


def _more(count: int) -> str:
    return f" and {count - MOST_NAMED} more" if count > MOST_NAMED else ""


def _error(path: Path, problem: str) -> WeightsError:
    return WeightsError(
        f"cannot convert {path}: {problem}. Next: give a state dict of a ResNet of basic blocks, as "
        "torchvision and timm name its arrays"
    )
