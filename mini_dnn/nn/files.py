"""Named arrays and attributes in files, which are written atomically and checked when read.

The format is HDF5, or NPZ or safetensors if the file name has such an extension. Weights and training
checkpoints are such files.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import platform
import re
import tempfile
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

import h5py
import numpy as np

from mini_dnn.errors import WeightsError, meant_file, reason
from mini_dnn.nn import stores
from mini_dnn.nn.stores import Attributes, Described, Store
from mini_dnn.paths import replacing

ALLOWANCE_BYTES = 1 << 20  # of a file, for everything except its arrays
BETWEEN_LAYERS = re.compile(r", (?=\S+ [A-Z])")  # in `Network.architecture`
FORMAT = 1  # increased whenever an older reader could misread the file
_NEXT_STEP = {
    "weights": "give a file that 'run.py train' or 'run.py weights' wrote; 'git checkout data' brings the "
    "shipped ones back",
    "checkpoint": "name the file that the stopped training wrote, or train from the start without --resume",
}


def write_arrays(
    path: Path, kind: str, architecture: str, arrays: Mapping[str, np.ndarray], attributes: Attributes
) -> None:
    """Write named arrays and attributes under a temporary name, then rename the file.

    Parameters
    ----------
    kind
        "weights" or "checkpoint".

    Raises
    ------
    WeightsError
        The file cannot be written. An older file is unchanged.
    """
    contents = {key: _plain(value) for key, value in attributes.items()}
    contents |= {"format": FORMAT, "kind": kind, "architecture": architecture, "created_with": _versions()}
    try:
        with replacing(path) as temporary:
            contents["checksum"] = checksum(arrays, contents)
            stores.write(temporary, stores.kind_of(path), arrays, contents)
            with temporary.open("rb+") as written:
                os.fsync(written.fileno())
    except OSError as error:
        raise _not_written(path, kind, error) from error


def check_room(path: Path, kind: str, nbytes: int) -> None:
    """Check that a file of ``nbytes`` can be written, before its content is computed.

    Raises
    ------
    WeightsError
        The file cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            raise OSError(f"{path} is not a regular file")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent) as file:
            os.posix_fallocate(file.fileno(), 0, nbytes)
    except OSError as error:
        raise _not_written(path, kind, error) from error


def read_arrays(
    path: Path, kind: str, architecture: str, wanted: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, str | int | float]]:
    """Read a file of `write_arrays`: the arrays with the names and shapes of ``wanted``, and the attributes.

    Raises
    ------
    WeightsError
        The file is missing, damaged, of another kind, or for another network.
    """
    try:
        _check_size(path, kind, wanted)
        with stores.opened(path) as store:
            attributes = {key: _plain(value) for key, value in store.attributes.items()}
            _check_attributes(path, kind, architecture, attributes)
            found = store.arrays()
            arrays = {name: _read(path, kind, store, found, name, wanted[name]) for name in wanted}
    except FileNotFoundError:
        raise unusable(path, kind, f"there is no such file{meant_file(path)}") from None
    except stores.PickledError as error:
        raise unusable(path, kind, str(error)) from None
    except stores.DAMAGED as error:
        raise _damaged(path, kind, error) from error
    if checksum(arrays, attributes) != attributes.get("checksum"):
        raise unusable(path, kind, "its checksum does not match its contents: it is damaged")
    for name, array in arrays.items():
        if count := np.count_nonzero(~np.isfinite(array)):
            raise unusable(path, kind, f"'{name}' has NaN or infinite values: {count:,} of {array.size:,}")
    return arrays, attributes


