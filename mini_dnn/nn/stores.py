"""Named arrays in files of three formats: HDF5, NPZ and safetensors. Nothing is ever unpickled.

The format is detected from a file's first bytes. Shapes are read before the numbers, so that a damaged file
cannot request arbitrary amounts of memory.
"""

from __future__ import annotations

import json
import math
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Protocol

import h5py
import ml_dtypes
import numpy as np

from mini_dnn.datasets import hdf5
from mini_dnn.errors import UsageError
from mini_dnn.paths import open_regular

ATTRIBUTES = "__attributes__"  # in NPZ, a member with JSON; in safetensors, the key of its metadata
MOST_ATTRIBUTE_BYTES = 1 << 20
# A safetensors file begins with the header's length in 8 bytes. Only this many of them may be used.
SIZE_BYTES = 4
MOST_PACKING = 20  # the largest compression ratio that is accepted
HDF5_START, ZIP_START = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
PICKLE_STARTS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
KINDS = {".h5": "HDF5", ".hdf5": "HDF5", ".npz": "NPZ", ".safetensors": "safetensors"}  # by suffix
TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}
DAMAGED = (
    *(OSError, RuntimeError, KeyError, ValueError, TypeError, EOFError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError),
    tokenize.TokenError,  # NumPy's, for the header of an array with a bracket that is not closed
)  # what readers raise for a bad file
TO_SAFETENSORS = (
    "import torch, safetensors.torch",
    "safetensors.torch.save_file(torch.load({source!r}, weights_only=True), {target!r})",
)

Attributes = Mapping[str, str | int | float]
Described = tuple[tuple[int, ...], np.dtype]  # shape and type of an array


class PickledError(ValueError):
    """A file whose arrays cannot be read without running code in it."""

    def __init__(self, path: Path) -> None:
        lines = [line.format(source=path.name, target=path.stem + ".safetensors") for line in TO_SAFETENSORS]
        super().__init__(
            "it is pickled, as PyTorch writes .pth files, and reading it could run any program. Make a "
            f"safetensors file of it where PyTorch is:\n  {lines[0]}\n  {lines[1]}\n"
        )


class Store(Protocol):
    """An open file of named arrays."""

    @property
    def attributes(self) -> dict[str, object]:
        """Return the file's metadata."""

    def arrays(self) -> dict[str, Described]:
        """Shapes and types by name, such as ``layer1.0.conv1.weight``.

        Raises
        ------
        OSError, ValueError
            The file is damaged.
        """

    def read(self, name: str) -> np.ndarray:
        """Read an array. `KeyError` is raised if there is none of this name."""


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """Open a file for reading.

    Raises
    ------
    OSError, ValueError, RuntimeError
        The file has none of the three formats, is damaged, is pickled, or is not a regular file.
    """
    with open_regular(path) as file:
        start = file.read(len(HDF5_START))
        if start.startswith(ZIP_START):
            with zipfile.ZipFile(file) as archive:
                yield _Npz(path, archive)
            return
    if start.startswith(PICKLE_STARTS):
        raise PickledError(path)
    if start == HDF5_START:
        with hdf5.opened(path) as found:
            yield _Hdf5(found)
    elif path.suffix == ".safetensors" or start[SIZE_BYTES:] == bytes(SIZE_BYTES):
        library = _safetensors()
        try:
            with library.safe_open(path, "numpy") as tensors:
                yield _Safetensors(tensors)
        except library.SafetensorError as error:
            raise OSError(str(error)) from error
    else:
        raise OSError("its first bytes are not those of such a file")


def kind_of(path: Path) -> str:
    """Return the format for a path: ``"HDF5"``, ``"NPZ"`` or ``"safetensors"``; empty for other suffixes."""
    return KINDS.get(path.suffix, "")