def checksum(arrays: Mapping[str, np.ndarray], attributes: Attributes) -> str:
    """SHA-256, in hexadecimal, over all arrays and all attributes except the checksum itself."""
    digest = hashlib.sha256()
    for key, value in sorted(attributes.items()):
        if key != "checksum":
            digest.update(f"{key}={value!r}\n".encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def describe(path: Path) -> dict[str, str | int | float]:
    """Return the attributes of a file and the number of its array elements, without reading the arrays.

    Raises
    ------
    WeightsError
        The file is missing or damaged, or has no attributes.
    """
    try:
        with stores.opened(path) as store:
            attributes = {key: _plain(value) for key, value in store.attributes.items()}
            count = sum(math.prod(shape) for shape, _ in store.arrays().values())
    except FileNotFoundError:
        raise unusable(path, "weights", f"there is no such file{meant_file(path)}") from None
    except stores.PickledError as error:
        raise unusable(path, "weights", str(error)) from None
    except stores.DAMAGED as error:
        raise _damaged(path, "weights", error) from error
    if attributes.get("format") != FORMAT:
        raise unusable(path, "weights", "it has no 'format'; 'run.py weights convert' converts state dicts")
    return attributes | {"numbers": count}


def _check_size(path: Path, kind: str, wanted: Mapping[str, np.ndarray]) -> None:
    """Raise an error for a file that is far larger than its arrays."""
    nbytes, most = path.stat().st_size, 2 * sum(array.nbytes for array in wanted.values()) + ALLOWANCE_BYTES
    if nbytes > most:
        raise unusable(path, kind, f"it has {nbytes:,} bytes; the limit for this network is {most:,}")


def _check_attributes(path: Path, kind: str, architecture: str, attributes: Attributes) -> None:
    found = attributes.get("format"), attributes.get("kind")
    if found != (FORMAT, kind):
        problem = f"it is not a file of kind '{kind}', format {FORMAT}: found '{found[1]}', {found[0]}"
        raise unusable(path, kind, problem)
    texts = str(attributes.get("architecture")), architecture
    pairs = zip_longest(*map(BETWEEN_LAYERS.split, texts), fillvalue="missing")
    for number, (one, other) in enumerate(pairs, 1):
        if one != other:
            problem = f"it is for another network: layer {number} is {one}; expected {other}"
            raise unusable(path, kind, problem)


def _read(
    path: Path, kind: str, store: Store, found: Mapping[str, Described], name: str, wanted: np.ndarray
) -> np.ndarray:
    """Read one array.

    Its shape is compared first, because a damaged one could request any amount of memory.
    """
    if name not in found:
        raise unusable(path, kind, f"'{name}' is missing")
    shape, dtype = found[name]
    if shape != wanted.shape or not np.can_cast(dtype, wanted.dtype, "safe"):
        problem = f"'{name}' is {shape} {dtype}; the network has {wanted.shape} {wanted.dtype}"
        raise unusable(path, kind, problem)
    return store.read(name)


def _plain(value: object) -> str | int | float:
    """Convert an attribute from a type of NumPy or HDF5 to a Python type."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str | int | float) else str(value)


def unusable(path: Path, kind: str, problem: str) -> WeightsError:
    """Return the error for a file that cannot be used as ``kind``, with the next step."""
    return WeightsError(f"cannot use {path} as {kind}: {problem}. Next: {_NEXT_STEP[kind]}")


def _not_written(path: Path, kind: str, error: OSError) -> WeightsError:
    is_full, why = error.errno in (errno.ENOSPC, errno.EDQUOT), reason(error)
    there = os.path.isfile(path)  # noqa: PTH113 - no error if the folder may not be searched
    kept = "the older file is unchanged" if there else "no file was written"
    cure = "free some space on that disk, or " if is_full else ""
    return WeightsError(f"cannot write the {kind} to {path}: {why}; {kept}. Next: {cure}name another folder")


def _damaged(path: Path, kind: str, error: BaseException) -> WeightsError:
    if isinstance(error, IsADirectoryError):
        return unusable(path, kind, "it is a folder; expected a file")
    if isinstance(error, PermissionError):
        return unusable(path, kind, "you may not read it; change its permissions")
    store = stores.kind_of(path) or "HDF5"
    return unusable(path, kind, f"it is not a valid {store} file; it may be truncated or damaged ({error})")


def _versions() -> str:
    return (
        f"Python {platform.python_version()}, NumPy {np.__version__}, h5py {h5py.__version__}, "
        f"HDF5 {h5py.version.hdf5_version}"
    )