def write(path: Path, kind: str, arrays: Mapping[str, np.ndarray], attributes: Attributes) -> None:
    """Write a file in one of the formats. The caller should write to a temporary name first.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    if kind == "NPZ":
        described = np.frombuffer(json.dumps(dict(attributes)).encode(), np.uint8)
        members: dict[str, Any] = {**arrays, ATTRIBUTES: described}
        with path.open("wb") as file:
            np.savez(file, **members)
    elif kind == "safetensors":
        packed = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        more = {ATTRIBUTES: json.dumps(dict(attributes))}
        path.write_bytes(_safetensors().numpy.save(packed, more))
    else:
        # From this version on, HDF5 protects its own structure with checksums. Ours protects the contents.
        with hdf5.written(path, libver=("v110", "v110")) as file:
            for name, array in arrays.items():
                file[name.replace(".", "/")] = array
            for key, value in attributes.items():
                # Strings of fixed length: HDF5 keeps others in a heap without checksums, and a damaged heap
                # can make it read endlessly.
                file.attrs[key] = np.bytes_(value.encode()) if isinstance(value, str) else value


@dataclass(frozen=True)
class _Hdf5:
    file: h5py.File

    @property
    def attributes(self) -> dict[str, object]:
        return hdf5.attributes(self.file)

    def arrays(self) -> dict[str, Described]:
        found = {name: hdf5.array(self.file, name) for name in hdf5.names(self.file)}
        return {name.replace("/", "."): (array.shape, array.dtype) for name, array in found.items()}

    def read(self, name: str) -> np.ndarray:
        # Names in other formats may have a dot where ours have a folder.
        path = name if self.file.get(name, getlink=True) is not None else name.replace(".", "/")
        found: np.ndarray = hdf5.array(self.file, path)[...]
        return found


@dataclass(frozen=True)
class _Npz:
    path: Path
    archive: zipfile.ZipFile

    @property
    def attributes(self) -> dict[str, object]:
        if f"{ATTRIBUTES}.npy" not in self.archive.namelist():
            return {}
        if self._header(ATTRIBUTES)[0] > (MOST_ATTRIBUTE_BYTES,):
            raise OSError("its description is longer than its arrays")
        return _attributes(self.read(ATTRIBUTES).tobytes())

    def arrays(self) -> dict[str, Described]:
        members = self.archive.namelist()
        if any(name.endswith("data.pkl") for name in members):
            raise PickledError(self.path)
        if odd := [name for name in members if not name.endswith(".npy")]:
            raise OSError(f"it is not an NPZ file: it contains {odd[0]!r:.60}")
        unpacked, packed = sum(info.file_size for info in self.archive.infolist()), self.path.stat().st_size
        if unpacked > MOST_PACKING * packed:
            raise OSError(
                f"its arrays take {unpacked:,} bytes, and {packed:,} in the file: weights cannot be "
                "compressed that much"
            )
        names = [name.removesuffix(".npy") for name in members]
        return {name: self._header(name)[:2] for name in names if name != ATTRIBUTES}

    def _header(self, name: str) -> tuple[tuple[int, ...], np.dtype, bool, int]:
        """Return shape, type, whether columns come first, and the header's length."""
        info = self.archive.getinfo(f"{name}.npy")
        with self.archive.open(info) as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else _header_2_0
            shape, by_columns, dtype = read(member)
            length = member.tell()
        if dtype.hasobject:
            raise PickledError(self.path)
        if info.file_size != length + dtype.itemsize * math.prod(shape):
            raise OSError(f"'{name}' is {shape} {dtype}, but has {info.file_size - length:,} bytes")
        return shape, dtype, by_columns, length

    def read(self, name: str) -> np.ndarray:
        if f"{name}.npy" not in self.archive.namelist():
            raise KeyError(f"'{name}' is missing")
        shape, dtype, by_columns, length = self._header(name)
        with self.archive.open(f"{name}.npy") as member:
            data = member.read()[length:]  # all of it, so that the archive's checksum is verified
        return np.frombuffer(data, dtype).reshape(shape, order="F" if by_columns else "C")


@dataclass(frozen=True)
class _Safetensors:
    file: Any

    @property
    def attributes(self) -> dict[str, object]:
        return _attributes((self.file.metadata() or {}).get(ATTRIBUTES, "{}").encode())

    def arrays(self) -> dict[str, Described]:
        found = {}
        for name in self.file.keys():  # noqa: SIM118  (it is no mapping)
            part = self.file.get_slice(name)
            kind = part.get_dtype()
            # An array of unknown type is only listed by name, because it may be superfluous.
            found[name] = tuple(part.get_shape()), np.dtype(TYPES.get(kind, "V1"))
        return found

    def read(self, name: str) -> np.ndarray:
        if name not in self.file.keys():  # noqa: SIM118
            raise KeyError(f"'{name}' is missing")
        found: np.ndarray = self.file.get_tensor(name)
        return found


def _safetensors() -> ModuleType:
    """Import the library, which is only needed for its own files.

    Raises
    ------
    UsageError
        The library is not installed.
    """
    try:
        import safetensors.numpy
    except ImportError:
        raise UsageError(
            "safetensors files need the library of that name: pip install safetensors; or use NPZ or HDF5"
        ) from None
    return safetensors


def _header_2_0(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype]:
    found: tuple[tuple[int, ...], bool, np.dtype] = np.lib.format.read_array_header_2_0(member)
    return found


def _attributes(text: bytes) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OSError(f"its attributes are not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise OSError(f"its attributes are not a JSON object, but {found!r:.60}")
    return found


def exact(dtype: np.dtype, wanted: np.dtype) -> bool:
    """Whether one type can represent each number of another."""
    if dtype == ml_dtypes.bfloat16:
        dtype = np.dtype(np.float32)  # its numbers are a subset of float32's
    return dtype.kind == "f" and np.can_cast(dtype, wanted, "safe")
